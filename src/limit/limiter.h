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
 *   limiter.h, decision_request.h the interface; the facts and the state of a request
 *   key.h, arguments.h, batch.h   from limits to one call of lua/driver.lua
 *   operation.h, limit_reply.h    one decision on its way to Redis and back
 *   verdict.h, adjust.h           from replies to the verdict; what changes after the response
 *   leases.h, denials.h           decisions without Redis, while it works; resets.h ends them
 *   fallback.h                    decisions while it does not
 *   permits.h                     concurrency limits; op_permits.c and op_leases.c tie both to ops
 *   split.h                       limits in several slots of a cluster
 *   grants.h                      other limits for a while
 *   limiter_parts.h, _stats.h     the parts of a limiter; its counters */
#ifndef WEIR_LIMIT_LIMITER_H
#define WEIR_LIMIT_LIMITER_H

#include <event2/event.h>

#include "limit/decision_request.h"
#include "limit/fallback.h"
#include "limit/limiter_stats.h"
#include "redis/redis_client.h"

struct limiter;

/* Creates a limiter. Takes a reference to `policy`. `fallback` is shared by all limiters of the
 * process. `script` is the composed script (compose_driver); `script` and `stats` must outlive
 * the limiter. NULL: no memory. */
struct limiter *limiter_new(struct event_base *base, struct policy *policy,
                            struct fallback *fallback, struct slice script,
                            struct limiter_stats *stats);
void limiter_free(struct limiter *limiter);

/* One limit of a decision, as Redis would be asked for it. */
struct planned_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    bool shadow, free, best_effort; /* shadow, free: it does not reject the request */
    struct slice key, repeat_key;   /* valid during the call; repeat_key n == 0: none */
};

/* Gets what limiter_decide() would ask Redis, which then returns DECIDED_LATER. `plan` decides, and
 * nothing calls decided(). */
struct limiter_observer {
    void (*plan)(struct limiter_observer *observer, const struct planned_limit *limits,
                 unsigned count);
};

/* Creates a limiter without Redis, for dry runs: it charges nothing. NULL: no memory. */
struct limiter *limiter_new_observed(struct event_base *base, struct policy *policy,
                                     struct limiter_observer *observer,
                                     struct limiter_stats *stats);

/* Returns the client's limits, in this order: its address is on the allow list, its grant, the
 * database, the policy. NULL: the limits as written. `granted` is room for those of a grant. */
const struct client_limits *limiter_client_limits(struct limiter *limiter,
                                                  const struct limit_facts *facts,
                                                  struct client_limits *granted);

/* Call when another limiter replaces this one. Returns leased units to Redis; decisions in
 * progress complete normally. */
void limiter_retire(struct limiter *limiter);

/* limiter_redis_ready(): all of Redis is reachable. limiter_redis_away(): none of it is
 * reachable. In a cluster that is partly reachable, both return false. */
bool limiter_redis_ready(const struct limiter *limiter);
bool limiter_redis_away(const struct limiter *limiter);
enum redis_breaker limiter_breaker(const struct limiter *limiter);

/* Virtual time: decisions, adjustments and releases that follow happen at this time in Unix µs
 * instead of that of the clock of Redis. The script must have been composed for it
 * (compose_driver_with_clock). Times must not fall. No leases and no remembered denials are used
 * then. Permits of concurrency limits are renewed by the real clock; their leases must be long. */
void limiter_set_time(struct limiter *limiter, int64_t now_us);

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
void limiter_leave(struct limiter *limiter, struct decision_request *decision_request);

/* Returns true when nothing is left to give back, or when Redis is down. */
bool limiter_is_quiet(const struct limiter *limiter);

/* Refunds the charge of a request that did not happen, as far as the charge still counts. Best
 * effort: not confirmed, and lost if Redis is down. Ends the charge. `units` as in struct
 * charge_outcome; those of concurrency limits are released when the request ends. */
void limiter_refund(struct decision_request *decision_request, int64_t *units);

/* The outcome of a request for its charges. */
struct charge_outcome {
    unsigned status; /* 0: the server sent no response. Limits whose `count` does not list it refund
                      * their charge. */
    int64_t cost;    /* stated by the response; -1: none */
    /* By position in rule->limits, for limits with a cost of their own, -1: as charged. NULL: all
     * as charged. */
    const int64_t *own_costs;
    /* limiter_adjust() sets the units that stay charged, by position in rule->limits. NULL: it does
     * not. */
    int64_t *units;
};

/* Adjusts the charge after the response. A higher cost is charged as debt, the difference to a
 * lower one is given back. Best effort, as limiter_refund(). Ends the charge. */
void limiter_adjust(struct decision_request *decision_request,
                    const struct charge_outcome *outcome);

/* Writes what limiter_adjust() brings the charge to, by position in rule->limits; 0 where nothing
 * is charged. Only while there is a charge. */
void limiter_final_charges(const struct decision_request *decision_request,
                           const struct charge_outcome *outcome, int64_t *units);

/* Keeps the charge as it is. Ends it. */
void limiter_keep_charge(struct decision_request *decision_request);

/* Sends the gathered requests. Call once per loop iteration, after all callbacks. */
void limiter_flush(struct limiter *limiter);
/* Call when the loop iteration ends: the next one begins at once if anything is to be sent that
 * came after limiter_flush(). */
void limiter_wake(struct limiter *limiter);

#endif
