/* verdict.h - makes decisions. */
#ifndef WEIR_LIMIT_VERDICT_H
#define WEIR_LIMIT_VERDICT_H

#include "limit/fallback.h"
#include "limit/leases.h"
#include "limit/limit_reply.h"
#include "limit/operation.h"
#include "redis/failure.h"

/* verdict.c. Each sets the whole decision *d and counts it by limit, unless op->counting says
 * that this follows. */

/* `replies`: of the op's limits. */
void verdict_from_answer(struct limiter *l, const struct limit_op *op,
                         const struct limit_reply *replies, struct decision *d);
/* Each limit follows its own on_failure; `cause` is counted. */
void verdict_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                           struct decision *d);
/* Counts the limits of a decision that was not counted when it was made (op->counting.later). */
void verdict_count(struct limiter *l, const struct decision *d);
/* Counts one limit with this verdict. */
void verdict_count_result(struct limiter *l, const struct limit_result *r, enum verdict verdict);
/* Sets the result of one limit from its reply. */
void verdict_set_result(struct limit_result *r, const struct op_limit *part,
                        const struct limit_reply *reply);
/* Without Redis: returns true if this process counts the limit. The fallback table takes no
 * refunds of admitted requests, so a limit with `count` allows, and so does a refund. */
bool verdict_is_local(const struct op_limit *part);
/* The request to the fallback table, and the result before its reply. */
struct limit_result verdict_local_result(const struct limiter *l, const struct op_limit *part);
struct fallback_request verdict_local_request(const struct op_limit *part,
                                              struct limit_result *result);
/* Completes the decision with the limits that were set aside: gives their charges back if it
 * rejects the request, and counts all limits. */
void verdict_conclude(struct limiter *l, const struct limit_op *op, struct decision *d);
/* Prohibited and unlimited clients. */
void verdict_by_client_limits(struct limiter *l, const struct limit_facts *facts, bool prohibited,
                              struct decision *d);
/* A rule without limits. */
void verdict_of_no_limits(struct decision *d);
/* Fails closed: a limit denies without Redis, or there is no memory. Keeps the results of limits
 * that were set aside. */
void verdict_fail_closed(struct decision *d);
/* Returns false if no valid denial is remembered. */
bool verdict_from_denial(struct limiter *l, struct limit_op *op, uint64_t now_us,
                         struct decision *d);
/* Call after a unit of the lease was spent. */
void verdict_from_lease(struct limiter *l, const struct limit_op *op, const struct lease *lease,
                        uint64_t now_us, struct decision *d);
/* Remembers the decision if it is a denial. */
void verdict_remember(struct limiter *l, struct limit_op *op, const struct decision *d);

#endif
