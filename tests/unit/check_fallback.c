/* check_fallback.c - the local limits of one process: compared with an exact model, all-or-nothing
 * charges, bounded memory, concurrent threads. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "fault/test_clock.h"
#include "limit/fallback.h"
#include "run_suite.h"

static const uint64_t begin_us = 1700000000000000;

static struct limit limit_of(enum limit_kind kind, int64_t limit, int64_t burst, int64_t period_us)
{
    return (struct limit){
        .name = (char *)"x", .kind = kind, .limit = limit, .burst = burst, .period_us = period_us};
}

static struct limit_result result_for(const struct limit *limit)
{
    return (struct limit_result){.limit = limit,
                                 .quota = limit->limit,
                                 .capacity =
                                     limit->kind == LIMIT_WINDOW ? limit->limit : limit->burst};
}

static bool decide(struct fallback *f, const struct limit *limit, struct slice key, int64_t cost,
                   uint64_t now, struct limit_result *result)
{
    struct fallback_request request = {
        .key = key, .cost = cost, .result = result, .best_effort = limit->best_effort};
    *result = result_for(limit);
    test_clock_set_wall_us(now);
    return fallback_decide(f, &request, 1);
}

static bool decide_into_debt(struct fallback *f, const struct limit *limit, int64_t cost,
                             uint64_t now, struct limit_result *result)
{
    struct fallback_request request = {
        .key = SLICE("debtor"), .cost = cost, .result = result, .debt = true};
    *result = result_for(limit);
    test_clock_set_wall_us(now);
    return fallback_decide(f, &request, 1);
}

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 20) % n;
}

/* --- Buckets ---------------------------------------------------------------------------------- */

/* A token bucket that counts tokens in units of 1/period, in 128 bits: nothing is rounded. */
struct model {
    __int128 tokens; /* times period */
    uint64_t at;
};

static bool model_decide(struct model *m, const struct limit *limit, int64_t cost, uint64_t now)
{
    __int128 whole = (__int128)limit->burst * limit->period_us;
    m->tokens += (__int128)(now - m->at) * limit->limit;
    m->at = now;
    if (m->tokens > whole)
        m->tokens = whole;
    if (m->tokens < (__int128)cost * limit->period_us)
        return false;
    m->tokens -= (__int128)cost * limit->period_us;
    return true;
}

START_TEST(a_bucket_is_exact)
{
    static const struct {
        int64_t limit, burst, period_us;
    } numbers[] = {{100, 20, 60000000},       {3, 7, 1000000},
                   {7, 3, 1000000},           {1, 1, 1},
                   {1000000, 5, 1000003},     {999983, 999983, 86400000000},
                   {1, 1000000, 86400000000}, {5, 1, 3}};
    struct limit limit =
        limit_of(LIMIT_BUCKET, numbers[_i].limit, numbers[_i].burst, numbers[_i].period_us);
    struct model model = {(__int128)limit.burst * limit.period_us, begin_us};
    struct fallback *f = fallback_new(1000);
    struct limit_result r;
    uint64_t now = begin_us;

    random_state = 1;
    for (unsigned i = 0; i < 5000; i++) {
        int64_t cost = 1 + (int64_t)random_below(random_below(10) ? 2 : (uint64_t)limit.burst + 2);
        bool expected = model_decide(&model, &limit, cost, now);
        ck_assert_int_eq(decide(f, &limit, SLICE("key"), cost, now, &r), expected);
        ck_assert_int_eq(r.remaining, (int64_t)(model.tokens / limit.period_us));
        if (!expected && cost > limit.burst)
            ck_assert_int_eq(r.retry_after_us, -1);
        if (!expected && cost <= limit.burst) { /* exact to the µs */
            struct model early = model, later = model;
            ck_assert_int_gt(r.retry_after_us, 0);
            ck_assert(!model_decide(&early, &limit, cost, now + (uint64_t)r.retry_after_us - 1));
            ck_assert(model_decide(&later, &limit, cost, now + (uint64_t)r.retry_after_us));
        }
        ck_assert_int_eq(r.next_us == 0, r.remaining == limit.burst);
        if (r.next_us) { /* at most 1 µs too late, since reset_us is rounded */
            struct model early = model, later = model;
            int64_t next = r.remaining + 1;
            ck_assert(r.next_us == 1 ||
                      !model_decide(&early, &limit, next, now + (uint64_t)r.next_us - 2));
            ck_assert(model_decide(&later, &limit, next, now + (uint64_t)r.next_us));
        }
        now += random_below(4) ? random_below(1 + (uint64_t)(limit.period_us / limit.limit) * 2)
                               : random_below((uint64_t)limit.period_us);
    }
    fallback_free(f);
}
END_TEST

START_TEST(a_bucket_handles_changed_limits_and_a_clock_set_back)
{
    struct limit limit = limit_of(LIMIT_BUCKET, 10, 10, 1000000),
                 raised = limit_of(LIMIT_BUCKET, 7, 20, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;
    uint64_t back_us = begin_us - 3600000000;

    ck_assert(decide(f, &limit, SLICE("key"), 10, begin_us, &r));
    ck_assert_int_eq(r.reset_us, 1000000);
    ck_assert(!decide(f, &limit, SLICE("key"), 1, begin_us, &r));
    ck_assert_int_eq(r.retry_after_us, 100000);
    ck_assert(decide(f, &raised, SLICE("key"), 10, begin_us, &r)); /* minus the 10 used */
    ck_assert(!decide(f, &raised, SLICE("key"), 1, begin_us, &r));
    /* The clock is an hour back: at most the time to fill the bucket. */
    ck_assert(!decide(f, &limit, SLICE("key"), 1, back_us, &r));
    ck_assert_int_eq(r.retry_after_us, 100000);
    ck_assert(decide(f, &limit, SLICE("key"), 1, back_us + 100000, &r));
    ck_assert(!decide(f, &limit, SLICE("key"), 1, back_us + 100000, &r));

    ck_assert(decide(f, &limit, SLICE("same numbers"), 1, begin_us, &r));
    ck_assert(!decide(f, &limit, SLICE("same numbers"), 1, back_us, &r));
    ck_assert_int_eq(r.retry_after_us, 100000);
    ck_assert(!decide(f, &limit, SLICE("same numbers"), 1, back_us + 99999, &r));
    ck_assert_int_eq(r.retry_after_us, 1);
    ck_assert(decide(f, &limit, SLICE("same numbers"), 1, back_us + 100000, &r));
    ck_assert(decide(f, &limit, SLICE("same numbers"), 10, back_us + 1100000, &r));

    /* The units that a smaller burst hides stay hidden, and are not more. */
    ck_assert(decide(f, &raised, SLICE("hidden"), 20, begin_us, &r));
    ck_assert(!decide(f, &limit, SLICE("hidden"), 1, begin_us, &r));
    ck_assert(!decide(f, &limit, SLICE("hidden"), 1, back_us, &r));
    ck_assert(!decide(f, &raised, SLICE("hidden"), 1, back_us, &r));
    ck_assert_int_le(r.retry_after_us, 1000000 / 7 + 2);
    fallback_free(f);
}
END_TEST

START_TEST(a_bucket_with_extreme_times_still_counts)
{
    struct limit limit = limit_of(LIMIT_BUCKET, 1, INT64_MAX / 2, INT64_MAX / 2);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    ck_assert(!decide(f, &limit, SLICE("key"), 1000000, begin_us, &r));
    ck_assert_int_ge(r.reset_us, 0);
    limit.period_us = 86400000000;
    ck_assert(decide(f, &limit, SLICE("key"), 1000000, begin_us, &r));
    ck_assert_int_eq(r.reset_us, 86400000000 * 1000000);
    fallback_free(f);
}
END_TEST

START_TEST(best_effort_grants_the_remaining_units)
{
    struct limit limit = limit_of(LIMIT_BUCKET, 10, 10, 1000000),
                 window = limit_of(LIMIT_WINDOW, 10, 10, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    limit.best_effort = window.best_effort = true;
    for (int i = 0; i < 2; i++) {
        const struct limit *l = i ? &window : &limit;
        struct slice key = i ? SLICE("w") : SLICE("b");
        ck_assert(decide(f, l, key, 7, begin_us, &r));
        ck_assert(decide(f, l, key, 7, begin_us, &r));
        ck_assert_int_eq(r.remaining, 0);
        ck_assert(!decide(f, l, key, 7, begin_us, &r));
        ck_assert(!decide(f, l, key, 20, begin_us, &r));
        ck_assert_int_eq(r.retry_after_us, i ? 1000000 : 100000); /* until one unit is free */
    }
    fallback_free(f);
}
END_TEST

/* --- Windows ---------------------------------------------------------------------------------- */

START_TEST(a_window_starts_at_the_first_request)
{
    struct limit limit = limit_of(LIMIT_WINDOW, 3, 3, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    for (int i = 0; i < 3; i++)
        ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us + 100, &r));
    ck_assert(!decide(f, &limit, SLICE("key"), 1, begin_us + 400100, &r));
    ck_assert_int_eq(r.retry_after_us, 600000);
    ck_assert(!decide(f, &limit, SLICE("key"), 1, begin_us + 1000099, &r));
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us + 1000100, &r));
    ck_assert_int_eq(r.remaining, 2);
    ck_assert_int_eq(r.reset_us, 1000000);
    ck_assert(!decide(f, &limit, SLICE("key"), 4, begin_us + 1000100, &r));
    ck_assert_int_eq(r.retry_after_us, -1);
    fallback_free(f);
}
END_TEST

START_TEST(an_aligned_window_follows_the_clock)
{
    struct limit limit = limit_of(LIMIT_WINDOW, 1, 1, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    limit.align = ALIGN_CLOCK;
    limit.offset_us = _i ? -750000 : 250000; /* the same windows */
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us + 249999, &r));
    ck_assert_int_eq(r.reset_us, 1);
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us + 250000, &r));
    ck_assert(!decide(f, &limit, SLICE("key"), 1, begin_us + 1249999, &r));
    ck_assert_int_eq(r.retry_after_us, 1);
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us + 1250000, &r));
    fallback_free(f);
}
END_TEST

/* --- Several limits, many keys ---------------------------------------------------------------- */

/* As in Redis, see MODE_EVERY. */
START_TEST(an_overrun_is_charged_into_debt)
{
    static const int64_t second = 1000000;
    struct limit bucket = limit_of(LIMIT_BUCKET, 10, 10, 10 * second), larger = bucket;
    struct limit window = limit_of(LIMIT_WINDOW, 10, 10, 10 * second);
    struct fallback *f = fallback_new(1000), *windows = fallback_new(1000);
    uint64_t now = begin_us;
    struct limit_result r;

    ck_assert(!decide_into_debt(f, &bucket, 25, now, &r));
    ck_assert_int_eq(r.remaining, 0);
    ck_assert_int_eq(r.reset_us, 25 * second);
    ck_assert_int_eq(r.retry_after_us, -1);
    ck_assert(!decide_into_debt(f, &bucket, 2, now, &r));
    ck_assert_int_eq(r.reset_us, 27 * second);
    ck_assert_int_eq(r.retry_after_us, 19 * second);
    ck_assert(!decide(f, &bucket, SLICE("debtor"), 1, now, &r)); /* without debt */
    ck_assert_int_eq(r.retry_after_us, 18 * second);
    ck_assert_int_eq(r.reset_us, 27 * second);
    /* An hour back: the debt is no larger. A larger burst: it stays. */
    now -= 3600 * (uint64_t)second;
    ck_assert(!decide(f, &bucket, SLICE("debtor"), 1, now, &r));
    ck_assert_int_eq(r.reset_us, 27 * second);
    larger.burst = 20;
    ck_assert(!decide(f, &larger, SLICE("debtor"), 1, now, &r));
    ck_assert_int_eq(r.retry_after_us, 8 * second);
    ck_assert(!decide(f, &larger, SLICE("debtor"), 1, now + 8 * (uint64_t)second - 1, &r));
    ck_assert(decide_into_debt(f, &larger, 1, now + 8 * (uint64_t)second, &r));
    ck_assert_int_eq(r.remaining, 0);

    ck_assert(!decide_into_debt(windows, &window, 25, now, &r));
    ck_assert_int_eq(r.remaining, 0);
    ck_assert_int_eq(r.retry_after_us, -1);
    ck_assert(!decide_into_debt(windows, &window, 1, now + 1, &r));
    ck_assert_int_eq(r.retry_after_us, 10 * second - 1);
    ck_assert(fallback_refund(
        windows, &(struct limit_result){.limit = &window, .granted = 17, .reset_us = 10 * second},
        SLICE("debtor"), clock_us()));
    ck_assert(decide_into_debt(windows, &window, 1, now + 2, &r)); /* the last of 10 */
    ck_assert(!decide(windows, &window, SLICE("debtor"), 1, now + 2, &r));

    for (unsigned i = 0; i < 3; i++) { /* bounded */
        ck_assert(!decide_into_debt(f, &bucket, (int64_t)1 << 60, now, &r));
        ck_assert(!decide_into_debt(windows, &window, (int64_t)1 << 60, now, &r));
    }
    ck_assert_int_gt(r.reset_us, 0);
    fallback_free(f);
    fallback_free(windows);
}
END_TEST

/* The clock is set back by less than 100 ms. */
START_TEST(an_earlier_clock_does_not_reset_a_window)
{
    struct limit first = limit_of(LIMIT_WINDOW, 1, 1, 60000000), aligned = first;
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    aligned.align = ALIGN_CLOCK;
    ck_assert(decide(f, &first, SLICE("first"), 1, begin_us, &r));
    ck_assert(!decide(f, &first, SLICE("first"), 1, begin_us - 5, &r));
    ck_assert(!decide(f, &first, SLICE("first"), 1, begin_us + 1, &r));
    uint64_t start = begin_us / 60000000 * 60000000;
    ck_assert(decide(f, &aligned, SLICE("aligned"), 1, start, &r));
    ck_assert(!decide(f, &aligned, SLICE("aligned"), 1, start - 5, &r));
    ck_assert(!decide(f, &aligned, SLICE("aligned"), 1, start + 1, &r));
    fallback_free(f);
}
END_TEST

/* The window begins again at the earlier time, with its used units. */
START_TEST(a_window_keeps_its_units_if_the_clock_is_set_back)
{
    static const int64_t minute = 60000000;
    static const int64_t steps[] = {200000, 50000000, 600000000};
    struct limit limit = limit_of(LIMIT_WINDOW, 3, 3, minute);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;
    char key[16];

    for (unsigned i = 0; i < 3 * COUNT_OF(steps); i++) {
        uint64_t now = begin_us / 60000000 * 60000000, back = now - (uint64_t)steps[i / 3];
        snprintf(key, sizeof key, "key %u", i);
        limit.align = i % 3 == 1 ? ALIGN_CLOCK : ALIGN_FIRST_REQUEST;
        limit.rest_us = i % 3 == 2 ? 10 * minute : 0;
        ck_assert(decide(f, &limit, slice_of(key), 2, now, &r));
        ck_assert(!decide(f, &limit, slice_of(key), 2, back, &r));
        ck_assert_int_eq(r.remaining, 1);
        ck_assert(r.retry_after_us > 0 && r.retry_after_us <= minute);
        ck_assert(decide(f, &limit, slice_of(key), 1, back, &r));
        ck_assert(!decide(f, &limit, slice_of(key), 1, back - 1000000, &r));
        ck_assert_int_le(r.retry_after_us, limit.rest_us ? limit.rest_us : minute);
        ck_assert_int_gt(r.retry_after_us, limit.rest_us / 2);
        ck_assert(
            decide(f, &limit, slice_of(key), 3, back - 1000000 + (uint64_t)r.retry_after_us, &r));
    }
    fallback_free(f);
}
END_TEST

/* As tests/lua/edits.lua for Redis: n used units remain used in the edited limit, at most its
 * burst. */
START_TEST(a_changed_bucket_keeps_its_used_units)
{
    static const int64_t hour = 3600000000, day = 86400000000;
    struct limit hourly = limit_of(LIMIT_BUCKET, 1000, 1000, hour);
    struct limit daily = limit_of(LIMIT_BUCKET, 1000, 1000, day);
    struct limit small = limit_of(LIMIT_BUCKET, 10, 10, 60000000);
    struct limit large = limit_of(LIMIT_BUCKET, 10, 100, 60000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    ck_assert(decide(f, &hourly, SLICE("tightened"), 1000, begin_us, &r));
    ck_assert(!decide(f, &daily, SLICE("tightened"), 2, begin_us + 5000000, &r)); /* 1 has leaked */
    ck_assert(decide(f, &daily, SLICE("tightened"), 1, begin_us + 5000000, &r));
    ck_assert_int_eq(r.remaining, 0);

    ck_assert(decide(f, &daily, SLICE("loosened"), 1000, begin_us, &r));
    ck_assert(!decide(f, &hourly, SLICE("loosened"), 1, begin_us, &r));
    ck_assert_int_eq(r.retry_after_us, 3600000);
    ck_assert(decide(f, &hourly, SLICE("loosened"), 1, begin_us + 3600000, &r));

    ck_assert(decide(f, &large, SLICE("burst"), 100, begin_us, &r));
    ck_assert(!decide(f, &small, SLICE("burst"), 1, begin_us, &r));
    ck_assert_int_eq(r.retry_after_us, 6000000);
    ck_assert(decide(f, &small, SLICE("burst"), 1, begin_us + 6000000, &r));
    ck_assert(!decide(f, &large, SLICE("burst"), 1, begin_us + 6000000,
                      &r)); /* not forgotten for a larger one */
    fallback_free(f);
}
END_TEST

START_TEST(a_changed_window_keeps_its_used_units)
{
    static const int64_t minute = 60000000;
    struct limit longer = limit_of(LIMIT_WINDOW, 100, 0, 60 * minute);
    struct limit shorter = limit_of(LIMIT_WINDOW, 100, 0, minute);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    for (unsigned clock = 0; clock < 2; clock++) {
        struct slice key = clock ? SLICE("clock") : SLICE("first request");
        uint64_t now = begin_us + 30 * (uint64_t)minute;
        longer.align = shorter.align = clock ? ALIGN_CLOCK : ALIGN_FIRST_REQUEST;
        ck_assert(decide(f, &longer, key, 1, begin_us, &r));
        ck_assert(decide(f, &longer, key, 99, now, &r));
        ck_assert(!decide(f, &shorter, key, 1, now + 1, &r));
        ck_assert_int_le(r.retry_after_us, minute);
        ck_assert(decide(f, &shorter, key, 100, now + 1 + (uint64_t)r.retry_after_us, &r));
        ck_assert(!decide(f, &longer, key, 1, now + 2 + (uint64_t)minute, &r));
    }
    fallback_free(f);
}
END_TEST

START_TEST(a_lockout_lasts_for_its_rest_time)
{
    static const int64_t minute = 60000000;
    struct limit limit = limit_of(LIMIT_WINDOW, 2, 0, minute);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    limit.rest_us = 10 * minute;
    ck_assert(decide(f, &limit, SLICE("k"), 1, begin_us, &r));
    ck_assert_int_eq(r.reset_us, minute);
    ck_assert(decide(f, &limit, SLICE("k"), 1, begin_us + 5000000, &r));
    ck_assert_int_eq(r.reset_us, 10 * minute);
    ck_assert(!decide(f, &limit, SLICE("k"), 1, begin_us + 2 * (uint64_t)minute, &r));
    ck_assert_int_eq(r.retry_after_us, 8 * minute + 5000000);
    ck_assert(!decide(f, &limit, SLICE("k"), 1, begin_us + 4999999 + 10 * (uint64_t)minute, &r));
    ck_assert(decide(f, &limit, SLICE("k"), 1, begin_us + 5000000 + 10 * (uint64_t)minute, &r));
    ck_assert_int_eq(r.remaining, 1);
    fallback_free(f);
}
END_TEST

START_TEST(several_limits_are_charged_all_or_none)
{
    struct limit wide = limit_of(LIMIT_BUCKET, 10, 10, 1000000),
                 narrow = limit_of(LIMIT_WINDOW, 2, 2, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r[3];
    struct fallback_request asks[] = {{.key = SLICE("wide"), .cost = 1, .result = &r[0]},
                                      {.key = SLICE("narrow"), .cost = 1, .result = &r[1]},
                                      {.key = SLICE("other"), .cost = 1, .result = &r[2]}};

    test_clock_set_wall_us(begin_us);
    for (int i = 0; i < 5; i++) {
        r[0] = r[2] = result_for(&wide);
        r[1] = result_for(&narrow);
        ck_assert_int_eq(fallback_decide(f, asks, 3), i < 2);
    }
    ck_assert_int_eq(r[0].verdict, VERDICT_ALLOWED);
    ck_assert_int_eq(r[0].remaining, 8); /* the current value, not charged */
    ck_assert_int_eq(r[1].verdict, VERDICT_LIMITED);
    ck_assert_int_eq(r[2].remaining, 8);
    ck_assert(r[0].local);
    fallback_free(f);
}
END_TEST

static int64_t left_after_refund(struct fallback *f, struct limit *limit, uint64_t charged_us,
                                 int64_t cost, int64_t units, uint64_t now_us)
{
    struct limit_result r = result_for(limit);
    struct fallback_request charge = {.key = SLICE("k"), .cost = cost, .result = &r}, ask = charge;

    test_clock_set_wall_us(charged_us);
    ck_assert(fallback_decide(f, &charge, 1));
    test_clock_set_wall_us(now_us);
    r.granted = units;
    fallback_refund(f, &r, SLICE("k"), clock_us() - (now_us - charged_us));
    ask.cost = 0;
    r = result_for(limit);
    ck_assert(fallback_decide(f, &ask, 1));
    return r.remaining;
}

START_TEST(refunded_units_can_be_charged_again)
{
    struct limit limits[] = {limit_of(LIMIT_BUCKET, 10, 10, 10000000),
                             limit_of(LIMIT_WINDOW, 10, 10, 10000000)};

    for (unsigned i = 0; i < 2; i++) {
        struct fallback *f = fallback_new(1000);
        ck_assert_int_eq(left_after_refund(f, &limits[i], begin_us, 8, 3, begin_us), 5);
        ck_assert_int_eq(left_after_refund(f, &limits[i], begin_us, 5, 5, begin_us + 10), 5);
        ck_assert_int_eq(left_after_refund(f, &limits[i], begin_us + 10, 1, 100, begin_us + 10),
                         10);
        ck_assert_int_eq(left_after_refund(f, &limits[i], begin_us + 10, 10, 10, begin_us + 20),
                         10);
        ck_assert_int_eq(left_after_refund(f, &limits[i], begin_us + 20, 10, 1, begin_us + 20), 1);
        fallback_free(f);
    }
}
END_TEST

START_TEST(a_refund_for_a_window_that_has_ended_gives_nothing)
{
    struct limit limit = limit_of(LIMIT_WINDOW, 10, 10, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r = result_for(&limit);

    ck_assert_int_eq(left_after_refund(f, &limit, begin_us, 10, 10, begin_us + 1000000), 10);
    ck_assert_int_eq(left_after_refund(f, &limit, begin_us + 1000000, 4, 0, begin_us + 1000000), 6);
    r.reset_us = INT64_MAX;
    ck_assert(fallback_refund(f, &r, SLICE("unknown"), clock_us()));
    fallback_add_in_flight(f, SLICE("in flight"), 3);
    fallback_refund(f, &r, SLICE("in flight"), clock_us()); /* ends by fallback_add_in_flight() */
    fallback_free(f);
}
END_TEST

START_TEST(a_refund_does_not_reach_the_next_window)
{
    struct limit limit = limit_of(LIMIT_WINDOW, 10, 10, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r, next;

    limit.align = ALIGN_CLOCK;
    ck_assert(decide(f, &limit, SLICE("k"), 4, begin_us + 999999, &r));
    uint64_t since_us = clock_us() - 1;
    ck_assert(decide(f, &limit, SLICE("k"), 10, begin_us + 1000000, &next));
    ck_assert(!fallback_refund(f, &r, SLICE("k"), since_us));
    ck_assert(!decide(f, &limit, SLICE("k"), 1, begin_us + 1000000, &next));
    fallback_free(f);
}
END_TEST

START_TEST(a_refund_ends_the_rest_of_a_lockout)
{
    int64_t minute = 60000000;
    struct limit limit = limit_of(LIMIT_WINDOW, 5, 5, minute);
    struct fallback *f = fallback_new(1000);

    limit.rest_us = 60 * minute;
    ck_assert_int_eq(left_after_refund(f, &limit, begin_us, 4, 0, begin_us), 1);
    ck_assert_int_eq(
        left_after_refund(f, &limit, begin_us + minute / 2, 1, 1, begin_us + minute / 2), 1);
    ck_assert_int_eq(left_after_refund(f, &limit, begin_us + minute, 1, 0, begin_us + minute), 4);
    ck_assert_int_eq(left_after_refund(f, &limit, begin_us + minute, 4, 0, begin_us + minute), 0);
    ck_assert_int_eq(
        left_after_refund(f, &limit, begin_us + 61 * minute, 1, 0, begin_us + 61 * minute), 4);
    fallback_free(f);
}
END_TEST

START_TEST(a_request_can_contain_a_key_twice)
{
    struct limit limit = limit_of(LIMIT_BUCKET, 3, 3, 1000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r[2] = {result_for(&limit), result_for(&limit)};
    struct fallback_request asks[] = {{.key = SLICE("key"), .cost = 2, .result = &r[0]},
                                      {.key = SLICE("key"), .cost = 2, .result = &r[1]}};

    ck_assert(!fallback_decide(f, asks, 2));
    ck_assert(decide(f, &limit, SLICE("key"), 3, begin_us, &r[0]));
    fallback_free(f);
}
END_TEST

START_TEST(memory_is_bounded_and_the_oldest_keys_are_evicted)
{
    struct limit limit = limit_of(LIMIT_BUCKET, 1, 1, 3600000000);
    struct fallback *f = fallback_new(2000);
    struct limit_result r;
    char key[600];
    unsigned kept = 0;

    memset(key, 'k', sizeof key); /* too long to be stored whole */
    for (unsigned i = 0; i < 100000; i++) {
        memcpy(key + 500, &i, sizeof i);
        ck_assert(decide(f, &limit, (struct slice){key, sizeof key}, 1, begin_us, &r));
    }
    for (unsigned i = 99500; i < 100000; i++) {
        memcpy(key + 500, &i, sizeof i);
        kept += !decide(f, &limit, (struct slice){key, sizeof key}, 1, begin_us, &r);
    }
    ck_assert_uint_eq(kept, 500);
    fallback_free(f);
}
END_TEST

START_TEST(requests_in_flight_are_counted_until_they_end)
{
    struct limit limit = limit_of(LIMIT_CONCURRENCY, 3, 3, 10000000);
    struct fallback *f = fallback_new(1000);
    struct limit_result r;

    fallback_add_in_flight(f, SLICE("key"), 2); /* admitted by Redis before the outage */
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us, &r));
    ck_assert_int_eq(r.remaining, 0);
    ck_assert(!decide(f, &limit, SLICE("key"), 1, begin_us + 100000000,
                      &r)); /* entries do not expire by time */
    ck_assert_int_eq(r.retry_after_us, 1000000);
    fallback_add_in_flight(f, SLICE("key"), -1);
    ck_assert(!decide(f, &limit, SLICE("key"), 2, begin_us, &r));
    ck_assert(decide(f, &limit, SLICE("key"), 1, begin_us, &r));
    ck_assert(!decide(f, &limit, SLICE("other"), 4, begin_us, &r));
    ck_assert_int_eq(r.retry_after_us, -1);
    fallback_add_in_flight(f, SLICE("key"), -100);
    ck_assert(decide(f, &limit, SLICE("key"), 3, begin_us, &r));
    fallback_free(f);
}
END_TEST

/* By a reload. The requests that end were admitted by the old limit. */
START_TEST(a_concurrency_limit_that_becomes_another_does_not_reset_it)
{
    struct limit others[] = {limit_of(LIMIT_BUCKET, 10, 10, 1000000),
                             limit_of(LIMIT_WINDOW, 10, 10, 1000000)};
    struct limit concurrency = limit_of(LIMIT_CONCURRENCY, 3, 3, 10000000);
    struct limit_result r;

    for (unsigned i = 0; i < 2; i++) {
        struct fallback *f = fallback_new(1000);
        fallback_add_in_flight(f, SLICE("key"), 2);
        ck_assert(decide(f, &others[i], SLICE("key"), 10, begin_us, &r));
        fallback_add_in_flight(f, SLICE("key"), -2);
        ck_assert(!decide(f, &others[i], SLICE("key"), 1, begin_us, &r));
        fallback_add_in_flight(f, SLICE("key"), 3);
        ck_assert(!decide(f, &concurrency, SLICE("key"), 1, begin_us, &r));
        fallback_free(f);
    }
}
END_TEST

/* --- Threads ---------------------------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 10000 };

struct thread {
    pthread_t id;
    unsigned number, admitted;
    struct fallback *fallback;
};

static const struct limit shared_limit = {.name = (char *)"shared",
                                          .kind = LIMIT_BUCKET,
                                          .limit = 500,
                                          .burst = 500,
                                          .period_us = 86400000000};

/* Two limits with random keys, in either order: a lock-order bug would deadlock here. */
static void *send_random_requests(void *arg)
{
    struct thread *t = arg;
    unsigned state = t->number * 7919 + 1;

    for (unsigned i = 0; i < ROUNDS; i++) {
        char keys[2][8];
        struct limit_result r[2] = {result_for(&shared_limit), result_for(&shared_limit)};
        struct fallback_request asks[2];
        for (int j = 0; j < 2; j++) {
            state = state * 1103515245 + 12345;
            int n = snprintf(keys[j], sizeof keys[j], "%c%u", j ? 'b' : 'a', state >> 16 & 15);
            asks[j] =
                (struct fallback_request){.key = {keys[j], (size_t)n}, .cost = 1, .result = &r[j]};
        }
        if (i % 2) {
            struct fallback_request swapped = asks[0];
            asks[0] = asks[1], asks[1] = swapped;
        }
        t->admitted += fallback_decide(t->fallback, asks, 2);
    }
    return NULL;
}

START_TEST(threads_together_admit_exactly_the_limit)
{
    struct thread threads[THREADS] = {0};
    struct fallback *f = fallback_new(4000);
    struct limit_result r;
    unsigned admitted = 0;
    int64_t left = 0;

    test_clock_set_wall_us(begin_us);
    for (unsigned i = 0; i < THREADS; i++) {
        threads[i].number = i;
        threads[i].fallback = f;
        ck_assert_int_eq(pthread_create(&threads[i].id, NULL, send_random_requests, &threads[i]),
                         0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        admitted += threads[i].admitted;
    }
    for (unsigned i = 0; i < 16; i++) {
        char key[8];
        int n = snprintf(key, sizeof key, "a%u", i);
        (void)!decide(f, &shared_limit, (struct slice){key, (size_t)n}, 0, begin_us, &r);
        left += r.remaining;
    }
    ck_assert_uint_gt(admitted, 0);
    ck_assert_int_eq(16 * shared_limit.burst - left,
                     admitted); /* every admission took one from an a-key */
    fallback_free(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fallback");
    TCase *tests = tcase_create("fallback");

    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, a_bucket_is_exact, 0, 8);
    tcase_add_test(tests, a_changed_bucket_keeps_its_used_units);
    tcase_add_test(tests, a_changed_window_keeps_its_used_units);
    tcase_add_test(tests, a_bucket_handles_changed_limits_and_a_clock_set_back);
    tcase_add_test(tests, a_bucket_with_extreme_times_still_counts);
    tcase_add_test(tests, best_effort_grants_the_remaining_units);
    tcase_add_test(tests, a_window_starts_at_the_first_request);
    tcase_add_loop_test(tests, an_aligned_window_follows_the_clock, 0, 2);
    tcase_add_test(tests, a_lockout_lasts_for_its_rest_time);
    tcase_add_test(tests, an_overrun_is_charged_into_debt);
    tcase_add_test(tests, an_earlier_clock_does_not_reset_a_window);
    tcase_add_test(tests, a_window_keeps_its_units_if_the_clock_is_set_back);
    tcase_add_test(tests, several_limits_are_charged_all_or_none);
    tcase_add_test(tests, refunded_units_can_be_charged_again);
    tcase_add_test(tests, a_refund_for_a_window_that_has_ended_gives_nothing);
    tcase_add_test(tests, a_refund_does_not_reach_the_next_window);
    tcase_add_test(tests, a_refund_ends_the_rest_of_a_lockout);
    tcase_add_test(tests, a_request_can_contain_a_key_twice);
    tcase_add_test(tests, memory_is_bounded_and_the_oldest_keys_are_evicted);
    tcase_add_test(tests, requests_in_flight_are_counted_until_they_end);
    tcase_add_test(tests, a_concurrency_limit_that_becomes_another_does_not_reset_it);
    tcase_add_test(tests, threads_together_admit_exactly_the_limit);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
