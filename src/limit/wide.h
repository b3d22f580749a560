/* wide.h - an op for a call of descriptors with more limits than a rule has, or with quota_mode.
 *
 * Its limits are in a struct wide; limit_op.count is 0. Redis decides the descriptors in order, and
 * charges all of them or none (lua/driver.lua, run_of_descriptors). A descriptor with quota_mode
 * that is over its limit does not reject the call, unless all with quota_mode are. In a
 * cluster only while Redis is away, since the keys are in several slots. */
#ifndef WEIR_LIMIT_WIDE_H
#define WEIR_LIMIT_WIDE_H

#include "limit/limit_reply.h"
#include "limit/operation.h"
#include "redis/failure.h"

/* Makes room for `limits` limits, with keys of so many bytes. NULL: no memory. op_release() frees
 * it. */
struct wide *wide_new(unsigned limits, size_t keys_size);

/* Sets the results from Redis' reply. Decides limits whose own scripts failed by their on_failure.
 * Returns true if other limits must be requested again, since the driver has not charged them: the
 * op then requests them alone. */
MUST_CHECK bool wide_requests_again(struct limit_op *op, const struct limit_reply *replies,
                                    int64_t time_us);
/* As verdict_from_answer() and verdict_without_redis(), for a wide op: set of *d the verdict alone.
 * wide_requests_again() has returned false before. */
void wide_conclude(struct limiter *l, const struct limit_op *op, struct decision *d);
void wide_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                        struct decision *d);

#endif
