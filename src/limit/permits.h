/* permits.h - what the requests of one limiter hold of concurrency limits, until they have ended.
 *
 *   charged --permits_hold()--> held by an ask --permits_leave()--> owed --permits_send()--> given back
 *
 * A permit is one key's. Redis counts what this limiter, a holder with a random number of its own, has of it, for one lease; every
 * third of a lease the permit is renewed. Nothing is lost where Redis is away or an answer is: the permit is then unsure, and the next
 * call that can reach Redis says how many this limiter really holds, once nothing else of the permit is under way. What a weir that
 * died had ends with the lease. Permits are bounded by the requests under way. One worker's own. */
#ifndef WEIR_LIMIT_PERMITS_H
#define WEIR_LIMIT_PERMITS_H

#include "base/deadline.h"
#include "limit/fallback.h"
#include "limit/limiter.h"

struct permit;
struct permits;

/* `lease_us`: of the limit of the policy whose lease is shortest. `fallback` counts what limits with on_failure: local have in flight
 * in this process, whoever admitted it. Ends the process when there is no memory. */
struct permits *permits_new(struct deadlines *deadlines, uint64_t lease_us, struct fallback *fallback);
void permits_free(struct permits *permits);

/* This holder's number. */
int64_t permits_holder(const struct permits *permits);
/* How many there are: 0 when nothing is held, and Redis knows. */
unsigned permits_count(const struct permits *permits);

/* The permit of a key, for a call that is made: until permits_unuse(). NULL: no memory. */
struct permit *permits_use(struct permits *permits, const struct limit *limit, struct limit_numbers numbers,
                           struct slice key);
void permits_unuse(struct permits *permits, struct permit *permit);
/* A call with it goes to Redis; it was answered, or it failed: then nobody knows what Redis has counted. */
void permits_sent(struct permit *permit);
void permits_answered(struct permit *permit);
void permits_failed(struct permits *permits, struct permit *permit);

/* The ask's request has so many units from now on. `by_redis`: Redis has counted them, else the fallback. */
void permits_hold(struct permits *permits, struct decision_request *decision_request, struct permit *permit,
                  int64_t units, bool by_redis);
/* The ask's request has ended: what it holds is given back, sooner or later. May be called when it holds nothing. */
void permits_leave(struct decision_request *decision_request);
/* Redis has counted units that nobody waits for any more. */
void permits_owe(struct permits *permits, struct permit *permit, int64_t units);

/* One call that is to be made. */
struct permit_call {
    struct permit *permit; /* used, as by permits_use() */
    const struct limit *limit;
    struct limit_numbers numbers;
    struct slice key; /* as long as the permit is used */
    int64_t cost;
    bool renews; /* asked with MODE_RENEW */
};
/* The next call, for now. It goes to Redis before all calls that have not been sent yet. */
MUST_CHECK bool permits_next(struct permits *permits, struct permit_call *call);
/* After the last of them: what has to wait is looked at again the next time. */
void permits_rewind(struct permits *permits);

#endif
