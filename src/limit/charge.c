/* charge.c - ends the charge of a request: refunds it, brings it to the response's cost, or keeps
 * it. */
#include "base/magic.h"
#include "limit/adjust.h"
#include "limit/limiter.h"
#include "limit/limiter_parts.h"
#include "limit/op_leases.h"
#include "limit/permits.h"
#include "limit/split.h"
#include "policy/shipped_limiter.h"

/* Ends the charge: each charged op is adjusted alone. */
static void adjust_charge(struct decision_request *decision_request,
                          void (*adjust)(struct limit_op *op, const void *facts), const void *facts)
{
    struct limit_op *op = decision_request->charge;

    if (!op)
        return;
    MAGIC_CHECK(op, OP_MAGIC);
    decision_request->charge = NULL;
    if (op->cluster.split)
        split_adjust(op, adjust, facts);
    else
        adjust(op, facts);
}

static void refund(struct limit_op *op, const void *facts)
{
    const struct charge_outcome *outcome = facts;

    op_unspend_lease(op);
    for (unsigned i = 0; outcome->units && i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        outcome->units[part->place] =
            part->permit ? 0 : op_reachable_total(op, part, op_kept_charge(part));
    }
    op_refund(op);
}

void limiter_refund(struct decision_request *decision_request, int64_t *units)
{
    adjust_charge(decision_request, refund, &(struct charge_outcome){.units = units});
}

/* A limit's total charge, given the response. A limit that would have rejected charges nothing. */
static int64_t total_of(const struct op_limit *part, const struct charge_outcome *outcome)
{
    int64_t cost = outcome->cost;

    if (!part->charge.granted)
        return part->charge.units;
    if (!statuses_hold(part->limit->counted, outcome->status))
        return 0;
    if (part->limit->own_cost)
        cost = outcome->own_costs ? outcome->own_costs[part->place] : -1;
    if (!limit_counts_large(part->limit) && cost > SMALL_STATED_COST_MAX)
        return SMALL_STATED_COST_MAX;
    return cost >= 0 ? cost : part->charge.units;
}

/* Counts the final charge of a limit with a cost of its own. */
static void count_units(const struct limit_op *op, const struct op_limit *part, int64_t total)
{
    if (part->limit->own_cost && total > 0)
        counter_add(counter_table_row(&op->limiter->stats->by_limit, part->limit->row) +
                        UNITS_COLUMN,
                    (uint64_t)total);
}

static void adjust_to_outcome(struct limit_op *op, const void *facts)
{
    const struct charge_outcome *outcome = facts;
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        totals[i] = op_reachable_total(op, part, total_of(part, outcome));
        count_units(op, part, totals[i]);
        if (outcome->units)
            outcome->units[part->place] = totals[i];
    }
    op_adjust(op, totals);
}

void limiter_adjust(struct decision_request *decision_request, const struct charge_outcome *outcome)
{
    adjust_charge(decision_request, adjust_to_outcome, outcome);
}

void limiter_final_charges(const struct decision_request *decision_request,
                           const struct charge_outcome *outcome, int64_t *units)
{
    const struct limit_op *op = decision_request->charge;

    memset(units, 0, LIMITS_PER_RULE_MAX * sizeof *units);
    for (unsigned i = 0; i < op->count; i++)
        units[op->limits[i].place] = op->limits[i].limit->kind == LIMIT_CONCURRENCY
                                         ? op->limits[i].charge.units
                                         : total_of(&op->limits[i], outcome);
}

void limiter_leave(struct limiter *l, struct decision_request *decision_request)
{
    permits_leave(decision_request);
    l->unflushed = true;
}

static void keep_units(struct limit_op *op, const void *facts)
{
    (void)facts;
    for (unsigned i = 0; i < op->count; i++)
        count_units(op, &op->limits[i], op->limits[i].charge.units);
    op_release(op);
}

void limiter_keep_charge(struct decision_request *decision_request)
{
    adjust_charge(decision_request, keep_units, NULL);
}
