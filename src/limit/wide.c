#include "limit/wide.h"

#include <stdlib.h>

#include "limit/adjust.h"
#include "limit/limiter_parts.h"
#include "limit/local_charges.h"
#include "limit/verdict.h"

struct wide *wide_new(unsigned limits, size_t keys_size)
{
    size_t own = sizeof(struct wide) + limits * sizeof(struct op_limit);
    struct wide *wide = malloc(own + keys_size);

    if (!wide)
        return NULL;
    wide->count = wide->span_count = 0;
    wide->quota_passes = wide->charged = wide->refused = false;
    wide->results = NULL;
    memset(wide->decided, 0, limits * sizeof wide->decided[0]);
    wide->keys = text_over((char *)wide + own, keys_size);
    return wide;
}

/* --- The verdict ------------------------------------------------------------------------------ */

/* Returns true if the driver has rejected the limit's descriptor because the limit's own script has
 * failed. */
static bool failure_rejects(const struct op_limit *part, const struct limit_reply *reply)
{
    return reply->failure && op_limit_may_reject(part);
}

/* Returns true if a limit of the descriptor rejects. With `replies`, also if its failure did. */
static bool span_is_over(const struct wide *wide, const struct wide_span *span,
                         const struct limit_reply *replies)
{
    for (unsigned i = span->first; i < span->first + span->count; i++)
        if (wide->results[i].verdict == VERDICT_LIMITED ||
            (replies && failure_rejects(&wide->limits[i], &replies[i])))
            return true;
    return false;
}

static bool call_is_over(const struct wide *wide, const struct limit_reply *replies)
{
    unsigned quotas = 0, quotas_over = 0;

    for (unsigned i = 0; i < wide->span_count; i++) {
        bool over = span_is_over(wide, &wide->spans[i], replies);
        if (over && !wide->spans[i].quota)
            return true;
        quotas += wide->spans[i].quota;
        quotas_over += over;
    }
    return quotas > 0 && quotas == quotas_over && !wide->quota_passes;
}

static bool is_any_decided(const struct wide *wide)
{
    for (unsigned i = 0; i < wide->count; i++)
        if (wide->results[i].verdict != VERDICT_FAILED_OPEN)
            return true;
    return false;
}

/* Gives back what Redis has charged to the limits of a descriptor. */
static void refund_charges(const struct limit_op *op, const struct wide_span *span)
{
    struct limit_op *own = op_take(op->limiter);

    if (!own)
        return;
    struct text keys = text_over(own->keys, op->limiter->ops->keys_size);
    op_clear(own);
    own->started_us = op->started_us;
    for (unsigned i = span->first; i < span->first + span->count; i++) {
        const struct op_limit *part = &op->wide->limits[i];
        own->limits[own->count] = *part;
        own->limits[own->count++].key = (struct slice){own->keys + keys.n, part->key.n};
        text_put(&keys, part->key);
    }
    assert(!keys.failed);
    own->keys_size = keys.n;
    op_refund(own);
}

/* A descriptor is over its limit, or the call is rejected: gives back what was charged in this
 * process, and what the driver had charged before. */
static void refund_span(const struct limit_op *op, const struct wide_span *span)
{
    const struct wide *wide = op->wide;

    for (unsigned i = span->first; i < span->first + span->count; i++)
        local_charges_refund_limit(op->limiter, &wide->results[i], wide->limits[i].key,
                                   op->started_us);
    if (wide->charged)
        refund_charges(op, span);
}

static void count_results(struct limiter *l, const struct wide *wide, bool call_over)
{
    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        bool charged = !call_over && !span_is_over(wide, span, NULL);
        for (unsigned k = 0; k < span->count; k++) {
            const struct limit_result *r = &wide->results[span->first + k];
            verdict_count_result(
                l, r, r->verdict == VERDICT_ALLOWED && !charged ? VERDICT_NOT_CHARGED : r->verdict);
        }
    }
}

void wide_conclude(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    const struct wide *wide = op->wide;
    bool over = call_is_over(wide, NULL);

    *d = (struct decision){.verdict = wide->refused          ? VERDICT_FAILED_CLOSED
                                      : over                 ? VERDICT_LIMITED
                                      : is_any_decided(wide) ? VERDICT_ALLOWED
                                                             : VERDICT_FAILED_OPEN,
                           .rejected_by = -1};
    for (unsigned i = 0; i < wide->span_count; i++)
        if (!decision_admits(d) || span_is_over(wide, &wide->spans[i], NULL))
            refund_span(op, &wide->spans[i]);
    if (!wide->refused)
        count_results(l, wide, over);
    for (unsigned i = 0; i < wide->count && wide->refused; i++)
        wide->results[i].verdict = VERDICT_FAILED_OPEN; /* has no numbers */
}

/* --- Without Redis ---------------------------------------------------------------------------- */

/* Limits to decide without Redis: all that are not decided or, with `replies`, those whose own
 * scripts failed. */
static bool is_due(const struct wide *wide, unsigned i, const struct limit_reply *replies)
{
    return !wide->decided[i] && (!replies || replies[i].failure);
}

static bool any_denies(struct limiter *l, const struct wide *wide,
                       const struct limit_reply *replies)
{
    bool denies = false;

    for (unsigned i = 0; i < wide->count; i++) {
        struct limit_result *r = &wide->results[i];
        const struct op_limit *part = &wide->limits[i];
        if (!is_due(wide, i, replies))
            continue;
        *r = verdict_local_result(l, part);
        r->verdict = VERDICT_FAILED_OPEN;
        if (part->limit->on_failure != ON_FAILURE_DENY || part->shadow)
            continue;
        verdict_count_result(l, r, VERDICT_FAILED_CLOSED);
        denies = true;
    }
    return denies;
}

static bool rejects_locally(const struct wide *wide, unsigned i, const struct limit_reply *replies)
{
    return is_due(wide, i, replies) && !wide->limits[i].shadow &&
           verdict_is_local(&wide->limits[i]);
}

/* Returns true if a descriptor with quota_mode passes whatever this process has counted. */
static bool quota_passes(const struct wide *wide, const struct limit_reply *replies)
{
    bool passes = wide->quota_passes;

    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        bool rejects = span_is_over(wide, span, NULL);
        for (unsigned k = 0; k < span->count; k++)
            rejects |= rejects_locally(wide, span->first + k, replies);
        passes |= span->quota && !rejects;
    }
    return passes;
}

/* Decides the shadow limits of a descriptor, each by itself. */
static void decide_span_shadows(struct limiter *l, const struct wide *wide,
                                const struct wide_span *span, bool charges,
                                const struct limit_reply *replies)
{
    for (unsigned i = span->first; i < span->first + span->count; i++) {
        const struct op_limit *part = &wide->limits[i];
        if (!is_due(wide, i, replies) || !part->shadow || !verdict_is_local(part))
            continue;
        struct fallback_request request = verdict_local_request(part, &wide->results[i]);
        request.asks |= !charges;
        if (!fallback_decide(l->fallback, &request, 1))
            wide->results[i].verdict = VERDICT_SHADOW;
    }
}

static void decide_wide_shadows(struct limiter *l, const struct wide *wide,
                                const struct limit_reply *replies)
{
    bool over = call_is_over(wide, NULL);

    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        decide_span_shadows(l, wide, span, !over && !span_is_over(wide, span, NULL), replies);
    }
}

/* Sets the results of the limits that are due by their on_failure. Returns false if one denies. */
static bool decide_wide_locally(struct limiter *l, const struct wide *wide,
                                const struct limit_reply *replies, enum redis_failure cause)
{
    struct fallback_request requests[WIDE_LIMITS_MAX];
    unsigned local = 0;

    counter_add(&l->stats->redis_failures[cause], 1);
    if (any_denies(l, wide, replies))
        return false;
    bool passes = quota_passes(wide, replies);
    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        for (unsigned k = span->first; k < span->first + span->count; k++) {
            if (!rejects_locally(wide, k, replies))
                continue;
            requests[local] = verdict_local_request(&wide->limits[k], &wide->results[k]);
            requests[local].descriptor = i;
            requests[local].passes = passes;
            requests[local++].quota = span->quota;
        }
    }
    (void)fallback_decide(l->fallback, requests, local);
    decide_wide_shadows(l, wide, replies);
    return true;
}

void wide_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                        struct decision *d)
{
    struct wide *wide = op->wide;

    wide->refused = !decide_wide_locally(l, wide, NULL, cause);
    wide_conclude(l, op, d);
}

/* --- Own scripts that fail -------------------------------------------------------------------- */

static void write_span_charges(const struct limit_op *op, const struct limit_reply *replies,
                               int64_t time_us)
{
    struct wide *wide = op->wide;

    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        if (span_is_over(wide, span, replies))
            continue;
        for (unsigned k = span->first; k < span->first + span->count; k++)
            if (!wide->decided[k])
                op_limit_write_charge(&wide->limits[k], &replies[k], time_us);
    }
}

/* Marks what is decided. `charged`: the driver has charged all descriptors but those that it
 * rejected. Returns true if limits are left. */
static bool mark_decided(struct wide *wide, const struct limit_reply *replies, bool charged)
{
    bool any_left = false;

    for (unsigned i = 0; i < wide->span_count; i++) {
        struct wide_span *span = &wide->spans[i];
        bool rejected = false;
        for (unsigned k = span->first; k < span->first + span->count; k++)
            rejected |= failure_rejects(&wide->limits[k], &replies[k]);
        span->decided |= span_is_over(wide, span, NULL) || (charged && !rejected);
        for (unsigned k = span->first; k < span->first + span->count; k++) {
            wide->decided[k] |= span->decided || replies[k].failure;
            any_left |= !wide->decided[k];
        }
    }
    return any_left;
}

bool wide_requests_again(struct limit_op *op, const struct limit_reply *replies, int64_t time_us)
{
    struct wide *wide = op->wide;
    bool failed = false;

    for (unsigned i = 0; i < wide->count; i++) {
        if (wide->decided[i])
            continue;
        verdict_set_result(&wide->results[i], &wide->limits[i], &replies[i]);
        failed |= replies[i].failure && !wide->limits[i].shadow;
    }
    if (!failed || call_is_over(wide, NULL))
        return false;
    bool charged = !call_is_over(wide, replies);
    if (charged) {
        write_span_charges(op, replies, time_us);
        wide->charged = true;
    }
    wide->refused = !decide_wide_locally(op->limiter, wide, replies, REDIS_FAILURE_SCRIPT);
    if (wide->refused || call_is_over(wide, NULL))
        return false;
    wide->quota_passes |= charged; /* what is left cannot reject the call */
    return mark_decided(wide, replies, charged);
}
