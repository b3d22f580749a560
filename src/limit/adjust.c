#include "limit/adjust.h"
#include "base/clock.h"
#include "limit/limiter_parts.h"
#include "limit/queue.h"

void op_limit_write_charge(struct op_limit *part, const struct limit_reply *reply, int64_t time_us)
{
    bool repeat = part->repeat_key.n && reply->retry_after_us == LIMIT_REPLY_REPEATS;

    part->charge.granted = reply->granted > 0 && !repeat;
    part->charge.delayed = reply->delay_us > 0;
    part->charge.units = part->cost && !repeat ? reply->granted : 0;
    part->charge.counts_us = reply->reset_us;
    /* Unsigned addition: defined for any values. */
    part->charge.at_us = (int64_t)((uint64_t)time_us + (uint64_t)reply->delay_us);
}

void op_write_charge(struct limit_op *op, const struct limit_reply *replies, int64_t time_us)
{
    for (unsigned i = 0; i < op->count; i++)
        op_limit_write_charge(&op->limits[i], &replies[i], op->now_us ? op->now_us : time_us);
}

/* True if the limit's script refuses a refund that is too late, by the end that
 * op_limit_refund_mode() sends. */
static bool script_checks_end(const struct op_limit *part)
{
    return part->limit->shipped && part->limit->kind == LIMIT_BUCKET &&
           !part->limit->max_delay_us && part->charge.at_us > 0;
}

int64_t op_limit_refund_mode(const struct op_limit *part)
{
    /* Unsigned addition: defined for any values. */
    int64_t ends_us = (int64_t)((uint64_t)part->charge.at_us + (uint64_t)part->charge.counts_us);

    if (!script_checks_end(part))
        return part->charge.at_us;
    return ends_us > 0 ? -ends_us : 0;
}

/* Returns true if a charge may be given back. The script of a window or a queue finds a charge
 * by its time and checks whether it still counts. Other scripts store no single charges: giving
 * back an expired charge would take away other requests' usage. A bucket that may have been full
 * since then holds nothing of the charge. The call may be handled up to redis.timeout later, or
 * even later than that: the scripts of buckets check it again, custom ones do not. */
static bool can_give_back(const struct limit_op *op, const struct op_limit *part, uint64_t now_us)
{
    const struct limiter *l = op->limiter;
    int64_t elapsed_us = (int64_t)(now_us - op->started_us); /* from before the charge */

    if (op->now_us)
        elapsed_us = l->now_us - op->now_us;
    if (part->limit->kind == LIMIT_WINDOW || part->limit->max_delay_us)
        return elapsed_us - part->limit->rest_us < part->charge.counts_us;
    if (!op->now_us && !script_checks_end(part))
        elapsed_us += (int64_t)l->policy->redis.timeout_us;
    return elapsed_us < part->charge.counts_us;
}

int64_t op_reachable_total(const struct limit_op *op, const struct op_limit *part, int64_t total)
{
    bool stays = part->permit || !redis_client_takes(op->limiter->redis, part->key) ||
                 (total < part->charge.units && !can_give_back(op, part, clock_us()));

    return stays ? part->charge.units : total;
}

/* Keeps only the limits to adjust, with the difference as cost. */
static void keep_differences(struct limit_op *op, const int64_t *totals)
{
    unsigned left = 0;

    for (unsigned i = 0; i < op->count; i++) {
        struct op_limit *part = &op->limits[i];
        int64_t difference = op_reachable_total(op, part, totals[i]) - part->charge.units;
        if (difference == 0)
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
    if (op->count == 0) {
        op_release(op);
        return;
    }
    op->is_adjustment = true;
    op->now_us = l->now_us;
    op_gather_quietly(op);
}

void op_forget_denials(const struct limit_op *op)
{
    for (unsigned i = 0; i < op->count; i++)
        if (op->limits[i].cost < 0)
            denials_forget_key(op->limits[i].key);
}

void op_refund(struct limit_op *op)
{
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < op->count; i++)
        totals[i] = op_kept_charge(&op->limits[i]);
    op_adjust(op, totals);
}

void op_leave_queues(struct limit_op *op)
{
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < op->count; i++)
        totals[i] = op->limits[i].charge.delayed ? 0 : op->limits[i].charge.units;
    op_adjust(op, totals);
}
