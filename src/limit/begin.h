/* begin.h - the first step of a decision: from a filled op to its lease, a remembered denial, Redis
 * or the fallback. */
#ifndef WEIR_LIMIT_BEGIN_H
#define WEIR_LIMIT_BEGIN_H

#include "limit/limiter.h"
#include "limit/operation.h"

/* Takes an op for a decision, which is then PREPARED: the reserve, if Redis is not available. */
struct limit_op *op_take_or_reserve(struct limiter *l);

/* Decides the op's request; takes ownership of the op. Results as of limiter_decide(). */
MUST_CHECK enum decided op_begin(struct limit_op *op, struct decision_request *decision_request);

#endif
