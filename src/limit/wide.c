#include "limit/wide.h"

#include <stdlib.h>

#include "base/clock.h"
#include "limit/limiter_parts.h"
#include "limit/verdict.h"

struct wide *wide_new(unsigned limits, size_t keys_size)
{
    size_t own = sizeof(struct wide) + limits * sizeof(struct op_limit);
    struct wide *wide = malloc(own + keys_size);

    if (!wide)
        return NULL;
    wide->count = wide->span_count = 0;
    wide->quota_passes = false;
    wide->results = NULL;
    wide->keys = text_over((char *)wide + own, keys_size);
    return wide;
}

/* --- The verdict ------------------------------------------------------------------------------ */

static bool span_is_over(const struct wide *wide, const struct wide_span *span)
{
    for (unsigned i = 0; i < span->count; i++)
        if (wide->results[span->first + i].verdict == VERDICT_LIMITED)
            return true;
    return false;
}

static bool call_is_over(const struct wide *wide)
{
    unsigned quotas = 0, quotas_over = 0;

    for (unsigned i = 0; i < wide->span_count; i++) {
        bool over = span_is_over(wide, &wide->spans[i]);
        if (over && !wide->spans[i].quota)
            return true;
        quotas += wide->spans[i].quota;
        quotas_over += over;
    }
    return quotas > 0 && quotas == quotas_over && !wide->quota_passes;
}

static void count_results(struct limiter *l, const struct wide *wide, bool call_over)
{
    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        bool charged = !call_over && !span_is_over(wide, span);
        for (unsigned k = 0; k < span->count; k++) {
            const struct limit_result *r = &wide->results[span->first + k];
            verdict_count_result(
                l, r, r->verdict == VERDICT_ALLOWED && !charged ? VERDICT_NOT_CHARGED : r->verdict);
        }
    }
}

static void set_wide_verdict(struct limiter *l, const struct wide *wide, struct decision *d)
{
    bool over = call_is_over(wide);

    *d = (struct decision){.verdict = over ? VERDICT_LIMITED : VERDICT_ALLOWED, .rejected_by = -1};
    count_results(l, wide, over);
}

void wide_from_answer(struct limiter *l, const struct limit_op *op,
                      const struct limit_reply *replies, struct decision *d)
{
    const struct wide *wide = op->wide;

    for (unsigned i = 0; i < wide->count; i++) {
        if (replies[i].failure && !wide->limits[i].shadow) {
            wide_without_redis(l, op, REDIS_FAILURE_SCRIPT, d);
            return;
        }
        verdict_set_result(&wide->results[i], &wide->limits[i], &replies[i]);
    }
    set_wide_verdict(l, wide, d);
}

/* --- Without Redis ---------------------------------------------------------------------------- */

static bool any_denies(struct limiter *l, const struct wide *wide)
{
    bool denies = false;

    for (unsigned i = 0; i < wide->count; i++) {
        struct limit_result *r = &wide->results[i];
        const struct op_limit *part = &wide->limits[i];
        *r = verdict_local_result(l, part);
        r->verdict = VERDICT_FAILED_OPEN;
        if (part->limit->on_failure != ON_FAILURE_DENY || part->shadow)
            continue;
        verdict_count_result(l, r, VERDICT_FAILED_CLOSED);
        denies = true;
    }
    return denies;
}

static bool rejects_locally(const struct op_limit *part)
{
    return !part->shadow && verdict_is_local(part);
}

/* Returns true if a descriptor with quota_mode passes whatever this process has counted. */
static bool quota_passes(const struct wide *wide)
{
    bool passes = wide->quota_passes;

    for (unsigned i = 0; i < wide->span_count; i++) {
        const struct wide_span *span = &wide->spans[i];
        bool rejects = false;
        for (unsigned k = 0; k < span->count; k++)
            rejects |= rejects_locally(&wide->limits[span->first + k]);
        passes |= span->quota && !rejects;
    }
    return passes;
}

void wide_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                        struct decision *d)
{
    struct fallback_request requests[WIDE_LIMITS_MAX];
    const struct wide *wide = op->wide;
    bool passes = quota_passes(wide);
    unsigned local = 0;

    counter_add(&l->stats->redis_failures[cause], 1);
    if (any_denies(l, wide)) {
        *d = (struct decision){.verdict = VERDICT_FAILED_CLOSED, .rejected_by = -1};
        return;
    }
    for (unsigned i = 0; i < wide->span_count; i++)
        for (unsigned k = 0; k < wide->spans[i].count; k++) {
            const struct op_limit *part = &wide->limits[wide->spans[i].first + k];
            if (!rejects_locally(part))
                continue;
            requests[local] = verdict_local_request(part, &wide->results[part->place]);
            requests[local].descriptor = i;
            requests[local].passes = passes;
            requests[local++].quota = wide->spans[i].quota;
        }
    (void)fallback_decide(l->fallback, requests, local, clock_wall_us());
    for (unsigned i = 0; i < wide->count; i++) {
        const struct op_limit *part = &wide->limits[i];
        if (part->shadow && verdict_is_local(part)) {
            requests[0] = verdict_local_request(part, &wide->results[i]);
            if (!fallback_decide(l->fallback, requests, 1, clock_wall_us()))
                wide->results[i].verdict = VERDICT_SHADOW;
        }
    }
    set_wide_verdict(l, wide, d);
    if (local == 0)
        d->verdict = VERDICT_FAILED_OPEN;
}
