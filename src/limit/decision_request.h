/* decision_request.h - what a caller of the limiter passes and keeps: the facts of a request, and
 * its decision with the units that it holds. */
#ifndef WEIR_LIMIT_DECISION_REQUEST_H
#define WEIR_LIMIT_DECISION_REQUEST_H

#include "content/json_values.h"
#include "limit/decision.h"
#include "policy/key_values.h"

/* The facts that a decision depends on. */
struct limit_facts {
    const struct rule *rule;
    const struct identity *identity;
    const struct client_limits
        *client_limits; /* of a client outside the policy; NULL: the policy's */
    bool uncharged;     /* no limit of the rule applies */
    int64_t cost;       /* 0: the cost in the rule or in the limit */
    /* By position in rule->limits: costs of limits with a cost of their own. NULL: the reserves. */
    const int64_t *own_costs;
    uint32_t raised; /* bit set of places: the cost is that of rule_hidden_usage_costs() */
    struct slice method, host;   /* for per: method and per: host; dedup uses the method as well */
    struct slice path;           /* for dedup: as received, without the query */
    const struct fields *fields; /* for per: header:NAME */
    const struct json_values *json;  /* for per: json:PATH; NULL: none */
    const struct key_values *values; /* for per: jwt:CLAIM and the like; NULL: none */
};

/* Units that a request holds of one concurrency limit. */
struct permit;
struct held {
    struct permit *permit;
    int64_t units;
};

/* A decision request. The caller embeds it in its own object. */
struct limit_op;
struct decision_request {
    struct decision decision;                                   /* the result */
    void (*decided)(struct decision_request *decision_request); /* see limiter_decide() */
    struct limit_op *op; /* limiter's; NULL: no decision in progress */
    /* Set before limiter_decide(). If true, `charge` records what Redis charged an admitted
     * request, until limiter_refund(), limiter_adjust() or limiter_keep_charge(). These three
     * may also be called when there is no charge. */
    bool wants_charge;
    struct limit_op *charge; /* limiter's, or NULL */
    /* Units held of concurrency limits, until limiter_leave(). */
    unsigned held_count;
    struct held held[LIMITS_PER_RULE_MAX];
};

#endif
