/* limiter_state.h - the data of a limiter, for its own files only. They are layered; a file uses
 * those above it in this list:
 *
 *   operation.h                     one decision: its phases, and the queue to Redis
 *   verdict.h  failure_log.h        decisions from replies, or without Redis
 *   op_permits.h  op_leases.h       concurrency limits; leased units
 *   adjust.h                        corrections of charges
 *   split.h                         decisions over several slots of a cluster
 *   arguments.h  batch.h            calls of the driver
 *   charge.c  limiter.c             the interface (limiter.h) */
#ifndef WEIR_LIMIT_LIMITER_STATE_H
#define WEIR_LIMIT_LIMITER_STATE_H

#include <sys/queue.h>

#include "base/deadline.h"
#include "base/hash.h"
#include "limit/denials.h"
#include "limit/fallback.h"
#include "limit/grants.h"
#include "limit/leases.h"
#include "limit/limit_reply.h"
#include "limit/limiter_stats.h"
#include "limit/permits.h"
#include "redis/redis_client.h"

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
    OPS_UNDER_WAY_MAX = 512, /* about 4 ms of Redis; further ops wait here, not in its socket */
    TRY_AGAIN_US = 2000,
    ADJUSTMENT_TRIES_MAX = 100,
    SLOT_LISTS = 64,
    GROUPED_REQUESTS_MAX = 2, /* after so many tries a request is sent on its own */
};

struct op_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    unsigned place; /* in the limits of the rule */
    unsigned mode;  /* of the driver: MODE_* */
    bool shadow;    /* never rejects */
    bool free;      /* the request costs nothing and is not rejected; see rule->free */
    bool granted;
    int64_t charged; /* units granted by Redis */
    int64_t
        counts_us; /* µs after the charge until the limit is full again, without further charges */
    int64_t charged_at_us; /* Redis clock plus delay; identifies the charge when it is given back */
    struct permit *permit; /* of a concurrency limit, else NULL */
    struct slice key;      /* in op->keys */
    uint16_t slot;         /* of the key in a cluster; else 0 */
    unsigned key_index;    /* 1-based, in the batch's KEYS */
    struct slice repeat_key; /* key of the remembered reply, in op->keys; n == 0: none */
    unsigned repeat_index;
};

/* See operation.c. */
enum op_phase { OP_SPARE, OP_PREPARED, OP_GATHERED, OP_SENT, OP_ANSWERED, OP_SPLIT, OP_CHARGE };

struct limit_op {
    uint32_t magic;
    enum op_phase phase; /* set by op_enter() only */
    struct limiter *limiter;
    struct decision_request *decision_request; /* NULL: canceled, or no caller */
    struct batch *batch;                       /* SENT; else NULL */
    struct deadline deadline;
    TAILQ_ENTRY(limit_op) entry; /* in the gathered, later or spare list */
    uint16_t slot;               /* of its keys in a cluster; else 0 */
    bool alone; /* sent in a batch of its own: its keys are moving to another node */
    unsigned tries;
    unsigned times_repeated; /* requests without a unit left for it, see group_answer() */
    struct split *split;     /* SPLIT: the sub-operations; else NULL */
    struct limit_op
        *parent;         /* if this is a sub-operation; else NULL, also after the parent ended */
    struct lease *lease; /* of its key; NULL: none */
    uint64_t lease_key;  /* if lease->key differs, the slot was reused for another key */
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
    struct permit
        *permits[LIMITS_PER_RULE_MAX]; /* permits in use by this op; `limits` may shrink */
    unsigned permit_count;
    size_t keys_size;
    unsigned count;
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    char keys[];
};
TAILQ_HEAD(op_list, limit_op);

enum sub_op_state { SUB_OP_COMING, SUB_OP_SENT, SUB_OP_CHARGED, SUB_OP_REJECTED, SUB_OP_FAILED };

struct sub_op {
    struct limit_op *op; /* COMING, ASKED, CHARGED; else NULL */
    enum sub_op_state state;
    bool waits;                          /* CHARGED: a queue delays the request */
    unsigned first_result, result_count; /* CHARGED: its results in the decision */
};

struct split {
    unsigned count;
    bool each; /* one sub-operation per limit */
    struct sub_op sub_ops[LIMITS_PER_RULE_MAX];
};

/* One request to the driver: one op, or several ops that are charged alike. */
struct group {
    const struct limit_op *first; /* valid until one of the batch's ops has its reply */
    unsigned count;               /* limits per op */
    unsigned size, answered;      /* ops; ops that have their reply */
    unsigned first_reply;         /* index in the batch's replies */
    bool plain;                   /* sent in a plain run, see lua/driver.lua */
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
    unsigned key_count, last_key; /* 1-based index of the last key looked up */
    unsigned plain_keys;          /* keys of the plain runs so far */
    uint16_t slots[KEY_SLOTS];    /* by hash: 1-based key index, 0: free */
    uint8_t groups[BATCH_KEYS_MAX +
                   1]; /* by key index: 1-based index of the group that may grow, 0: none */
};

struct limiter {
    uint32_t magic;
    struct policy *policy;
    struct fallback *fallback;
    struct redis_client *redis; /* NULL: the policy needs none */
    struct deadlines deadlines;
    struct deadline_queue
        waiting; /* ops with a caller; all have the same timeout, so the queue is in order of time */
    struct event *resume; /* triggers a loop iteration when ops were gathered during a flush */
    size_t op_keys_size;  /* maximum size of all keys of one request */
    struct op_list gathered, spare_ops;
    struct op_list
        beyond; /* gathered, but held back by the connection's slow start: see redis_client_has_room() */
    struct op_list later;               /* `again` gathers these again */
    struct event *again;                /* timer; also ends the wait of gathered ops */
    bool in_slots;                      /* Redis is a cluster */
    unsigned gathered_count, under_way; /* ops gathered; batches without a reply */
    unsigned ops_under_way;             /* in these batches */
    uint64_t replied_us;                /* when the last batch was answered */
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

#endif
