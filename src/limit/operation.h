/* operation.h - an op: one decision on its way to Redis and back. operation.c has its phases. */
#ifndef WEIR_LIMIT_OPERATION_H
#define WEIR_LIMIT_OPERATION_H

#include <assert.h>
#include <sys/queue.h>

#include "base/deadline.h"
#include "limit/decision_request.h"
#include "limit/denials.h"
#include "policy/rate_limit_call.h"

enum {
    OP_MAGIC = 0x4c4f5053,
    /* Modes of the driver, see lua/driver.lua */
    MODE_PLAIN = 0,
    MODE_BEST_EFFORT = 1,
    MODE_DEBT = 2,
    MODE_RENEW = 3,  /* concurrency limits only, see their script */
    MODE_EVERY = 7,  /* charged into debt if it rejects, which does not reject the request */
    MODE_SHADOW = 4, /* added to the mode: this limit's rejection does not reject the request */
    MODE_REPEAT = 8, /* multiplied by the key index of the remembered reply */
};

/* What Redis charged, for corrections; written by adjust.c and op_leases.c. */
struct op_charge {
    bool granted;
    bool delayed; /* it is a position in a queue */
    int64_t units;
    int64_t counts_us; /* µs after the charge until the limit is full again, without others */
    int64_t at_us;     /* Redis clock plus delay; identifies the charge when it is given back;
                          0: unknown */
};

struct op_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    unsigned place;          /* in the limits of the rule */
    unsigned mode;           /* of the driver: MODE_* */
    bool shadow;             /* never rejects */
    bool free;               /* the request costs nothing and is not rejected; see rule->free */
    bool estimated;          /* the cost is at most what the client can use; see op_usable_cost() */
    uint16_t slot;           /* of the key in a cluster; else 0 */
    struct slice key;        /* in op->keys */
    struct slice repeat_key; /* key of the remembered reply, in op->keys; n == 0: none */
    /* 1-based, in the batch's KEYS; 0: none. Set by arguments.c. */
    unsigned key_index, repeat_index;
    struct permit *permit; /* of a concurrency limit, else NULL */
    struct op_charge charge;
};

/* Returns the cost; of an estimated one, at most what a request of this share can use of
 * `capacity`. */
static inline int64_t op_usable_cost(const struct op_limit *part, int64_t capacity)
{
    int64_t most = capacity - share_reserve(capacity, part->numbers.share);

    if (!part->estimated || part->cost <= most)
        return part->cost;
    return most > part->limit->own_cost->reserve ? most : part->limit->own_cost->reserve;
}

enum { WIDE_LIMITS_MAX = DESCRIPTORS_MAX * LIMITS_PER_RULE_MAX };

/* The limits of a descriptor. */
struct wide_span {
    unsigned first, count;
    bool quota;   /* quota_mode */
    bool decided; /* not requested again; see wide_requests_again() */
};

/* The limits of a wide op; see wide.h. */
struct wide {
    unsigned count; /* of limits */
    unsigned span_count;
    bool quota_passes; /* a descriptor with quota_mode passes without a limit that is requested */
    bool charged;      /* op_limit.charge has charges of the driver */
    bool refused;      /* a limit whose own script failed has on_failure: deny */
    struct wide_span spans[DESCRIPTORS_MAX];
    bool decided[WIDE_LIMITS_MAX]; /* by limit: not requested again */
    struct limit_result *results;  /* the caller's, by limit; used while the op has its request */
    struct text keys;
    struct op_limit limits[];
};

/* See operation.c. */
enum op_phase { OP_SPARE, OP_PREPARED, OP_GATHERED, OP_SENT, OP_ANSWERED, OP_SPLIT, OP_CHARGE };

struct limit_op {
    uint32_t magic;
    enum op_phase phase; /* set by op_enter() only */
    bool is_adjustment;  /* charge correction or permit call: has no caller, is always sent */
    bool abandoned;      /* canceled by limiter_abandon() */
    struct limiter *limiter;
    struct decision_request *decision_request; /* NULL: canceled, or no caller */
    struct deadline deadline;
    uint64_t started_us;
    int64_t now_us;                  /* virtual time; 0: the clock of Redis */
    struct {                         /* queue.c, batch.c */
        TAILQ_ENTRY(limit_op) entry; /* in the gathered, later or spare list */
        struct batch *batch;         /* SENT; else NULL */
        unsigned times_repeated;     /* requests without a unit left for it, see group_answer() */
    } sending;
    struct {           /* sub_op.c, split.c, batch.c */
        uint16_t slot; /* of its keys */
        bool alone;    /* sent in a batch of its own: its keys are moving to another node */
        unsigned tries;
        struct split *split;     /* SPLIT: the sub-operations; else NULL */
        struct limit_op *parent; /* of a sub-operation; else NULL, also after the parent ended */
    } cluster;
    struct {                 /* op_leases.c */
        struct lease *lease; /* of its key; NULL: none */
        uint64_t key;        /* if lease->key differs, the slot was reused for another key */
    } leased;
    struct { /* op_permits.c */
        unsigned count;
        struct permit *list[LIMITS_PER_RULE_MAX]; /* in use by this op; `limits` may shrink */
    } permits;
    struct { /* verdict.c */
        struct denial_key key;
        bool key_known;
        bool barred; /* a limit's own script failed: the denial is not remembered */
    } denial;
    struct {          /* verdict.c */
        bool later;   /* its limits are counted later, with the request's final verdict */
        bool partial; /* `limits` are some of its limits; a verdict on the others follows */
        /* Limits whose own scripts failed, behind `count`: decided without Redis. Their results are
         * the last ones in the results of the decision. */
        unsigned aside_count, aside_results;
    } counting;
    struct wide *wide; /* its limits, instead of `limits`; NULL: none; see wide.h */
    size_t keys_size;
    unsigned count; /* 0 with `wide` */
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    char keys[];
};
TAILQ_HEAD(op_list, limit_op);

/* The ops that are not in use. */
struct op_pool {
    struct op_list spare;
    unsigned spare_count;
    size_t keys_size;         /* maximum size of all keys of one request */
    struct limit_op *reserve; /* for decisions without Redis, or when no op can be allocated */
};

/* Creates the pool. NULL: out of memory. */
struct op_pool *op_pool_new(struct limiter *l, size_t keys_size);
void op_pool_free(struct op_pool *pool);

/* Takes a spare op or a new one, which is then PREPARED. NULL: no memory. */
struct limit_op *op_take(struct limiter *l);
/* Makes the op SPARE, or frees it: drops its permits and sub-operations. It has no request. */
void op_release(struct limit_op *op);

/* By phase: the phases that may follow, a bit for each. */
extern const uint8_t op_next_phases[OP_CHARGE + 1];

/* Changes the phase. Asserts that the transition is legal. */
static inline void op_enter(struct limit_op *op, enum op_phase phase)
{
    assert(op_next_phases[op->phase] & 1u << phase);
    op->phase = phase;
    if (phase != OP_SENT)
        op->sending.batch = NULL;
}

/* Resets what belongs to one request. Whatever prepares an op begins with it. */
void op_clear(struct limit_op *op);
/* Copies an op's request, without its limits and its caller. */
void op_copy(struct limit_op *op, const struct limit_op *from);
/* Separates the op from its decision request, and stops its timer. Returns the request, or NULL. */
struct decision_request *op_cut(struct limit_op *op);
/* Releases the op's permits. */
void op_drop_permits(struct limit_op *op);

/* Returns true if the op requests one unit of one limit and can be combined with others. */
bool op_is_unit(const struct limit_op *op);
/* Changes the mode of a limit that is the only one of its op. */
static inline void op_limit_alone(struct op_limit *part)
{
    if (part->mode != MODE_EVERY)
        part->mode &= ~(unsigned)MODE_SHADOW;
}

/* Returns true if the limit's rejection rejects the request, as in the driver. */
static inline bool op_limit_may_reject(const struct op_limit *part)
{
    return part->cost >= 0 && !(part->mode & MODE_SHADOW);
}

/* Returns true if each limit is charged, whatever the others decide (charge: every). */
static inline bool op_charges_each(const struct limit_op *op)
{
    return op->count > 0 && op->limits[0].mode == MODE_EVERY;
}

/* Returns the limits of an op, wide or not. */
static inline const struct op_limit *op_limits(const struct limit_op *op)
{
    return op->wide ? op->wide->limits : op->limits;
}

/* Returns the number of keys that the op uses. */
unsigned op_key_count(const struct limit_op *op);

#endif
