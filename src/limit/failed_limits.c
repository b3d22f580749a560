#include "limit/failed_limits.h"

#include "limit/adjust.h"
#include "limit/limiter_parts.h"
#include "limit/local_charges.h"
#include "limit/op_permits.h"
#include "limit/queue.h"
#include "limit/verdict.h"
#include "limit/wide.h"

/* Sorts stably: failed limits first. */
static void sort_failed(struct limit_op *op, unsigned failed, const struct limit_reply *replies,
                        struct limit_reply *sorted)
{
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    unsigned first = 0, rest = failed;

    memcpy(limits, op->limits, op->count * sizeof limits[0]);
    for (unsigned i = 0; i < op->count; i++) {
        unsigned to = replies[i].failure ? first++ : rest++;
        op->limits[to] = limits[i];
        sorted[to] = replies[i];
    }
}

unsigned failed_limits_sort(struct limit_op *op, const struct limit_reply *replies,
                            struct limit_reply *sorted, bool *charged)
{
    unsigned failed = 0;
    bool matters = false, rejects = false;

    *charged = true;
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        if (!replies[i].failure) {
            rejects = rejects || (replies[i].granted == 0 && !part->shadow && !part->free);
            continue;
        }
        op->denial.barred = true;
        matters = matters || !part->shadow;
        *charged = *charged && !op_limit_may_reject(part);
        failed++;
    }
    if (!matters || rejects)
        return 0;
    sort_failed(op, failed, replies, sorted);
    return failed;
}

/* Ends an op whose failed limits reject the request, or are all that it has. `charged`: Redis has
 * charged the others, with these replies. */
static void op_end_failed(struct limit_op *op, bool charged, const struct limit_reply *replies,
                          int64_t time_us)
{
    struct decision_request *decision_request = op_cut(op);

    if (charged && !op_charges_each(op)) {
        op_permits_charged(op, NULL, replies);
        op_write_charge(op, replies, time_us);
        op_refund(op);
    } else
        op_release(op);
    decision_request->decided(decision_request);
}

const struct limit_reply *failed_limits_decide(struct limit_op *op,
                                               const struct limit_reply *replies,
                                               struct limit_reply *sorted, int64_t time_us)
{
    struct limiter *l = op->limiter;
    struct decision *d = &op->decision_request->decision;
    bool charged;

    if (op->wide) {
        if (!wide_requests_again(op, replies, time_us))
            return replies;
        op_gather_quietly(op);
        return NULL;
    }
    unsigned failed = failed_limits_sort(op, replies, sorted, &charged), all = op->count;
    if (failed == 0)
        return replies;
    op->count = failed;
    op->counting.partial = failed < all;
    verdict_without_redis(l, op, REDIS_FAILURE_SCRIPT, d);
    op->count = all;
    op->counting.partial = false;
    if (failed == all || d->verdict == VERDICT_FAILED_CLOSED ||
        (!decision_admits(d) && !op_charges_each(op))) {
        if (failed < all)
            verdict_conclude(l, op, d);
        op_end_failed(op, charged, sorted, time_us);
        return NULL;
    }
    local_charges_set_aside(op, failed, d);
    if (charged)
        return sorted + failed;
    if (op->count == 1)
        op_limit_alone(&op->limits[0]);
    op_gather_quietly(op);
    return NULL;
}
