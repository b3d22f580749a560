/* limiter_internal.h - shared by the limiter's own files; nothing else includes it: limiter.c
 * (ops), batch.c, arguments.c, op_leases.c, adjust.c, split.c, op_permits.c, failure_log.c,
 * verdict.c. */
#ifndef WEIR_LIMIT_LIMITER_INTERNAL_H
#define WEIR_LIMIT_LIMITER_INTERNAL_H

#include <sys/queue.h>

#include "base/deadline.h"
#include "base/hash.h"
#include "limit/denials.h"
#include "limit/grants.h"
#include "limit/leases.h"
#include "limit/limit_reply.h"
#include "limit/limiter.h"
#include "limit/permits.h"

enum {
    LIMITER_MAGIC = 0x4c4d5452,
    OP_MAGIC = 0x4c4f5053,
    BATCH_REQUESTS_MAX = 64, /* per EVALSHA: it blocks Redis for about 0.2 ms */
    BATCH_KEYS_MAX = BATCH_REQUESTS_MAX * LIMITS_PER_RULE_MAX,
    KEY_SLOTS = 2 * BATCH_KEYS_MAX,
    ARGUMENTS_PER_LIMIT = 7,
    ARGUMENTS_PER_CLOCK = 2,
    MODE_PLAIN = 0,
    MODE_BEST_EFFORT = 1,
    MODE_DEBT = 2,
    MODE_RENEW = 3,  /* concurrency limits only, see their script */
    MODE_REPEAT = 8, /* multiplied by the key index of the remembered reply */
    MODE_SHADOW = 4, /* added to the mode: this limit's rejection does not reject the request */
    NUMBER_SIZE = 20,
    SPARE_OPS_MAX = 4096,
    GATHER_US = 500, /* maximum time to wait for more decisions to share a call, see may_gather() */
    GATHER_MAX = 32, /* maximum number of decisions that wait */
    GATHER_WORTH = 4,
    TRY_AGAIN_US = 2000,
    ADJUSTMENT_TRIES_MAX = 100,
    SLOT_LISTS = 64,
    GROUPED_REQUESTS_MAX = 2, /* after so many tries a request is sent on its own */
};

struct op_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    int64_t full_cost; /* the cost to charge after the response, if that is when it is charged */
    unsigned mode;     /* of the driver: MODE_* */
    bool shadow;       /* never rejects */
    bool granted;
    int64_t charged;         /* units granted by Redis */
    int64_t counts_us;       /* µs after the charge until the limit is full again, without further charges */
    int64_t charged_at_us;   /* Redis clock plus delay; identifies the charge when it is given back */
    struct permit *permit;   /* of a concurrency limit, else NULL */
    struct slice key;        /* in op->keys */
    uint16_t slot;           /* of the key in a cluster; else 0 */
    unsigned key_index;      /* 1-based, in the batch's KEYS */
    struct slice repeat_key; /* key of the remembered reply, in op->keys; n == 0: none */
    unsigned repeat_index;
};

struct limit_op {
    uint32_t magic;
    struct limiter *limiter;
    struct decision_request *decision_request; /* NULL: canceled, or no caller */
    struct batch *batch;                       /* NULL: not sent yet */
    struct deadline deadline;
    TAILQ_ENTRY(limit_op) entry; /* in the gathered, later or spare list */
    uint16_t slot;               /* of its keys in a cluster; else 0 */
    bool alone;                  /* sent in a batch of its own: its keys are moving to another node */
    unsigned tries;
    unsigned times_asked;    /* requests without a unit left for it, see group_answer() */
    struct split *split;     /* the sub-operations if its limits are in several slots (split.c); else NULL */
    struct limit_op *parent; /* if this is a sub-operation; else NULL, also after the parent ended */
    struct lease *lease;     /* of its key; NULL: none */
    uint64_t lease_key;      /* if lease->key differs, the slot was reused for another key */
    uint64_t started_us;
    int64_t now_us; /* as in struct limit_facts */
    struct denial_key denial_key;
    bool denial_key_known;
    bool is_adjustment; /* charge correction or permit call: has no caller, is always sent */
    bool abandoned;     /* canceled by limiter_abandon() */
    bool part;          /* a limit's own script failed: do not remember a denial */
    bool counts_later;  /* its limits are counted later, with the request's final verdict */
    /* Limits whose own scripts failed and that allowed without Redis; counted with the others. */
    const struct limit *aside[LIMITS_PER_RULE_MAX];
    unsigned aside_count;
    struct permit *permits[LIMITS_PER_RULE_MAX]; /* permits in use by this op; `limits` may shrink */
    unsigned permit_count;
    size_t keys_size;
    unsigned count;
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    char keys[];
};
TAILQ_HEAD(op_list, limit_op);

/* One request to the driver: one op, or several ops that are charged alike. */
struct group {
    const struct limit_op *first; /* valid until one of the batch's ops has its reply */
    unsigned count;               /* limits per op */
    unsigned size, answered;      /* ops; ops that have their reply */
    unsigned first_reply;         /* index in the batch's replies */
    int64_t extra;                /* units requested beyond those that the ops need */
    struct lease *lease;          /* the lease that gets the extra units, or NULL */
};

/* One EVALSHA. */
struct batch {
    struct redis_call call;
    struct limiter *limiter;
    SLIST_ENTRY(batch) spare;
    bool timed_out; /* the connection was notified of a timeout */
    uint64_t sent_us;
    unsigned count;
    struct limit_op *ops[BATCH_REQUESTS_MAX];
    uint8_t group_of[BATCH_REQUESTS_MAX];
    unsigned group_count;
    struct group groups[BATCH_REQUESTS_MAX];
};

/* The arguments of the batch in preparation; reused. */
struct arguments {
    int count;
    const char **bytes;
    size_t *sizes;
    struct text numbers; /* decimal digits that the arguments point into */
    struct hash_key hash;
    struct slice keys[BATCH_KEYS_MAX];
    unsigned key_count, last_key;       /* 1-based index of the last key looked up */
    uint16_t slots[KEY_SLOTS];          /* by hash: 1-based key index, 0: free */
    uint8_t groups[BATCH_KEYS_MAX + 1]; /* by key index: 1-based index of the group that may grow, 0: none */
};

struct limiter {
    uint32_t magic;
    struct policy *policy;
    struct fallback *fallback;
    struct redis_client *redis; /* NULL: the policy needs none */
    struct deadlines deadlines;
    struct deadline_queue
        waiting;          /* ops with a caller; all have the same timeout, so the queue is in order of time */
    struct event *resume; /* triggers a loop iteration when ops were gathered during a flush */
    size_t op_keys_size;  /* maximum size of all keys of one request */
    struct op_list gathered, spare_ops;
    struct op_list
        beyond; /* gathered, but held back by the connection's slow start: see redis_client_has_room() */
    struct op_list later;               /* `again` gathers these again */
    struct event *again;                /* timer; also ends the wait of gathered ops */
    bool in_slots;                      /* Redis is a cluster */
    unsigned gathered_count, under_way; /* ops gathered; batches without a reply */
    unsigned gathered_before;           /* gathered before this loop iteration; see may_gather() */
    uint64_t gathered_since_us;
    uint64_t gather_us, sent_us; /* how long ops may wait; when the last call was sent */
    unsigned density;            /* see note_density() */
    uint64_t round_trip_us;      /* of a batch, smoothed */
    unsigned spare_op_count;
    SLIST_HEAD(batch_list, batch) spare_batches;
    struct denials *denials;
    struct permits *permits; /* NULL: the policy has no concurrency limits */
    struct leases *leases;   /* NULL: the policy allows none */
    struct deadline_queue lease_ends;
    size_t key_start; /* offset in a limit's key of the part after PREFIX and ":" */
    bool retired;     /* replaced by another limiter: leases are given back */
    struct grants_hold grants;
    struct limit_op *reserve; /* for decisions without Redis, or when no op can be allocated */
    struct arguments arguments;
    struct limit_reply replies[BATCH_KEYS_MAX]; /* of the batch that is being answered */
    struct limiter_stats *stats;                /* of the worker, over all its limiters */
};

static inline unsigned op_key_count(const struct limit_op *op)
{
    unsigned count = op->count;
    for (unsigned i = 0; i < op->count; i++)
        count += op->limits[i].repeat_key.n > 0;
    return count;
}

/* arguments.c */

/* Ends the process if out of memory. */
void arguments_init(struct arguments *a);
void arguments_free(struct arguments *a);
/* Returns true if the op requests one unit of one limit and can be combined with others. */
bool op_is_unit(const struct limit_op *op);
/* Forms the batch's groups and builds the call's arguments. */
void arguments_make(struct arguments *a, struct batch *batch);

/* Returns the reply that the group's next op would have received on its own, in order. `replies`:
 * the group's. `own`: storage for it. NULL: the op is rejected, and its wait is not known. */
const struct limit_reply *group_answer(struct group *group, const struct limit_reply *replies,
                                       struct limit_reply *own);

/* verdict.c. Each sets the whole decision *d and counts it by limit, unless op->counts_later. */

/* `replies`: of the op's limits. */
void verdict_from_answer(struct limiter *l, const struct limit_op *op, const struct limit_reply *replies,
                         struct decision *d);
/* Each limit follows its own on_failure; `cause` is counted. */
void verdict_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                           struct decision *d);
/* Counts the limits of a decision that was not counted when it was made (op->counts_later). */
void verdict_count(struct limiter *l, const struct decision *d);
/* For an op that continues with its other limits: records the limits that allowed, to be counted
 * with those. */
void verdict_set_aside(struct limit_op *op, const struct decision *d);
/* Prohibited and unlimited clients. */
void verdict_by_client_limits(struct limiter *l, const struct limit_facts *facts, bool prohibited,
                              struct decision *d);
/* A rule without limits. */
void verdict_of_no_limits(struct decision *d);
/* Out of memory for a permit: fails closed. */
void verdict_of_no_memory(struct decision *d);
/* Returns false if no valid denial is remembered. */
bool verdict_from_denial(struct limiter *l, struct limit_op *op, uint64_t now_us, struct decision *d);
/* Call after a unit of the lease was spent. */
void verdict_from_lease(struct limiter *l, const struct limit_op *op, const struct lease *lease,
                        uint64_t now_us, struct decision *d);
/* Remembers the decision if it is a denial. */
void verdict_remember(struct limiter *l, struct limit_op *op, const struct decision *d);

/* op_permits.c */

/* Call after op_fill(). False: no memory; op_release() drops the permits already taken. */
MUST_CHECK bool op_use_permits(struct limit_op *op);
void op_drop_permits(struct limit_op *op);
/* Call when the op was sent; when it has a reply; when its outcome is unknown. */
void op_permits_sent(struct limit_op *op);
void op_permits_answered(struct limit_op *op);
void op_permits_failed(struct limit_op *op);
/* Gives the request the units that Redis charged. decision_request NULL: they are given back. */
void op_permits_charged(struct limit_op *op, struct decision_request *decision_request,
                        const struct limit_reply *replies);
/* The same for units charged without Redis. */
void op_permits_locally(struct limit_op *op, struct decision_request *decision_request);
/* Fills a free op with the next pending permit call. False: none is pending; the op is
 * unchanged. */
MUST_CHECK bool op_fill_permit_call(struct limit_op *op);
/* Returns true if the op was canceled and a queue charged it with a delay. */
bool op_would_have_waited(const struct limit_op *op, const struct limit_reply *replies);

/* op_leases.c */

void limiter_leases_init(struct limiter *l);
void limiter_leases_free(struct limiter *l); /* call before the spare ops are freed */
/* Call after op_fill(). Looks up the lease of the op's key, if it may have one. */
void op_meet_lease(struct limit_op *op, const struct limit_facts *facts);
/* Decides from the lease. The op becomes the charge or is released. False: the lease is empty. */
MUST_CHECK bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request);
/* Returns the number of units to request beyond the op's own. *asked: the lease for them, or
 * NULL. */
int64_t op_ask_lease(const struct limit_op *op, struct lease **asked);
/* Call for a group with a lease, before its ops get their replies. `replies` NULL: no reply. */
void lease_answered(struct group *group, const struct limit_reply *replies, int64_t time_us,
                    uint64_t asked_us);
void op_note_remaining(const struct limit_op *op, const struct limit_reply *replies, uint64_t asked_us);
/* Call when the op's unit is refunded. */
void op_unspend_lease(struct limit_op *op);

/* limiter.c: for batch.c, split.c and op_leases.c */

/* Copies an op's request, without its limits and its caller. */
void op_copy(struct limit_op *op, const struct limit_op *from);

struct limit_op *op_take(struct limiter *l); /* NULL: no memory */
void op_release(struct limit_op *op);
/* Separates the op from its decision request, and stops its timer. Returns the request, or NULL. */
struct decision_request *op_cut(struct limit_op *op);
void op_gather(struct limit_op *op);
/* Decides the op by on_failure. The caller's object may be freed meanwhile; the op is not. */
void op_fail(struct limit_op *op, enum redis_failure cause);
/* The same, and releases the op. */
void op_give_up(struct limit_op *op, enum redis_failure cause);

/* adjust.c */

/* Records Redis' charges in the op, for a later adjustment. */
void op_write_charge(struct limit_op *op, const struct limit_reply *replies, int64_t time_us);
/* Brings the charges to `totals` (one per limit). Takes ownership of the op. */
void op_adjust(struct limit_op *op, const int64_t *totals);
/* For a canceled request: frees its positions in queues. Other charges stay. Takes ownership of
 * the op. */
void op_leave_queue(struct limit_op *op, const struct limit_reply *replies);

/* split.c: a request whose limits are in several slots of a cluster */

/* Call after op_fill(). Finds each limit's slot; true: there are several. */
bool op_find_slots(struct limit_op *op);
/* Makes the sub-operations and sends the first. `each`: one per limit, even in the same slot.
 * False: no memory. */
MUST_CHECK bool split_begin(struct limit_op *op, bool each);
/* The sub-operation's keys are moving to another node: replaces it by one sub-operation per
 * limit. False: no memory. */
MUST_CHECK bool split_apart(struct limit_op *sub_op);
/* Handles a sub-operation's reply or failure; takes ownership of it. */
void split_answer(struct limit_op *sub_op, const struct limit_reply *replies, int64_t time_us);
void split_failed(struct limit_op *sub_op, enum redis_failure cause);
/* The batch of the sub-operation in progress; NULL: none. */
struct batch *split_batch(const struct limit_op *op);
/* The parent timed out, or was canceled. Both end it. */
void split_timeout(struct limit_op *op);
void split_abandon(struct limit_op *op);
/* Calls `adjust` for each charged sub-operation, which takes ownership of it; then releases the
 * parent. */
void split_adjust(struct limit_op *op, void (*adjust)(struct limit_op *sub_op, const void *facts),
                  const void *facts);
/* Frees the remaining sub-operations; the op can be reused. */
void split_drop(struct limit_op *op);

/* failure_log.c: the operator's own limiter scripts that fail, see lua/guard.lua */

/* Counts failures. Logs the first one, and the end of a failure period. */
void failures_note(const struct limit_op *op, const struct limit_reply *replies, uint64_t now_us);
/* Counts own-script limits whose request timed out. */
void failures_note_late(const struct limit_op *op);
/* Moves failed limits to the front and returns their number. Returns 0 if the failures do not
 * matter: the failed limits are shadow limits, or another limit rejects. */
unsigned failures_sort(struct limit_op *op, const struct limit_reply *replies);

#endif
