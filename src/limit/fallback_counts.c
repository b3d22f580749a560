#include "limit/fallback_counts.h"

#include "limit/next_unit.h"
#include "policy/calendar.h"

enum {
    SMALL_STEP_US = 100000,   /* by which the clock may be set back without effect on windows */
    UNKNOWN_WAIT_US = 1000000 /* as lua/concurrency.lua */
};

static const int64_t most_used = (int64_t)1 << 53; /* units of a window, as in the scripts */

static int64_t divide_up(__int128 a, int64_t b)
{
    return a <= 0 ? 0 : (int64_t)((a + b - 1) / b);
}

/* With best effort, a request that costs more than the available units is granted these; it needs
 * one. */
static int64_t granted_cost(const struct fallback_request *request, int64_t available)
{
    if (!request->best_effort || request->cost <= available)
        return request->cost;
    return available > 0 ? available : 1;
}

/* The end of the outage is unknown. */
static int64_t wait_if_too_large(const struct fallback_request *request)
{
    return request->fits_whole ? UNKNOWN_WAIT_US : -1;
}

/* Bounds a debt, so that the arrival time is valid even for a bucket that takes over 36,000 years
 * to fill. */
static __int128 bounded_debt(__int128 debt, int64_t quota)
{
    __int128 most = (__int128)quota << 60;
    return debt < most ? debt : most;
}

/* The capacity as a debt. */
static __int128 full_bucket(int64_t capacity, int64_t period_us, int64_t quota)
{
    return bounded_debt((__int128)capacity * period_us, quota);
}

/* How far the theoretical arrival time lies ahead, in units of 1/scale µs. Includes the part
 * that a smaller burst has cut off. */
static __int128 debt_of(const struct fallback_state *state, int64_t now)
{
    __int128 debt = ((__int128)state->at_us - now) * state->scale + state->fraction;
    return !state->window && state->scale > 0 && debt > 0 ? debt : 0;
}

/* Stores the bucket: `all` is the whole debt, `debt` the part of it that requests see. */
static void set_bucket(struct fallback_state *state, const struct limit_result *r, int64_t now,
                       __int128 all, __int128 debt)
{
    __int128 owed = debt - full_bucket(r->capacity, r->limit->period_us, r->quota);

    *state = (struct fallback_state){.at_us = now + (int64_t)(all / r->quota),
                                     .fraction = (int64_t)(all % r->quota),
                                     .scale = r->quota,
                                     .period_us = r->limit->period_us,
                                     .capacity = r->capacity,
                                     .slack_us = (int64_t)((all - debt) / r->quota),
                                     .owed_us = divide_up(owed, r->quota)};
}

static __int128 of_period(__int128 debt, int64_t old_us, int64_t new_us)
{
    return debt / old_us * new_us + (debt % old_us * new_us + old_us - 1) / old_us;
}

/* Converts the usage to the current numbers, rounded up. Requests see at most a full bucket of
 * it and what is owed beyond, also if the clock was set back. */
static void bucket_renumber(struct fallback_state *state, const struct limit_result *r, int64_t now)
{
    int64_t period = r->limit->period_us;
    __int128 all = debt_of(state, now), full = full_bucket(r->capacity, period, r->quota);

    if (all == 0 || r->quota < 1)
        return;
    __int128 seen = full_bucket(state->capacity, state->period_us, state->scale) +
                    (__int128)state->slack_us * state->scale;
    __int128 before = seen + (__int128)state->owed_us * state->scale;
    bool set_back = all > before;
    if (set_back)
        all = before;
    __int128 owed = all > seen ? all - seen : 0;
    if (state->scale != r->quota || state->period_us != period || state->capacity != r->capacity) {
        all = bounded_debt(of_period(all, state->period_us, period), r->quota);
        owed = of_period(owed, state->period_us, period);
    } else if (!set_back)
        return;
    set_bucket(state, r, now, all, all < full + owed ? all : full + owed);
}

/* Generic cell rate algorithm (ITU-T I.371). `debt` is how far the theoretical arrival time lies
 * ahead, in units of 1/quota µs, so that period/quota needs no rounding. */
static void bucket_charge(struct fallback_state *state, const struct fallback_request *request,
                          int64_t now)
{
    struct limit_result *r = request->result;
    int64_t period = r->limit->period_us;
    __int128 all = debt_of(state, now), debt = all - (__int128)state->slack_us * r->quota,
             full = full_bucket(r->capacity, period, r->quota),
             most = full - (__int128)request->reserve * period;

    if (state->scale != r->quota || debt < 0)
        debt = 0;
    int64_t cost = granted_cost(request, most > debt ? (int64_t)((most - debt) / period) : 0);
    r->granted = cost;
    __int128 after = debt + (__int128)cost * period;
    bool admit = cost == 0 || after <= most;
    if ((admit || request->debt) && r->quota > 0) {
        debt = bounded_debt(after, r->quota);
        all = bounded_debt(all + (__int128)cost * period, r->quota);
        set_bucket(state, r, now, all > debt ? all : debt, debt);
        after = debt + (__int128)cost * period; /* for retry_after_us */
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = debt < full ? (int64_t)((full - debt) / period) : 0;
    r->retry_after_us = admit                                   ? 0
                        : cost > r->capacity - request->reserve ? wait_if_too_large(request)
                                                                : divide_up(after - most, r->quota);
    r->reset_us = divide_up(debt, r->quota);
    next_unit_set(r, next_unit_us(r->limit, r->quota, r->capacity,
                                  r->remaining > request->reserve ? r->remaining : request->reserve,
                                  r->reset_us, 0));
}

/* The window that contains `now`, if a new one is needed. */
static struct window window_at(const struct limit *limit, int64_t now)
{
    if (limit->calendar)
        return calendar_window(limit, now);
    int64_t into = limit->align == ALIGN_CLOCK ? (now - limit->offset_us) % limit->period_us : 0;
    int64_t start = now - (into < 0 ? into + limit->period_us : into);
    return (struct window){start, start + limit->period_us};
}

/* If the clock was set back slightly since the window began, uses that window. */
static int64_t not_before(const struct fallback_state *state, int64_t now)
{
    bool before = state->window && now < state->at_us && state->at_us - now < SMALL_STEP_US;
    return before ? state->at_us : now;
}

/* Carries usage of a window that is still running over to the window by the current numbers. If the
 * clock was set back, the window begins again with its used units. */
static void window_renumber(struct fallback_state *state, const struct limit *limit, int64_t now)
{
    int64_t period = limit->period_us;

    if (!state->window)
        return;
    if (now < state->at_us)
        state->at_us = window_at(limit, now).start_us;
    if (now - state->at_us >= state->period_us)
        return;
    if (limit->rest_us && state->fraction >= state->scale)
        return; /* a rest */
    if (limit->align == ALIGN_CLOCK) {
        struct window window = window_at(limit, now);
        state->at_us = window.start_us;
        state->period_us = window.end_us - window.start_us;
        return;
    }
    if (now - state->at_us >= period)
        state->at_us = now - (now - state->at_us) % period;
    state->period_us = period;
}

static void window_charge(struct fallback_state *state, const struct fallback_request *request,
                          int64_t now)
{
    struct limit_result *r = request->result;
    struct window window = window_at(r->limit, now);
    int64_t used = state->fraction;
    bool running = state->window && now >= state->at_us;

    if (r->limit->align == ALIGN_CLOCK)
        running = running && state->at_us == window.start_us;
    else if (running && now - state->at_us < state->period_us)
        window = (struct window){state->at_us, state->at_us + state->period_us};
    else
        running = false;
    if (!running)
        used = 0;
    int64_t available = r->capacity > used ? r->capacity - used : 0;
    int64_t cost = granted_cost(request, available - request->reserve);
    r->granted = cost;
    bool admit = cost == 0 || cost <= available - request->reserve;
    bool charge = admit || request->debt;
    if (charge && cost > 0) {
        available = available > cost ? available - cost : 0;
        if (available == 0 && window.end_us < now + r->limit->rest_us)
            window.end_us = now + r->limit->rest_us; /* lockout */
        *state =
            (struct fallback_state){.at_us = window.start_us,
                                    .fraction = used + cost < most_used ? used + cost : most_used,
                                    .scale = r->quota,
                                    .period_us = window.end_us - window.start_us,
                                    .window = true};
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = available;
    r->retry_after_us = admit                                   ? 0
                        : cost > r->capacity - request->reserve ? wait_if_too_large(request)
                                                                : window.end_us - now;
    r->reset_us = used || (charge && cost > 0) ? window.end_us - now : 0;
    next_unit_set(r, r->reset_us);
}

/* Units of requests in flight are in `fraction`; the value of `scale` marks such a state. */
int64_t fallback_in_flight(const struct fallback_state *state)
{
    return state->scale == IN_FLIGHT ? state->fraction : 0;
}

static void flight_charge(struct fallback_state *state, const struct fallback_request *request)
{
    struct limit_result *r = request->result;
    int64_t used = fallback_in_flight(state);
    int64_t most = r->capacity - request->reserve;
    bool admit = request->cost <= most - used;

    if (admit) {
        used += request->cost;
        *state = (struct fallback_state){.fraction = used, .scale = IN_FLIGHT};
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = r->capacity > used ? r->capacity - used : 0;
    r->retry_after_us = admit                  ? 0
                        : request->cost > most ? wait_if_too_large(request)
                                               : UNKNOWN_WAIT_US;
    r->reset_us = 0;
}

/* Runs before any charge, so that time passes by the current numbers even if the request is
 * rejected. */
void fallback_renumber(struct fallback_state *state, const struct limit_result *r, int64_t now)
{
    if (r->limit->kind == LIMIT_WINDOW)
        window_renumber(state, r->limit, not_before(state, now));
    else if (r->limit->kind != LIMIT_CONCURRENCY)
        bucket_renumber(state, r, now);
}

void fallback_charge(struct fallback_state *state, const struct fallback_request *request,
                     int64_t now)
{
    switch (request->result->limit->kind) {
    case LIMIT_WINDOW: window_charge(state, request, not_before(state, now)); break;
    case LIMIT_CONCURRENCY: flight_charge(state, request); break;
    default: bucket_charge(state, request, now);
    }
}

static void window_uncharge(struct fallback_state *state, const struct limit *limit, int64_t units,
                            int64_t now)
{
    bool rests = limit->rest_us && state->fraction >= state->scale;

    if (now >= state->at_us && now - state->at_us >= state->period_us)
        return; /* it has ended */
    state->fraction = state->fraction > units ? state->fraction - units : 0;
    if (rests && state->fraction < state->scale) {
        struct window window = window_at(limit, state->at_us);
        state->period_us = window.end_us - window.start_us;
    }
}

void fallback_uncharge(struct fallback_state *state, const struct limit *limit, int64_t units,
                       int64_t now)
{
    if (state->window) {
        window_uncharge(state, limit, units, now);
        return;
    }
    __int128 all = debt_of(state, now) - (__int128)units * state->period_us;
    if (state->scale <= 0)
        return;
    if (all < 0)
        all = 0;
    state->at_us = now + (int64_t)(all / state->scale);
    state->fraction = (int64_t)(all % state->scale);
    if (state->slack_us > all / state->scale)
        state->slack_us = (int64_t)(all / state->scale);
}
