/* call_decision.h - limiter_decide_call(): decides a call of Envoy's rate limit service, which is
 * about several descriptors.
 *
 *   descriptors --match--> limits of each --> one op --> one EVALSHA --> a result per descriptor
 *
 * All descriptors are charged, or none if one rejects. There are three ways to Redis:
 * - one op, as for a request of a rule: the usual call, of at most 8 limits and without quota_mode
 * - one wide op (wide.h): more limits, or quota_mode
 * - an op per descriptor: charge: every, where descriptors do not depend on each other; and wide
 *   calls in a cluster, whose keys are in several slots. There, charges are given back if the call
 *   is over its limit, and refunds are made when all charges were: those of a rejected call have
 *   no numbers. */
#ifndef WEIR_LIMIT_CALL_DECISION_H
#define WEIR_LIMIT_CALL_DECISION_H

#include "limit/limiter.h"
#include "policy/descriptor_name.h"

/* The result of one descriptor, in the order of the call. Of several limits, it has the numbers of
 * the one that rejects, else of the one with the least left. */
struct descriptor_result {
    bool over;         /* over its limit */
    bool has_limit;    /* false: no limit applied, and the members below are empty or -1 */
    struct slice name; /* rate_limit.name, or the name of the limit; a stated limit has none */
    uint32_t per_unit;
    enum rate_limit_unit unit; /* UNIT_UNKNOWN: the period is none of the units */
    uint32_t remaining;        /* UINT32_MAX: its entry is unlimited, or an operator's grant is */
    int64_t reset_us; /* if over: until it is admitted, -1: never; else until more is available */
    const struct descriptor_name *client; /* NULL: it has no limits */
};

struct call_decision {
    /* ALLOWED, LIMITED, FAILED_OPEN or FAILED_CLOSED; the option `shadow` is not applied. */
    enum verdict verdict;
    const struct rate_limit_domain *domain; /* NULL: unknown */
    unsigned count;                         /* of the call's descriptors */
    const struct descriptor_result *results;
    /* For header families and rejections: the limits that reject, and those with the least left. */
    struct decision shown;
    const struct metadata *const *metadata; /* of the descriptors that are not over their limit */
    unsigned metadata_count;
};

enum { CALL_FEW = 4 };

/* What limits a descriptor. */
enum call_item_kind {
    ITEM_FREE,       /* nothing */
    ITEM_UNLIMITED,  /* its entry, or an operator's grant, is unlimited */
    ITEM_PROHIBITED, /* an operator's grant is 0 */
    ITEM_COUNTED
};

/* A descriptor while it is decided. */
struct call_item {
    struct descriptor_match match;
    enum call_item_kind kind;
    bool quota, over;
    bool has_op;                      /* `op` is valid */
    int64_t cost;                     /* negative: a refund; 0: asks without charging */
    int64_t number;                   /* replaces the limits' numbers; -1: none */
    unsigned first, count;            /* of its limits, among those of the call */
    unsigned op;                      /* its op */
    const struct limit_result *shown; /* NULL: none */
    struct limit_result prohibited;   /* ITEM_PROHIBITED */
    struct descriptor_name name;
};

/* The ops that a call makes. */
enum call_stage {
    STAGE_ALL,
    STAGE_CHARGES, /* with gives_back, before STAGE_REFUNDS */
    STAGE_REFUNDS,
};

/* An op of the call. */
struct call_op {
    struct decision_request request;
    struct call_request *call;
};

/* A call. The caller embeds it in its own object. */
struct call_request {
    struct call_decision decision; /* the result; valid until call_request_end() */
    void (*decided)(struct call_request *call);

    /* Private. */
    struct limiter *limiter;
    struct call_item *items;
    struct descriptor_result *results;
    const struct metadata **metadata;
    struct call_op *ops;
    unsigned op_count, pending;
    unsigned limit_count; /* of all descriptors */
    bool charges_each;    /* charge: every */
    bool gives_back;      /* an op per descriptor, but the call is charged as one */
    enum call_stage stage;
    uint64_t started_us;               /* with gives_back: when its first ops were made */
    bool has_quota;                    /* a descriptor has quota_mode */
    struct limit_result *wide_results; /* of a wide op; NULL: none */
    void *more;                        /* memory for more than CALL_FEW descriptors; NULL: none */
    struct {
        struct call_item items[CALL_FEW];
        struct descriptor_result results[CALL_FEW];
        const struct metadata *metadata[CALL_FEW];
        struct call_op ops[CALL_FEW];
    } few;
};

/* Prepares a call. Cheap. */
void call_request_init(struct call_request *call, void (*decided)(struct call_request *call));

/* Decides a call. DECIDED_NOW: `decision` is set. DECIDED_LATER: decided() will be called within
 * redis.timeout, or in a cluster a quarter of it later if refunds follow charges, unless
 * call_request_end() is called first; it is called at most once, and never from inside
 * limiter_decide_call(). The message is not used after the call returns. */
MUST_CHECK enum decided limiter_decide_call(struct limiter *limiter,
                                            const struct rate_limit_call *message,
                                            struct call_request *call);

/* Ends a call, whether it was decided, is under way or was only prepared, and frees what its
 * decision refers to. Charges in Redis stay. */
void call_request_end(struct call_request *call);

/* ---- call_result.c, for call.c: from the decisions of a call's ops to its result ------------- */

/* Returns true if the decisions of the call's ops so far admit it. */
bool call_admits(struct call_request *call);
/* Sets the call's decision from those of its ops. */
void call_conclude(struct call_request *call);
/* No memory: fails closed, without results. */
void call_refuse(struct call_request *call);

#endif
