/* charge.c - ends the charge of a request: refunds it, brings it to the response's cost, or keeps
 * it. */
#include "base/magic.h"
#include "limit/adjust.h"
#include "limit/limiter.h"
#include "limit/op_leases.h"
#include "limit/operation.h"
#include "limit/split.h"

/* Ends the charge: each charged op is adjusted alone. */
static void adjust_charge(struct decision_request *decision_request,
                          void (*adjust)(struct limit_op *op, const void *facts), const void *facts)
{
    struct limit_op *op = decision_request->charge;

    if (!op)
        return;
    MAGIC_CHECK(op, OP_MAGIC);
    decision_request->charge = NULL;
    if (op->split)
        split_adjust(op, adjust, facts);
    else
        adjust(op, facts);
}

static void refund(struct limit_op *op, const void *facts)
{
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};
    (void)facts;

    for (unsigned i = 0; i < op->count; i++)
        if (op->limits[i].repeat_key.n) /* the client's next try with the same ID is free */
            totals[i] = op->limits[i].charged;
    op_unspend_lease(op);
    op_adjust(op, totals);
}

void limiter_refund(struct decision_request *decision_request)
{
    adjust_charge(decision_request, refund, NULL);
}

/* A limit's total charge, given the response. A limit that would have rejected charges nothing. */
static int64_t total_of(const struct op_limit *part, unsigned status, int64_t cost)
{
    if (!part->granted)
        return part->charged;
    if (!limit_counts(part->limit, status))
        return 0;
    return cost >= 0 ? cost : part->charged;
}

struct outcome {
    unsigned status;
    int64_t cost;
};

static void adjust_to_outcome(struct limit_op *op, const void *facts)
{
    const struct outcome *outcome = facts;
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < op->count; i++)
        totals[i] = total_of(&op->limits[i], outcome->status, outcome->cost);
    op_adjust(op, totals);
}

void limiter_adjust(struct decision_request *decision_request, unsigned status, int64_t cost)
{
    adjust_charge(decision_request, adjust_to_outcome, &(struct outcome){status, cost});
}

void limiter_leave(struct decision_request *decision_request)
{
    permits_leave(decision_request);
}

void limiter_keep_charge(struct decision_request *decision_request)
{
    if (decision_request->charge)
        op_release(decision_request->charge);
    decision_request->charge = NULL;
}
