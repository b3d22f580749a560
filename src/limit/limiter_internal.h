/* limiter_internal.h - what limiter.c (ops), batch.c, arguments.c, op_leases.c, adjust.c, split.c, op_permits.c, failure_log.c and verdict.c share. Nobody else includes it. */
#ifndef WEIR_LIMIT_LIMITER_INTERNAL_H
#define WEIR_LIMIT_LIMITER_INTERNAL_H

#include <sys/queue.h>

#include "base/deadline.h"
#include "base/hash.h"
#include "limit/denials.h"
#include "limit/grants.h"
#include "limit/leases.h"
#include "limit/limiter.h"
#include "limit/permits.h"

/* What says more is no answer of the driver: a limiter's numbers are below 2^53, up to which Lua counts without gaps, and debts end at
 * 2^52 us. The rest is room: sums of a few stay in range here. */
#define ANSWER_LARGEST (INT64_C(1) << 61)

enum {
    LIMITER_MAGIC = 0x4c4d5452,
    OP_MAGIC = 0x4c4f5053,
    BATCH_REQUESTS_MAX = 64, /* in one EVALSHA: Redis serves nobody else meanwhile, some 0.2 ms */
    BATCH_KEYS_MAX = BATCH_REQUESTS_MAX * LIMITS_PER_RULE_MAX,
    KEY_SLOTS = 2 * BATCH_KEYS_MAX,
    ARGUMENTS_PER_LIMIT = 7,
    ANSWERS_PER_LIMIT = 5,
    MODE_PLAIN = 0,
    MODE_BEST_EFFORT = 1,
    MODE_DEBT = 2,
    MODE_RENEW = 3,  /* of concurrency alone, see its script */
    MODE_REPEAT = 8, /* times the key that remembers the answer */
    MODE_SHADOW = 4, /* beside the limiter's mode: this limit's rejection does not reject the request */
    NUMBER_SIZE = 20,
    SPARE_OPS_MAX = 4096,
    GATHER_US = 500, /* how long a decision may wait for others to share its call, see may_gather() */
    GATHER_MAX = 32, /* and how many may */
    GATHER_WORTH = 4,
    TRY_AGAIN_US = 2000,
    ADJUSTMENT_TRIES_MAX = 100,
    SLOT_LISTS = 64,
    GROUPED_REQUESTS_MAX = 2, /* then a request is asked for by itself */
};

struct op_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    int64_t full_cost; /* what it comes to, where the answer is charged */
    unsigned mode;     /* the driver's */
    bool shadow;       /* rejects nobody */
    bool granted;
    int64_t charged;         /* what Redis granted */
    int64_t counts_us;       /* from then on: until the limit is as good as new, if nothing more comes */
    int64_t charged_at_us;   /* by the clock of Redis, with its delay: what is given back is found by it */
    struct permit *permit;   /* of a limit on requests in flight, else NULL */
    struct slice key;        /* in op->keys */
    uint16_t slot;           /* of a cluster, where it is kept; else 0 */
    unsigned key_index;      /* from 1, in the batch's KEYS */
    struct slice repeat_key; /* the same for what remembers the answer; n == 0: nothing does */
    unsigned repeat_index;
};

struct limit_op {
    uint32_t magic;
    struct limiter *limiter;
    struct decision_request *decision_request; /* NULL: nobody waits any more */
    struct batch *batch;                       /* NULL: not sent yet */
    struct deadline deadline;
    TAILQ_ENTRY(limit_op) entry; /* of gathered or spare */
    uint16_t slot;               /* of its keys, when it is sent to a cluster; else 0 */
    bool alone;                  /* in its batch: its keys are on their way to another node */
    unsigned tries;
    unsigned times_asked;    /* and there was nothing left for it, see group_answer() */
    struct split *split;     /* its limits are in several slots: see split.c; else NULL */
    struct limit_op *parent; /* of which it is a sub-operation; NULL: of none, or nobody waits any more */
    struct lease *lease;     /* of its key; NULL: none */
    uint64_t lease_key;      /* another: its place has gone to another key */
    uint64_t started_us;
    struct denial_key denial_key;
    bool denial_key_known;
    bool is_adjustment; /* nobody waits, and it is sent all the same */
    bool abandoned;     /* whoever asked has gone */
    bool part;          /* some limits' scripts failed: no denial of the request is to be remembered */
    bool counts_later;  /* its verdict is not that of the request yet: whoever knows that counts its limits */
    /* Limits that allowed, decided without Redis since their own scripts failed; they count with the others. */
    const struct limit *aside[LIMITS_PER_RULE_MAX];
    unsigned aside_count;
    struct permit *permits[LIMITS_PER_RULE_MAX]; /* that it uses, whatever becomes of its limits */
    unsigned permit_count;
    size_t keys_size;
    unsigned count;
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    char keys[];
};
TAILQ_HEAD(op_list, limit_op);

/* What one EVALSHA asks for as one request of the driver: an op, or several that are charged alike. */
struct group {
    const struct limit_op *first; /* only until one of the batch's ops is answered */
    unsigned count;               /* limits */
    unsigned size, answered;      /* ops */
    size_t answer_at;             /* in the reply */
    int64_t extra;                /* units beside those that the ops need */
    struct lease *lease;          /* that they are for, or NULL */
};

/* What one EVALSHA asks for. */
struct batch {
    struct redis_call call;
    struct limiter *limiter;
    SLIST_ENTRY(batch) spare;
    bool timed_out; /* the link was told */
    uint64_t sent_us;
    unsigned count;
    struct limit_op *ops[BATCH_REQUESTS_MAX];
    uint8_t group_of[BATCH_REQUESTS_MAX];
    unsigned group_count;
    struct group groups[BATCH_REQUESTS_MAX];
};

/* The arguments of the batch being made; reused. */
struct arguments {
    int count;
    const char **bytes;
    size_t *sizes;
    struct text numbers; /* decimal digits that the arguments point into */
    struct hash_key hash;
    struct slice keys[BATCH_KEYS_MAX];
    unsigned key_count, last_key;       /* the place, from 1, of the key that was looked up last */
    uint16_t slots[KEY_SLOTS];          /* by hash: key index from 1, 0: free */
    uint8_t groups[BATCH_KEYS_MAX + 1]; /* by key index: the group that may grow, from 1; 0: none */
};

struct limiter {
    uint32_t magic;
    struct policy *policy;
    struct fallback *fallback;
    struct redis_client *redis; /* NULL: the policy needs none */
    struct deadlines deadlines;
    struct deadline_queue waiting; /* everything that somebody waits for; one length, so in order of time */
    struct event *resume; /* makes the loop iteration again when something was gathered during a flush */
    size_t op_keys_size;  /* the longest keys of one request together */
    struct op_list gathered, spare_ops;
    struct op_list beyond; /* gathered, and kept back by their link's ramp: see redis_link_has_room */
    struct op_list later;  /* to be gathered again by `again` */
    struct event *again;   /* and ends the wait of what is gathered */
    bool in_slots;         /* Redis is a cluster */
    unsigned gathered_count, under_way; /* ops gathered; batches without an answer */
    unsigned gathered_before;           /* this turn; see may_gather() */
    uint64_t gathered_since_us;
    uint64_t gather_us, sent_us; /* how long they may wait; when the last call left */
    unsigned density;            /* see note_density() */
    uint64_t round_trip_us;      /* of a batch, smoothed */
    unsigned spare_op_count;
    SLIST_HEAD(batch_list, batch) spare_batches;
    struct denials *denials;
    struct permits *permits; /* NULL where the policy counts no requests in flight */
    struct leases *leases;   /* NULL where the policy allows none */
    struct deadline_queue lease_ends;
    size_t key_start; /* of a limit's key: the client's tag, or another's, behind the policy's prefix */
    bool retired;     /* another limiter decides from now on: leases are given back */
    struct grants_hold grants;
    struct limit_op *reserve; /* for decisions without Redis when there is no memory for an op */
    struct arguments arguments;
    struct limiter_stats *stats; /* the worker's, over all its limiters */
};

static inline unsigned op_key_count(const struct limit_op *op)
{
    unsigned count = op->count;
    for (unsigned i = 0; i < op->count; i++)
        count += op->limits[i].repeat_key.n > 0;
    return count;
}

/* arguments.c. */

/* Ends the process when there is no memory. */
void arguments_init(struct arguments *a);
void arguments_free(struct arguments *a);
/* Is it asked for one unit of one limit, in a way that several can be asked for at once? */
bool op_is_unit(const struct limit_op *op);
/* Forms the batch's groups, and says what is to be sent. */
void arguments_make(struct arguments *a, struct batch *batch);

/* Room for what group_answer() makes. */
struct own_answer {
    redisReply numbers[2];
    redisReply *values[ANSWERS_PER_LIMIT];
};

/* What the next op of the group would have been answered by itself, in its turn; `values` is what the group was. NULL: it
 * is rejected, and the answer does not tell for how long. */
redisReply *const *group_answer(struct group *group, redisReply *const *values, struct own_answer *own);

/* Each fills *d, the whole decision, and counts it by limit unless the op counts later. */

/* `values`: the op's part of the driver's reply. */
void verdict_from_answer(struct limiter *l, const struct limit_op *op, redisReply *const *values,
                         struct decision *d);
/* Each limit follows its own on_failure; `cause` is counted. */
void verdict_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                           struct decision *d);
/* Counts the limits of a decision whose ops count later. */
void verdict_count(struct limiter *l, const struct decision *d);
/* Of an op that counts later and goes on with other limits: those that allow are counted with these. */
void verdict_set_aside(struct limit_op *op, const struct decision *d);
/* Prohibited and unlimited clients. */
void verdict_by_client_limits(struct limiter *l, const struct limit_facts *facts, bool prohibited,
                              struct decision *d);
/* A rule without limits. */
void verdict_of_no_limits(struct decision *d);
/* There is no memory to count the request in flight. */
void verdict_of_no_memory(struct decision *d);
/* False: no denial that still holds is known. */
bool verdict_from_denial(struct limiter *l, struct limit_op *op, uint64_t now_us, struct decision *d);
/* A unit of the lease was spent. */
void verdict_from_lease(struct limiter *l, const struct limit_op *op, const struct lease *lease,
                        uint64_t now_us, struct decision *d);
/* Remembers a denial, if it is one. */
void verdict_remember(struct limiter *l, struct limit_op *op, const struct decision *d);

/* op_permits.c. */

/* Behind op_fill(). False: no memory; what is used is dropped with the op. */
MUST_CHECK bool op_use_permits(struct limit_op *op);
void op_drop_permits(struct limit_op *op);
/* It goes to Redis; it was answered; nobody knows what became of it. */
void op_permits_sent(struct limit_op *op);
void op_permits_answered(struct limit_op *op);
void op_permits_failed(struct limit_op *op);
/* What Redis has charged is the request's; where nobody asks any more (NULL) it is to be given back. */
void op_permits_charged(struct limit_op *op, struct decision_request *decision_request,
                        redisReply *const *values);
/* The same for what was charged without Redis. */
void op_permits_locally(struct limit_op *op, struct decision_request *decision_request);
/* Makes a free op the next call that permits have to make. False: there is none, and the op is as it was. */
MUST_CHECK bool op_fill_permit_call(struct limit_op *op);
/* Was it abandoned, and charged by a queue in which its request would have been held? */
bool op_would_have_waited(const struct limit_op *op, redisReply *const *values);

/* op_leases.c. */

void limiter_leases_init(struct limiter *l);
void limiter_leases_free(struct limiter *l); /* before the spare ops */
/* Behind op_fill(): finds its lease, where it may have one. */
void op_meet_lease(struct limit_op *op, const struct limit_facts *facts);
/* Decides by the lease; the op is the charge's or free then. False: it holds nothing. */
MUST_CHECK bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request);
/* How many units to ask for beside the op's; `asked` is set to their lease, or NULL. */
int64_t op_ask_lease(const struct limit_op *op, struct lease **asked);
/* Of a group with a lease, before its ops are answered. `values`: NULL: there was no answer. */
void lease_answered(struct group *group, redisReply *const *values, int64_t time_us, uint64_t asked_us);
void op_note_remaining(const struct limit_op *op, redisReply *const *values, uint64_t asked_us);
/* What it was charged is given back. */
void op_unspend_lease(struct limit_op *op);

/* limiter.c, for batch.c, split.c and op_leases.c. */

/* What it was asked, but for its limits, becomes that of an op that nobody waits for. */
void op_copy(struct limit_op *op, const struct limit_op *from);

struct limit_op *op_take(struct limiter *l); /* NULL: no memory */
void op_release(struct limit_op *op);
/* Cuts the op and whoever waits for it apart; both ends. */
struct decision_request *op_cut(struct limit_op *op);
void op_gather(struct limit_op *op);
/* Ends the wait for this op by on_failure. The asker's object may be gone afterwards; the op is not. */
void op_fail(struct limit_op *op, enum redis_failure cause);
/* The same, and the op is free. */
void op_give_up(struct limit_op *op, enum redis_failure cause);

/* adjust.c. */

/* What a settlement has to know of the charge. */
void op_write_charge(struct limit_op *op, redisReply *const *values, int64_t time_us);
/* Brings what was charged to these totals, by limit. The op is the limiter's from here on. */
void op_adjust(struct limit_op *op, const int64_t *totals);
/* Whoever would have been held has gone before: its places in queues are free. What else was charged stays. */
void op_leave_queue(struct limit_op *op, redisReply *const *values);

/* split.c: a request whose limits are kept in several slots of a cluster. */

/* Behind op_fill(): are its limits in several slots? */
bool op_find_slots(struct limit_op *op);
/* Makes its sub-operations and sends the first. `each`: one for each limit, also where they share a slot. False: no memory. */
MUST_CHECK bool split_begin(struct limit_op *op, bool each);
/* The sub-operation's keys are on their way to another node: in its place comes a sub-operation for each of its limits. False: no memory. */
MUST_CHECK bool split_apart(struct limit_op *sub_op);
/* A sub-operation was answered, or cannot be; it is taken over. */
void split_answer(struct limit_op *sub_op, redisReply *const *values, int64_t time_us);
void split_failed(struct limit_op *sub_op, enum redis_failure cause);
/* Where the sub-operation under way is; NULL: nowhere. */
struct batch *split_batch(const struct limit_op *op);
/* The whole was not decided in time; or nobody waits for it any more. Both end it. */
void split_timeout(struct limit_op *op);
void split_abandon(struct limit_op *op);
/* Of a charge: calls `settle` for each sub-operation that was charged, which takes it over, and ends the whole. */
void split_adjust(struct limit_op *op, void (*adjust)(struct limit_op *sub_op, const void *facts),
                  const void *facts);
/* Ends what is left of it; the op is to be used again. */
void split_drop(struct limit_op *op);

/* failure_log.c: limiters of one's own that fail, see lua/guard.lua. */

enum { SCRIPT_FAILED = -2 }; /* as retry_after; in place of the delay stands why */

/* Is this the answer of a limit whose own script has failed? */
bool failure_is(const struct op_limit *part, redisReply *const *values);
/* Counts them, and logs the first after a good while. */
void failures_note(const struct limit_op *op, redisReply *const *values, uint64_t now_us);
/* Counts the limits with a script of one's own whose request had no answer in time. */
void failures_note_late(const struct limit_op *op);
/* Brings the limits that failed to the front, and says how many they are. 0 as well where nothing hangs on them:
 * they reject nobody, or another limit rejects. */
unsigned failures_sort(struct limit_op *op, redisReply *const *values);

#endif
