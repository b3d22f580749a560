/* limiter.h - limiter_decide(): decides a request from its facts. One limiter per worker.
 *
 *   1 local decision: no limits, prohibited, unlimited, lease, remembered denial -> decided at once
 *   2 one EVALSHA for all limits of all requests of a loop iteration             -> decided by Redis
 *   3 Redis is down or does not reply in time: on_failure of each limit -> local | allow | deny
 *
 * Uses no sockets and no HTTP types, so that replay can use it as the proxy does.
 *
 * This directory owns the decision. In reading order:
 *
 *   limiter.h, decision.h         the interface; the result, and its response header fields
 *   key.h, arguments.h, batch.h   from limits to one call of lua/driver.lua
 *   operation.h, limit_reply.h    one decision on its way to Redis and back
 *   verdict.h, adjust.h           from replies to the verdict; what changes after the response
 *   leases.h, denials.h           decisions without Redis, while it works; resets.h ends them
 *   fallback.h, calendar.h        decisions while it does not
 *   permits.h                     concurrency limits; op_permits.c and op_leases.c tie both to ops
 *   split.h                       limits in several slots of a cluster
 *   grants.h                      other limits for a while */
#ifndef WEIR_LIMIT_LIMITER_H
#define WEIR_LIMIT_LIMITER_H

#include <event2/event.h>

#include "base/counter_table.h"
#include "base/metric.h"
#include "decision/decision.h"
#include "limit/fallback.h"
#include "policy/identity.h"
#include "redis/redis_client.h"

struct limiter;

/* Columns of by_limit after the verdicts: requests for which the limit's own script failed,
 * requests of such limits that timed out, and admitted requests that left less than limit->near. */
enum { SCRIPT_FAILED_COLUMN = VERDICT_COUNT, SCRIPT_LATE_COLUMN, NEAR_COLUMN, LIMIT_COLUMNS };
_Static_assert(LIMIT_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row has room for all");

/* clang-format off: a row per metric; see base/metric.h */
#define LIMITER_METRICS(ONE, EACH, TIMES)                                                          \
    EACH(redis_failures, REDIS_FAILURE_COUNT, 0, "cause", redis_failure_name,                      \
         "weir_redis_errors_total",                                                                \
         "Decisions made by on_failure because Redis did not decide, by cause.")                   \
    TIMES(redis_latency, "weir_redis_latency_seconds",                                             \
          "Time from the start of a decision to the reply of Redis.")                              \
    ONE(redis_calls, "counter", "weir_redis_calls_total",                                          \
        "Script calls sent to Redis; one call contains all decisions of an event loop iteration.") \
    ONE(redis_requests, "counter", "weir_redis_decisions_total",                                   \
        "Requests decided by a script call in Redis.")                                             \
    ONE(remembered_denials, "counter", "weir_remembered_denials_total",                            \
        "Rejections from a remembered denial, without a call to Redis.")
/* clang-format on */

/* Counters of one worker's limiters. Written by that worker only; any thread may read (relaxed). */
struct limiter_stats {
    LIMITER_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
    counter_t lease_used, lease_returned, lease_lost; /* units; one decision uses one unit */
    counter_t lease_taken; /* units taken: used + returned + lost + currently held */
    struct counter_table
        by_limit; /* by limit->row and verdict; the caller has reserved the policy's rows */
};

/* Creates a limiter. Takes a reference to `policy`. `fallback` is shared by all limiters of the
 * process. `script` is the composed script (compose_driver); `script` and `stats` must outlive
 * the limiter. NULL: no memory. */
struct limiter *limiter_new(struct event_base *base, struct policy *policy,
                            struct fallback *fallback, struct slice script,
                            struct limiter_stats *stats);
void limiter_free(struct limiter *limiter);
/* Call when another limiter replaces this one. Returns leased units to Redis; decisions in
 * progress complete normally. */
void limiter_retire(struct limiter *limiter);

/* limiter_redis_ready(): all of Redis is reachable. limiter_redis_away(): none of it is
 * reachable. In a cluster that is partly reachable, both return false. */
bool limiter_redis_ready(const struct limiter *limiter);
bool limiter_redis_away(const struct limiter *limiter);
enum redis_breaker limiter_breaker(const struct limiter *limiter);

/* The facts that a decision depends on. */
struct limit_facts {
    const struct rule *rule;
    const struct identity *identity;
    const struct client_limits
        *client_limits;          /* of a client outside the policy; NULL: the policy's */
    bool uncharged;              /* no limit of the rule applies */
    int64_t cost;                /* 0: the cost in the rule or in the limit */
    struct slice method, host;   /* for per: method and per: host; dedup uses the method as well */
    struct slice path;           /* for dedup: as received, without the query */
    const struct fields *fields; /* for per: header:NAME */
    /* 0: the clock of Redis. Otherwise the time of the request in Unix µs: a replay. The script
     * must have been composed for it (compose_driver_with_clock). Such requests must come in the
     * order of their times. They use no leases and no remembered denials. */
    int64_t now_us;
};

/* Units that a request holds of one concurrency limit. */
struct permit;
struct held {
    struct permit *permit;
    int64_t units;
    bool by_redis;
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

enum decided { DECIDED_NOW, DECIDED_LATER };

/* Returns true if an operator's grant is active for the client. A grant overrides the policy and
 * the database. */
bool limiter_has_grant(struct limiter *limiter, const struct identity *identity);

/* Decides a request. DECIDED_NOW: `decision` is set. DECIDED_LATER: decided() will be called
 * within redis.timeout, unless limiter_abandon() is called first. decided() is called at most
 * once, never from inside limiter_decide(), and may free the caller's object. The facts are not
 * used after the call returns. */
MUST_CHECK enum decided limiter_decide(struct limiter *limiter, const struct limit_facts *facts,
                                       struct decision_request *decision_request);

/* Cancels a decision request; decided() will not be called. Charges in Redis stay,
 * except that these are given back:
 * - the request's position in a queue, if Redis delayed the request;
 * - its units of concurrency limits. */
void limiter_abandon(struct decision_request *decision_request);

/* Call when the request has ended, for any reason: releases its units of concurrency limits. If
 * Redis is down, they are released later or expire with their lease. May be called when the
 * request holds none. */
void limiter_leave(struct decision_request *decision_request);

/* Returns true when nothing is left to give back, or when Redis is down. */
bool limiter_is_quiet(const struct limiter *limiter);

/* Refunds the charge of a request that did not happen, as far as the charge still counts. Best
 * effort: not confirmed, and lost if Redis is down. Ends the charge. */
void limiter_refund(struct decision_request *decision_request);

/* Adjusts the charge after the response. `cost` is the cost that the response states, or -1. A
 * higher cost is charged as debt, the difference to a lower one is given back. Best effort, as
 * limiter_refund(). Ends the charge. */
void limiter_adjust(struct decision_request *decision_request, unsigned status, int64_t cost);

/* Keeps the charge as it is. Ends it. */
void limiter_keep_charge(struct decision_request *decision_request);

/* Sends the gathered requests. Call once per loop iteration, after all callbacks. */
void limiter_flush(struct limiter *limiter);

#endif
