#include "limit/begin.h"

#include "base/clock.h"
#include "limit/limiter_parts.h"
#include "limit/op_leases.h"
#include "limit/op_permits.h"
#include "limit/queue.h"
#include "limit/split.h"
#include "limit/verdict.h"

struct limit_op *op_take_or_reserve(struct limiter *l)
{
    struct limit_op *reserve = l->ops->reserve;
    struct limit_op *op = redis_client_is_ready(l->redis) ? op_take(l) : NULL;

    assert(reserve); /* from limiter_new() on */
    if (!op)
        op_enter(op = reserve, OP_PREPARED);
    return op;
}

static enum decided op_decide_locally(struct limit_op *op,
                                      struct decision_request *decision_request,
                                      enum redis_failure cause)
{
    verdict_without_redis(op->limiter, op, cause, &decision_request->decision);
    op_permits_locally(op, decision_request);
    op_release(op);
    return DECIDED_NOW;
}

enum decided op_begin(struct limit_op *op, struct decision_request *decision_request)
{
    struct limiter *l = op->limiter;

    if (op->leased.lease && op_spend_lease(op, decision_request))
        return DECIDED_NOW;
    if (op == l->ops->reserve)
        return op_decide_locally(op, decision_request,
                                 redis_client_is_ready(l->redis) ? REDIS_FAILURE_BUSY
                                                                 : redis_client_cause(l->redis, 0));
    op->started_us = clock_cached_us();
    if (denials_any(l->denials, op->started_us) &&
        verdict_from_denial(l, op, clock_us(), &decision_request->decision)) {
        op_release(op);
        return DECIDED_NOW;
    }
    op->decision_request = decision_request;
    decision_request->op = op;
    deadline_arm(&l->waiting, &op->deadline, op->started_us, l->policy->redis.timeout_us);
    if (!l->in_slots || !op_find_slots(op))
        op_gather(op);
    else if (!split_begin(op, false)) {
        op_cut(op);
        return op_decide_locally(op, decision_request, REDIS_FAILURE_BUSY);
    }
    return DECIDED_LATER;
}
