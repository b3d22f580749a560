/* read_variants.c - periods of plans and clients: copies of limits that differ only in the
 * period. */
#include <stdlib.h>

#include "config/sections.h"
#include "policy/shipped_limiter.h"
#include "policy/zone.h"

static const int64_t day_us = INT64_C(86400000000);

static bool same_period(const struct limit *a, const struct limit *b)
{
    return a->base == b->base && a->period_us == b->period_us && a->calendar == b->calendar;
}

/* A counter that several clients share has one period: with two, each request would count it by
 * its own client's, and the shorter would reset what the longer one counts. */
static bool may_vary(struct loading *l, const struct node *period, const struct limit *limit)
{
    if (limit->kind == LIMIT_CONCURRENCY)
        mistake_of_key(l, period,
                       "concurrency counts requests in flight and has no period; remove it");
    else if (!limit_is_per_client(limit))
        mistake_of_key(
            l, period,
            "clients share the count of limit %s, so it has one period; add client to its per, or "
            "write a rule with match: { client: ... } and a limit of its own",
            limit->name);
    else
        return true;
    return false;
}

/* Sets the windows of a limit whose period has changed, as limit_finish_windows() does. */
static bool windows_fit(struct loading *l, const struct node *period, struct limit *made)
{
    bool was_calendar = made->zone != NULL;

    if (!made->calendar && was_calendar && made->period_us == day_us)
        made->calendar = CALENDAR_DAY;
    if (made->calendar && !limit_has_align(made)) {
        mistake(l, period,
                "%s does not support calendar periods; write a duration, or use fixed_window",
                made->script);
        return false;
    }
    if (made->calendar && !made->zone) {
        made->time_zone = arena_text(l->arena, SLICE("UTC"));
        made->zone = arena_zeroed(l->arena, 1, sizeof *made->zone);
    }
    made->has_offset |= made->calendar != CALENDAR_NONE;
    if (llabs(made->offset_us) >= limit_shortest_window(made)) {
        mistake(l, period, "is not more than the offset of limit %s", made->name);
        return false;
    }
    if (made->calendar && made->offset_us % 1000000 != 0) {
        mistake(l, period, "follows the calendar, so the offset of limit %s takes whole seconds",
                made->name);
        return false;
    }
    return true;
}

const struct limit *limit_variant(struct loading *l, const struct node *period,
                                  const struct limit *limit, const struct limit *written)
{
    struct policy *policy = l->policy;
    struct limit made = *limit;

    if (!limit->script || !limit->period_us || !may_vary(l, period, limit))
        return NULL;
    made.period_us = written->period_us;
    limit_copy_options(&made);
    made.calendar = written->calendar;
    if (!windows_fit(l, period, &made) || same_period(&made, limit))
        return NULL;
    for (unsigned i = 0; i < policy->variant_count; i++)
        if (same_period(policy->variants[i], &made))
            return policy->variants[i];
    if (policy->variant_count == VARIANTS_MAX) {
        mistake(l, period, "plans and clients have more than %d other periods", VARIANTS_MAX);
        return NULL;
    }
    if (!policy->variants)
        policy->variants = arena_zeroed(l->arena, VARIANTS_MAX, sizeof *policy->variants);
    made.index = policy->limit_count + policy->variant_count;
    policy->variants[policy->variant_count] = arena_zeroed(l->arena, 1, sizeof made);
    *policy->variants[policy->variant_count] = made;
    return policy->variants[policy->variant_count++];
}
