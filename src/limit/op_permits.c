/* op_permits.c - ops of concurrency limits, and of canceled requests in a queue. */
#include "limit/op_permits.h"

#include "base/clock.h"
#include "limit/limiter_parts.h"
#include "limit/permits.h"
#include "limit/queue.h"

bool op_use_permits(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    for (unsigned i = 0; i < op->count; i++) {
        struct op_limit *part = &op->limits[i];
        part->permit = NULL;
        if (part->limit->kind != LIMIT_CONCURRENCY)
            continue;
        if (!(part->permit = permits_use(l->permits, part->limit, part->numbers, part->key)))
            return false;
        op->permits.list[op->permits.count++] = part->permit;
    }
    return true;
}

void op_permits_sent(struct limit_op *op)
{
    for (unsigned i = 0; i < op->permits.count; i++)
        permits_sent(op->permits.list[i]);
}

void op_permits_answered(struct limit_op *op)
{
    for (unsigned i = 0; i < op->permits.count; i++)
        permits_answered(op->permits.list[i]);
}

void op_permits_failed(struct limit_op *op)
{
    for (unsigned i = 0; i < op->permits.count; i++)
        permits_failed(op->limiter->permits, op->permits.list[i]);
}

void op_permits_sent_again(struct limit_op *op)
{
    for (unsigned i = 0; i < op->permits.count && op->is_adjustment; i++)
        permits_sent_again(op->limiter->permits, op->permits.list[i]);
}

/* As in the driver: if a limit rejects the request, no limit is charged. */
static bool was_charged(const struct limit_op *op, const struct limit_reply *replies)
{
    for (unsigned i = 0; i < op->count; i++, replies++)
        if (replies->granted == 0 && op_limit_may_reject(&op->limits[i]))
            return false;
    return true;
}

void op_permits_charged(struct limit_op *op, struct decision_request *decision_request,
                        const struct limit_reply *replies)
{
    if (op->permits.count == 0 || op->is_adjustment || !was_charged(op, replies))
        return;
    for (unsigned i = 0; i < op->count; i++, replies++) {
        struct op_limit *part = &op->limits[i];
        if (!part->permit || replies->granted <= 0)
            continue;
        if (decision_request)
            permits_hold(op->limiter->permits, decision_request, part->permit, replies->granted,
                         true);
        else /* timed out or canceled */
            permits_owe(op->limiter->permits, part->permit, replies->granted);
    }
}

void op_permits_locally(struct limit_op *op, struct decision_request *decision_request)
{
    const struct decision *d = &decision_request->decision;

    if (op->permits.count == 0 || !decision_admits(d))
        return;
    for (unsigned i = 0; i < d->result_count; i++)
        for (unsigned j = 0; j < op->count; j++)
            if (d->results[i].limit == op->limits[j].limit && op->limits[j].permit &&
                d->results[i].local && d->results[i].verdict == VERDICT_ALLOWED)
                permits_hold(op->limiter->permits, decision_request, op->limits[j].permit,
                             op->limits[j].cost, false);
}

/* Fills a free op with the next pending permit call. False: none is pending; the op is
 * unchanged. */
static bool fill_permit_call(struct limit_op *op)
{
    struct permit_call call;

    if (!permits_next(op->limiter->permits, &call))
        return false;
    op_clear(op);
    op->count = 1;
    op->limits[0] = (struct op_limit){.limit = call.limit,
                                      .numbers = call.numbers,
                                      .cost = call.cost,
                                      .mode = call.renews     ? MODE_RENEW
                                              : call.cost > 0 ? MODE_DEBT
                                                              : MODE_PLAIN,
                                      .key = call.key,
                                      .permit = call.permit};
    op->permits.list[0] = call.permit;
    op->permits.count = 1;
    op->started_us = clock_cached_us();
    op->is_adjustment = true;
    op->cluster.alone = call.unsure && op->limiter->in_slots; /* its slot may be moving */
    return true;
}

bool op_gather_permit_calls(struct limiter *l)
{
    struct limit_op *op = NULL;

    if (!l->permits || !redis_client_is_ready(l->redis))
        return false;
    while ((op = op_take(l)) && fill_permit_call(op))
        op_gather_first(op);
    if (op) {
        op->decision_request = NULL;
        op_release(op);
    }
    return permits_rewind(l->permits);
}

void op_permits_prepare(const struct limit_op *op)
{
    for (unsigned i = 0; i < op->permits.count; i++)
        permits_prepare_charge(op->limiter->permits, op->permits.list[i]);
}

bool op_waits_for_total(const struct limit_op *op)
{
    bool waits = false;

    if (op->is_adjustment || (!op->decision_request && !op->cluster.parent))
        return false;
    for (unsigned i = 0; i < op->permits.count; i++)
        waits |= permits_delay_charge(op->permits.list[i]);
    return waits;
}

bool op_would_have_waited(const struct limit_op *op, const struct limit_reply *replies)
{
    bool waits = false;

    if (!op->abandoned || op->is_adjustment || !was_charged(op, replies))
        return false;
    for (unsigned i = 0; i < op->count; i++, replies++)
        waits |= replies->delay_us > 0;
    return waits;
}
