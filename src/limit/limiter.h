/* limiter.h - decide(): from facts about a request to a decision. One limiter per worker.
 *
 *   1 local knowledge: no limits, prohibited, unlimited, a denial that still holds  -> decided at once
 *   2 one EVALSHA for all limits of all requests of a loop iteration                     -> decided by Redis
 *   3 no answer in time, or no Redis: on_failure of each limit                      -> local | allow | deny
 *
 * No sockets and no HTTP types: replay uses it as the proxy does. */
#ifndef WEIR_LIMIT_LIMITER_H
#define WEIR_LIMIT_LIMITER_H

#include <event2/event.h>

#include "base/counter_table.h"
#include "limit/decision.h"
#include "limit/fallback.h"
#include "policy/identity.h"
#include "redis/redis_client.h"

struct limiter;

/* The columns of by_limit behind the verdicts: requests that a limit's own script failed, and those that had no
 * answer in time. */
enum { SCRIPT_FAILED_COLUMN = VERDICT_COUNT, SCRIPT_LATE_COLUMN, LIMIT_COLUMNS };
_Static_assert(LIMIT_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row has room for all");

/* What one worker's limiter counts; written by that worker alone, read by anyone (relaxed). */
struct limiter_stats {
    struct counter_table by_limit; /* limit->row, verdict; the caller has made room for the policy's rows */
    counter_t redis_failures[REDIS_FAILURE_COUNT];
    counter_t redis_calls, redis_requests;            /* EVALSHAs sent, decisions in them */
    counter_t remembered_denials;                     /* decisions that needed no Redis */
    counter_t lease_used, lease_returned, lease_lost; /* units; a decision is one */
    counter_t lease_taken;                            /* those, and what is held now */
    struct histogram redis_latency;                   /* µs from a decision's start to Redis' answer */
};

/* `policy` is held. `fallback` is shared by all limiters of the process. `script` is what compose made; it
 * and `stats` outlive the limiter. */
struct limiter *limiter_new(struct event_base *base, struct policy *policy, struct fallback *fallback,
                            struct slice script, struct limiter_stats *stats);
void limiter_free(struct limiter *limiter);
/* Another limiter takes its place: units that are held for busy keys are given back; what is under way ends as ever. */
void limiter_retire(struct limiter *limiter);

/* All of Redis can be asked; nothing of it can (of a cluster some of it may). */
bool limiter_redis_ready(const struct limiter *limiter);
bool limiter_redis_away(const struct limiter *limiter);
enum redis_breaker limiter_breaker(const struct limiter *limiter);

/* The facts on which limits are counted. */
struct limit_facts {
    const struct rule *rule;
    const struct identity *identity;
    const struct client_limits *client_limits; /* of a client that is not in the policy; NULL: the policy's */
    int64_t cost;                              /* 0: what the rule and the limits say */
    struct slice method, host;                 /* for per: method, host; the method for dedup as well */
    struct slice path;                         /* for dedup: as it came, without the query */
    const struct fields *fields;               /* for per: header:NAME */
};

/* What a request holds of one concurrency limit. */
struct permit;
struct held {
    struct permit *permit;
    int64_t units;
    bool by_redis;
};

/* A decision under way. Part of the caller's exchange; opaque use. */
struct limit_op;
struct decision_request {
    struct decision decision; /* the result */
    void (*decided)(
        struct decision_request
            *decision_request); /* runs once, never from inside limiter_decide; may end the caller's object */
    struct limit_op *op;        /* the limiter's; NULL when nothing is under way */
    /* Set before limiter_decide: keep what an admitted request was charged in Redis as `charge`, until
     * limiter_refund, limiter_adjust or limiter_keep_charge. All may be called without one. */
    bool wants_charge;
    struct limit_op *charge; /* the limiter's, or NULL */
    /* Of concurrency limits; until limiter_leave(). */
    unsigned held_count;
    struct held held[LIMITS_PER_RULE_MAX];
};

enum decided { DECIDED_NOW, DECIDED_LATER };

/* Has an operator granted the client a quota that it has now, whatever the policy and the database say? */
bool limiter_has_grant(struct limiter *limiter, const struct identity *identity);

/* DECIDED_NOW: ask->decision is set. DECIDED_LATER: ask->decided() will run, at the latest redis.timeout from
 * now, unless limiter_abandon is called before. The facts are not looked at after the call returns. */
MUST_CHECK enum decided limiter_decide(struct limiter *limiter, const struct limit_facts *facts,
                                       struct decision_request *decision_request);

/* The caller no longer waits. What Redis has charged stays charged, but for its place in a queue, where it would have been
 * held, and its permits of limits on requests in flight. */
void limiter_abandon(struct decision_request *decision_request);

/* The request has ended, whatever became of it: gives back what it has taken of limits on requests in flight. Where Redis is away
 * they are given back later, or end with their lease. May be called when it has taken nothing. */
void limiter_leave(struct decision_request *decision_request);

/* Nothing is left to be given back, as far as Redis can be told. */
bool limiter_is_quiet(const struct limiter *limiter);

/* The request did not happen: gives back what it was charged, as far as that still counts. Best effort: nobody
 * waits for it, and it is lost when Redis is away. Ends the charge. */
void limiter_refund(struct decision_request *decision_request);

/* The answer has come, with this status, and cost what it says, or -1: charges the difference to what was
 * charged before, into debt, or gives it back. Best effort as above. Ends the charge. */
void limiter_adjust(struct decision_request *decision_request, unsigned status, int64_t cost);

/* What was charged stays charged. Ends the charge. */
void limiter_keep_charge(struct decision_request *decision_request);

/* Sends what was gathered; once per loop iteration, after all callbacks. */
void limiter_flush(struct limiter *limiter);

#endif
