/* permits.h - units of concurrency limits held by one limiter's requests until they end.
 *
 *   charged --permits_hold()--> held by a request --permits_leave()--> owed --permits_next()--> released
 *
 * A permit belongs to one key. Redis counts the units of this limiter (a holder with a random
 * number) and keeps them for one lease. The permit is renewed every third of a lease.
 *
 * Units that were admitted without Redis are held as well. The next call that reaches Redis charges
 * them there, even above the limit. If a late reply grants them, they are charged already.
 *
 * If a call fails or a reply is lost, the permit becomes unsure. The next call that reaches Redis
 * then states how many units this limiter holds, once no other call for the permit is in progress.
 * New charges wait for it, so that calls of a busy client cannot overlap forever. The units of a
 * weir that died expire with the lease.
 *
 * A permit has no phases and no table of transitions. Its members are counts (units held and owed,
 * users, calls without a reply) and one flag, `unsure`. They change independently, and each
 * combination is valid: a permit may be held, owe units and have calls without a reply at once.
 * Only write_call() and free_unless_needed() look at all of them.
 *
 * Permits are bounded by the number of requests in progress. Used by one worker. */
#ifndef WEIR_LIMIT_PERMITS_H
#define WEIR_LIMIT_PERMITS_H

#include "base/deadline.h"
#include "limit/decision_request.h"
#include "limit/fallback.h"

struct permit;
struct permits;

/* Creates the table. `lease_us`: the policy's shortest lease. `fallback` counts units in flight
 * of limits with on_failure: local, whether Redis or the fallback admitted them. NULL: no
 * memory. */
struct permits *permits_new(struct deadlines *deadlines, uint64_t lease_us,
                            struct fallback *fallback);
void permits_free(struct permits *permits);

/* This holder's number. */
int64_t permits_holder(const struct permits *permits);
/* The number of permits; 0: no units are held, and Redis has the same count. */
unsigned permits_count(const struct permits *permits);

/* Takes a reference to the permit of a key, until permits_unuse(). NULL: no memory. */
struct permit *permits_use(struct permits *permits, const struct limit *limit,
                           struct limit_numbers numbers, struct slice key);
void permits_unuse(struct permits *permits, struct permit *permit);
/* Call when a call with the permit was sent, was answered, or failed. After a failure the count
 * in Redis is unknown. */
void permits_sent(struct permit *permit);
void permits_answered(struct permit *permit);
void permits_failed(struct permits *permits, struct permit *permit);
/* Call when a permit call was sent again. If other calls were sent after it, the count that it has
 * stated leaves them out, but may have reached Redis after them. */
void permits_sent_again(struct permits *permits, struct permit *permit);

/* The request holds `units` from now on. `by_redis`: charged by Redis, else by the fallback, and
 * charged in Redis later. */
void permits_hold(struct permits *permits, struct decision_request *decision_request,
                  struct permit *permit, int64_t units, bool by_redis);
/* Releases all units that the request holds; they are sent to Redis later. May be called when
 * it holds none. */
void permits_leave(struct decision_request *decision_request);
/* Records units that Redis counts but no request holds. They are released, or replace units that
 * are not charged in Redis yet. */
void permits_owe(struct permits *permits, struct permit *permit, int64_t units);

/* A pending call. */
struct permit_call {
    struct permit *permit; /* with a reference as by permits_use() */
    const struct limit *limit;
    struct limit_numbers numbers;
    struct slice key; /* valid as long as the reference */
    int64_t cost;
    bool renews; /* sent with MODE_RENEW */
    bool unsure; /* an earlier call has failed */
};
/* Gets the next pending call. Send it before all calls that have not been sent yet. */
MUST_CHECK bool permits_next(struct permits *permits, struct permit_call *call);
/* Call after the last one. Calls that must wait for replies are considered again next time. Returns
 * true if there are any. */
MUST_CHECK bool permits_rewind(struct permits *permits);
/* Call before the first permits_next() for each permit of a charge that is to be sent. After a
 * failure, a charge is only exact after the total. */
void permits_prepare_charge(struct permits *permits, struct permit *permit);
/* Call after the last permits_next(). Returns true if the total must wait for replies, and the
 * charge for the total. */
bool permits_delay_charge(const struct permit *permit);

#endif
