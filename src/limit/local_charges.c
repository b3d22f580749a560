#include "limit/local_charges.h"

#include "limit/limiter_parts.h"

void local_charges_refund_limit(struct limiter *l, struct limit_result *r, struct slice key,
                                uint64_t since_us)
{
    int64_t left = r->remaining + r->granted;

    if (!r->local || r->verdict != VERDICT_ALLOWED || r->granted <= 0 ||
        r->limit->kind == LIMIT_CONCURRENCY || !fallback_refund(l->fallback, r, key, since_us))
        return;
    r->remaining = left < r->capacity ? left : r->capacity;
    r->granted = 0;
}

void local_charges_refund(const struct limit_op *op, struct decision *d)
{
    for (unsigned i = 0; i < d->result_count; i++)
        for (unsigned k = 0; k < op->count + op->counting.aside_count; k++)
            if (op->limits[k].place == d->results[i].place)
                local_charges_refund_limit(op->limiter, &d->results[i], op->limits[k].key,
                                           op->started_us);
}

void local_charges_set_aside(struct limit_op *op, unsigned failed, struct decision *d)
{
    struct op_limit aside[LIMITS_PER_RULE_MAX];
    unsigned more = d->result_count, last = LIMITS_PER_RULE_MAX - op->counting.aside_results;

    memcpy(aside, op->limits, failed * sizeof aside[0]);
    op->count -= failed;
    memmove(op->limits, op->limits + failed, op->count * sizeof op->limits[0]);
    memcpy(op->limits + op->count, aside, failed * sizeof aside[0]);
    memmove(d->results + last - more, d->results, more * sizeof d->results[0]);
    op->counting.aside_count += failed;
    op->counting.aside_results += more;
}

void local_charges_add_set_aside(const struct limit_op *op, struct decision *d)
{
    unsigned count = op->counting.aside_results;

    memmove(d->results + d->result_count, d->results + LIMITS_PER_RULE_MAX - count,
            count * sizeof d->results[0]);
    d->result_count += count;
}
