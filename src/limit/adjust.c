/* adjust.c - adjusts a charge: refunds it, brings it to the response's cost, or keeps it. */
#include "base/clock.h"
#include "base/magic.h"
#include "limit/limiter_internal.h"

void op_write_charge(struct limit_op *op, const struct limit_reply *replies, int64_t time_us)
{
    for (unsigned i = 0; i < op->count; i++, replies++) {
        struct op_limit *part = &op->limits[i];
        bool repeat = part->repeat_key.n && replies->retry_after_us == LIMIT_REPLY_REPEATS;
        part->granted = replies->granted > 0 && !repeat;
        part->charged = part->cost && !repeat ? replies->granted : 0;
        part->counts_us = replies->reset_us;
        /* Unsigned addition: defined for any values. */
        part->charged_at_us = (int64_t)((uint64_t)time_us + (uint64_t)replies->delay_us);
    }
}

/* Returns true if a charge may be given back. The script of a window or a queue finds a charge
 * by its time and checks whether it still counts. Other scripts store no single charges: giving
 * back an expired charge would take away other requests' usage. A bucket that may have been full
 * since then holds nothing of the charge. */
static bool can_give_back(const struct limit_op *op, const struct op_limit *part, uint64_t now_us)
{
    int64_t elapsed_us = (int64_t)(now_us - op->started_us); /* from before the charge */

    if (part->limit->kind == LIMIT_WINDOW || part->limit->max_delay_us)
        return elapsed_us < part->counts_us;
    return elapsed_us + (int64_t)op->limiter->policy->redis.timeout_us < part->counts_us;
}

/* Keeps only the limits to adjust, with the difference as cost. */
static void keep_differences(struct limit_op *op, const int64_t *totals)
{
    uint64_t now_us = clock_us();
    unsigned left = 0;

    for (unsigned i = 0; i < op->count; i++) {
        struct op_limit *part = &op->limits[i];
        int64_t difference = totals[i] - part->charged;
        if (difference == 0 || part->permit || (difference < 0 && !can_give_back(op, part, now_us)))
            continue;
        part->cost = difference;
        part->repeat_key = SLICE_NONE;
        part->mode = difference > 0 ? MODE_DEBT : MODE_PLAIN;
        op->limits[left++] = *part;
    }
    op->count = left;
    for (unsigned i = 0; i < left && left > 1; i++)
        op->limits[i].mode += MODE_SHADOW; /* each is adjusted independently */
}

void op_adjust(struct limit_op *op, const int64_t *totals)
{
    struct limiter *l = op->limiter;

    op_drop_permits(op);
    keep_differences(op, totals);
    if (op->count == 0 || !redis_client_is_ready(l->redis)) {
        op_release(op);
        return;
    }
    op->is_adjustment = true;
    op->batch = NULL;
    TAILQ_INSERT_TAIL(&l->gathered, op, entry);
}

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

void op_leave_queue(struct limit_op *op, const struct limit_reply *replies)
{
    int64_t totals[LIMITS_PER_RULE_MAX];

    for (unsigned i = 0; i < op->count; i++, replies++)
        totals[i] = replies->delay_us > 0 ? 0 : op->limits[i].charged;
    op_adjust(op, totals);
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
    if (!part->limit->counted)
        return cost >= 0 ? cost : part->charged;
    if (!limit_counts(part->limit, status))
        return 0;
    return cost >= 0 ? cost : part->full_cost;
}

struct learnt {
    unsigned status;
    int64_t cost;
};

static void adjust_learnt(struct limit_op *op, const void *facts)
{
    const struct learnt *learnt = facts;
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < op->count; i++)
        totals[i] = total_of(&op->limits[i], learnt->status, learnt->cost);
    op_adjust(op, totals);
}

void limiter_adjust(struct decision_request *decision_request, unsigned status, int64_t cost)
{
    adjust_charge(decision_request, adjust_learnt, &(struct learnt){status, cost});
}

void limiter_leave(struct decision_request *decision_request)
{
    permits_leave(decision_request);
}

bool limiter_is_quiet(const struct limiter *l)
{
    if (limiter_redis_away(l))
        return true;
    /* A call in progress may get the reply "unknown script" or "wrong node" and be sent again. */
    return l->under_way == 0 && TAILQ_EMPTY(&l->gathered) && TAILQ_EMPTY(&l->beyond) &&
           TAILQ_EMPTY(&l->later) && TAILQ_EMPTY(&l->lease_ends.armed) &&
           (!l->permits || permits_count(l->permits) == 0);
}

void limiter_keep_charge(struct decision_request *decision_request)
{
    if (decision_request->charge)
        op_release(decision_request->charge);
    decision_request->charge = NULL;
}
