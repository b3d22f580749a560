/* check_leases.c - leases: workers take, spend and return units in any order, and admissions never
 * exceed the definition of the limit. */
#include <check.h>
#include <stdlib.h>

#include "base/memory.h"
#include "limit/leases.h"
#include "run_suite.h"

enum { WORKERS = 3, ROUNDS = 1000, TICKS = 8000, LATENCY_MAX = 40, MARGIN = 50 };

static uint64_t random_state;

static int64_t random_from(int64_t low, int64_t high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((random_state >> 33) % (uint64_t)(high - low + 1));
}

/* A call in flight to Redis, or a refund. */
struct call {
    bool in_flight, executed;
    uint64_t requested_us, at_us, back_us;
    int64_t needed, extra, granted, remaining, reset_us;
};

struct worker {
    struct leases *leases;
    struct lease *lease;
    struct call decision_request;
    struct call refund; /* `extra` units, charged at `reset_us` */
    int64_t charged_at_us;
    unsigned busy; /* percentage of ticks with a request */
};

/* The state in Redis and the actual usage. Bucket: units not yet leaked, times the period; window:
 * units. */
static struct {
    struct limit limit;
    struct limit_numbers numbers;
    int64_t level, spent;
    uint64_t at_us, spent_at_us;
    uint64_t window_us, spent_window_us; /* their starts */
    int64_t all_spent;
} redis;

static int64_t scale(void)
{
    return redis.limit.kind == LIMIT_BUCKET ? redis.limit.period_us : 1;
}

static void pass_time(int64_t *level, uint64_t *at_us, uint64_t *window_us, uint64_t now_us)
{
    if (redis.limit.kind == LIMIT_BUCKET) {
        int64_t leaked = (int64_t)(now_us - *at_us) * redis.numbers.limit;
        *level = leaked < *level ? *level - leaked : 0;
    } else if (now_us / (uint64_t)redis.limit.period_us != *window_us) {
        *window_us = now_us / (uint64_t)redis.limit.period_us;
        *level = 0;
    }
    *at_us = now_us;
}

static int64_t capacity(void)
{
    return redis.limit.kind == LIMIT_BUCKET ? redis.numbers.burst : redis.numbers.limit;
}

/* The definition of the limit: a bucket without leases would also have admitted it. */
static void spend(int64_t units, uint64_t now_us)
{
    pass_time(&redis.spent, &redis.spent_at_us, &redis.spent_window_us, now_us);
    redis.spent += units * scale();
    redis.all_spent += units;
    ck_assert_msg(redis.spent <= capacity() * scale(), "at %d us: %lld units of %lld are spent",
                  (int)now_us, (long long)(redis.spent / scale() + 1), (long long)capacity());
}

static int64_t reset_us(uint64_t now_us)
{
    if (redis.limit.kind == LIMIT_BUCKET)
        return (redis.level + redis.numbers.limit - 1) / redis.numbers.limit;
    return redis.limit.period_us - (int64_t)(now_us % (uint64_t)redis.limit.period_us);
}

static void execute_request(struct worker *w, uint64_t now_us)
{
    struct call *decision_request = &w->decision_request;

    pass_time(&redis.level, &redis.at_us, &redis.window_us, now_us);
    int64_t room = (capacity() * scale() - redis.level) / scale(),
            wanted = decision_request->needed + decision_request->extra;
    decision_request->granted = room < wanted ? room : wanted;
    redis.level += decision_request->granted * scale();
    decision_request->remaining = room - decision_request->granted;
    decision_request->reset_us = reset_us(now_us);
    decision_request->executed = true;
    spend(decision_request->granted < decision_request->needed ? decision_request->granted
                                                               : decision_request->needed,
          now_us);
}

static void execute_refund(struct worker *w, uint64_t now_us)
{
    pass_time(&redis.level, &redis.at_us, &redis.window_us, now_us);
    if (redis.limit.kind == LIMIT_BUCKET ||
        (uint64_t)(w->charged_at_us / redis.limit.period_us) == redis.window_us)
        redis.level -= w->refund.extra * scale();
    if (redis.level < 0)
        redis.level = 0;
    w->refund.in_flight = false;
}

static void handle_reply(struct worker *w, uint64_t now_us)
{
    struct call *decision_request = &w->decision_request;
    int64_t units = decision_request->granted - decision_request->needed;

    decision_request->in_flight = false;
    if (units <= 0)
        return;
    lease_take(w->lease,
               &(struct lease_charge){.units = units,
                                      .spent = decision_request->needed,
                                      .remaining = decision_request->remaining,
                                      .reset_us = decision_request->reset_us,
                                      .time_us = (int64_t)decision_request->at_us,
                                      .requested_us = decision_request->requested_us},
               now_us);
    w->charged_at_us = (int64_t)decision_request->at_us;
}

static void decision_request(struct worker *w, uint64_t now_us)
{
    w->decision_request =
        (struct call){.in_flight = true,
                      .requested_us = now_us,
                      .at_us = now_us + (uint64_t)random_from(0, LATENCY_MAX),
                      .needed = random_from(1, 3),
                      .extra = random_from(0, 2) ? random_from(1, capacity()) : 0};
    w->decision_request.back_us = w->decision_request.at_us + (uint64_t)random_from(0, LATENCY_MAX);
}

static void return_units(struct worker *w, uint64_t now_us)
{
    bool bucket = redis.limit.kind == LIMIT_BUCKET;
    int64_t left = lease_left(w->lease, now_us + (bucket ? MARGIN : 0));

    if (left)
        w->refund = (struct call){
            .in_flight = true, .at_us = now_us + (uint64_t)random_from(0, MARGIN), .extra = left};
    lease_empty(w->lease);
}

/* Undoes the last admission. */
static void unspend(struct worker *w)
{
    lease_unspend(w->lease);
    redis.spent -= scale();
    redis.level -= scale();
    redis.all_spent--;
}

static void step(struct worker *w, uint64_t now_us)
{
    if (w->refund.in_flight && now_us >= w->refund.at_us)
        execute_refund(w, now_us);
    if (w->decision_request.in_flight && !w->decision_request.executed &&
        now_us >= w->decision_request.at_us)
        execute_request(w, now_us);
    if (w->decision_request.in_flight && w->decision_request.executed &&
        now_us >= w->decision_request.back_us)
        handle_reply(w, now_us);
    for (unsigned i = 0; i < 3 && random_from(0, 99) < w->busy; i++)
        if (lease_spend(w->lease, now_us)) {
            spend(1, now_us);
            if (redis.level >= scale() && random_from(0, 9) == 0)
                unspend(w);
        } else if (!w->decision_request.in_flight)
            decision_request(w, now_us);
    if (random_from(0, 1999) == 0 && !w->refund.in_flight && !w->decision_request.in_flight)
        return_units(w, now_us);
    if (random_from(0, 199) == 0)
        w->busy = (unsigned)(random_from(0, 1) * random_from(1, 3)) * 33;
}

static void simulate(enum limit_kind kind)
{
    struct worker workers[WORKERS] = {0};

    memset(&redis, 0, sizeof redis);
    redis.limit.kind = kind;
    redis.limit.period_us = random_from(50, 2000);
    redis.numbers.limit = random_from(1, 60);
    redis.numbers.burst = random_from(1, 100);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].leases = leases_new();
        while (!workers[i].lease)
            workers[i].lease = leases_meet(workers[i].leases, SLICE("{id:a}:l:key"), &redis.limit,
                                           &redis.numbers, 1);
        workers[i].busy = (unsigned)(random_from(0, 1) * random_from(1, 3)) * 33;
    }
    for (uint64_t now_us = 1; now_us < TICKS; now_us += (uint64_t)random_from(0, 3))
        step(&workers[random_from(0, WORKERS - 1)], now_us);
    for (unsigned i = 0; i < WORKERS; i++)
        leases_free(workers[i].leases);
}

START_TEST(admissions_never_exceed_the_definition)
{
    int64_t all = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        random_state = round * 2 + (unsigned)_i;
        simulate(_i ? LIMIT_WINDOW : LIMIT_BUCKET);
        all += redis.all_spent;
    }
    ck_assert_int_gt(all, ROUNDS * 20);
}
END_TEST

/* --- The size of leases
 * ------------------------------------------------------------------------ */

/* Two whole intervals, and the first request of the next. */
enum { BUSY_US = 2 * LEASE_AUTO_US };

static struct leases *leases;

/* Makes `requests` in each interval of 20 ms from `from_us` to `to_us`. Returns NULL if not busy. */
static struct lease *busy_with(const struct limit *limit, struct limit_numbers numbers,
                               unsigned requests, uint64_t from_us, uint64_t to_us)
{
    struct lease *lease = NULL;

    for (uint64_t at_us = from_us; at_us <= to_us; at_us += 20000)
        for (unsigned i = 0; i < requests; i++)
            lease = leases_meet(leases, SLICE("{id:a}:l:key"), limit, &numbers, at_us + i);
    return lease;
}

static struct lease *busy_for(const struct limit *limit, int64_t numbers_limit, unsigned requests,
                              uint64_t from_us, uint64_t to_us)
{
    struct limit_numbers numbers = {.limit = numbers_limit, .burst = numbers_limit};

    return busy_with(limit, numbers, requests, from_us, to_us);
}

static int64_t units_wanted(const struct limit *limit, int64_t numbers_limit, unsigned requests,
                            uint64_t us, int64_t remaining, unsigned sharers)
{
    leases = leases_new();
    struct lease *lease = busy_for(limit, numbers_limit, requests, 1000000, 1000000 + us);
    if (lease)
        lease->known_remaining = remaining;
    int64_t units = lease ? lease_wants(lease, sharers) : 0;
    leases_free(leases);
    return units;
}

START_TEST(a_lease_is_limited_by_its_use_and_by_other_workers)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = 100};

    ck_assert_int_eq(units_wanted(&limit, 5000, 3, 0, 5000, 1), 0);     /* not busy */
    ck_assert_int_eq(units_wanted(&limit, 5000, 8, 0, 5000, 1), 20);    /* for 50 ms */
    ck_assert_int_eq(units_wanted(&limit, 5000, 800, 0, 5000, 1), 100); /* the maximum */
    ck_assert_int_eq(units_wanted(&limit, 5000, 800, 0, 80, 2),
                     20); /* a share of the remaining units */
    ck_assert_int_eq(units_wanted(&limit, 5000, 800, 0, 80, 100), 0); /* not worth it */
    ck_assert_int_eq(units_wanted(&limit, 5000, 3, 900000, 5000, 1), 0);
    limit.lease_units = 10;
    ck_assert(lease_may_be(&limit, &(struct limit_numbers){.limit = 5, .burst = 5}));
    limit.kind = LIMIT_BUCKET;
    ck_assert_int_eq(units_wanted(&limit, 999, 800, 0, 999, 1), 10);
    limit.period_us = 1000000;
    ck_assert_int_eq(units_wanted(&limit, 1000000, 800, 0, 999999, 1), 0); /* expired before use */
}
END_TEST

START_TEST(auto_is_for_large_limits_and_for_clients_that_stay_busy)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = LEASE_AUTO};

    ck_assert(lease_may_be(&limit, &(struct limit_numbers){.limit = 1000, .burst = 1000}));
    ck_assert(!lease_may_be(&limit, &(struct limit_numbers){.limit = 999, .burst = 999}));
    ck_assert(!lease_may_be(
        &limit, &(struct limit_numbers){.limit = 3, .burst = 3})); /* a client's quota */
    ck_assert_int_eq(units_wanted(&limit, 10000, 800, 0, 10000, 1),
                     0); /* a page with many pictures */
    ck_assert_int_eq(units_wanted(&limit, 10000, 800, BUSY_US - 20000, 10000, 1), 0);
    ck_assert_int_eq(units_wanted(&limit, 10000, 800, BUSY_US, 10000, 1), 500); /* a twentieth */
    ck_assert_int_eq(units_wanted(&limit, 10000, 8, BUSY_US, 10000, 1), 20);
    ck_assert_int_eq(units_wanted(&limit, 10000, 7, BUSY_US * 5, 10000, 1), 0);
    ck_assert_int_eq(units_wanted(&limit, 10000, 800, BUSY_US, 1000, 1), 500);
    ck_assert_int_eq(units_wanted(&limit, 10000, 800, BUSY_US, 999, 1),
                     0); /* the last tenth is exact */
    limit.kind = LIMIT_BUCKET;
    limit.period_us = 1000000;
    ck_assert_int_eq(units_wanted(&limit, 1000000, 800, BUSY_US, 999999, 1), 50000);
    limit.period_us = 31622400000000; /* the largest limit */
    ck_assert_int_eq(units_wanted(&limit, 999999999999999, 800, BUSY_US, 999999999999999, 1),
                     LEASE_MOST);
}
END_TEST

START_TEST(after_a_pause_a_client_must_be_busy_again)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = LEASE_AUTO};
    uint64_t again_us = 1000000 + BUSY_US + 2 * LEASE_AUTO_US;
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 10000, 8, 1000000, 1000000 + BUSY_US);
    lease->known_remaining = 9000;
    ck_assert_int_gt(lease_wants(lease, 1), 0);
    lease = busy_for(&limit, 10000, 8, again_us, again_us + BUSY_US - 40000);
    lease->known_remaining = 9000;
    ck_assert_int_eq(lease_wants(lease, 1), 0);
    leases_free(leases);
}
END_TEST

START_TEST(remaining_decreases_at_the_rate_of_other_workers)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = 10};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 1000, 8, 1000000, 1000000);
    lease_note(lease, 5, 900, 1000000);
    lease_note(lease, 5, 890, 1001000); /* too early for an estimate */
    lease_take(lease, &(struct lease_charge){10, 5, 880, 50000000, 100, 1000, 1002000}, 1002000);
    ck_assert_int_eq(lease_remaining(lease, 1012000), 890);
    lease_note(lease, 15, 835, 1050000); /* 65 less, of which 20 were this worker's: 45 in 50 ms */
    lease_take(lease, &(struct lease_charge){10, 5, 835, 50000000, 100, 1000, 1050000}, 1050000);
    ck_assert_int_eq(lease_remaining(lease, 1050000), 855);
    ck_assert_int_eq(lease_remaining(lease, 1060000), 846);
    ck_assert(lease_spend(lease, 1060000));
    ck_assert_int_eq(lease_remaining(lease, 1060000), 845);
    ck_assert_int_eq(lease_remaining(lease, 3000000), 19); /* at least the units that it holds */
    lease_note(lease, 5, 830, 1100000);                    /* no other consumers left */
    ck_assert_int_eq(lease_remaining(lease, 1110000), 854);
    leases_free(leases);
}
END_TEST

/* Redis was slow, so that fewer than LEASE_LEAST requests per interval arrived. */
START_TEST(requests_of_a_client_that_is_not_busy_are_no_use_by_others)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = 10};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 1000, 8, 1000000, 1000000);
    lease_note(lease, 5, 900, 1000000);
    for (uint64_t at_us = 1020000; at_us < 1320000; at_us += 20000) {
        ck_assert_ptr_eq(busy_for(&limit, 1000, 1, at_us, at_us), lease);
        lease_note(lease, 1, 899 - (int64_t)(at_us - 1020000) / 20000, at_us);
    }
    ck_assert_ptr_null(busy_for(&limit, 1000, 1, 1320000, 1320000)); /* Redis charges it: 884 */
    ck_assert_ptr_eq(busy_for(&limit, 1000, 4, 1340000, 1340000), lease); /* and three of these */
    lease_note(lease, 11, 870, 1340000);
    lease_take(lease, &(struct lease_charge){10, 1, 870, 50000000, 100, 1000, 1340000}, 1340000);
    ck_assert_int_eq(lease_remaining(lease, 1440000), 880);
    leases_free(leases);
}
END_TEST

/* At 15 intervals after the last busy one, so that the key would not be busy any more before the
 * lease ends: its requests would go to Redis, which counts the units of the lease as used. */
START_TEST(a_lease_is_spent_although_its_key_is_not_busy_any_more)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = 10};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 1000, 8, 1000000, 1000000);
    ck_assert_ptr_eq(busy_for(&limit, 1000, 1, 1300000, 1300000), lease);
    lease_take(lease, &(struct lease_charge){10, 1, 900, 50000000, 100, 1000, 1300000}, 1310000);
    for (uint64_t at_us = 1320000; at_us < 1400000; at_us += 20000) {
        ck_assert_ptr_eq(busy_for(&limit, 1000, 1, at_us, at_us), lease);
        ck_assert(lease_spend(lease, at_us));
    }
    leases_free(leases);
}
END_TEST

START_TEST(a_full_table_keeps_leases_with_units)
{
    struct limit limit = {.kind = LIMIT_WINDOW, .period_us = 60000000, .lease_units = 10};
    struct limit_numbers numbers = {.limit = 1000, .burst = 1000};
    struct lease *first;

    leases = leases_new();
    first = busy_for(&limit, 1000, 8, 1000000, 1000000);
    first->requested = true;
    for (unsigned i = 0; i < 10000; i++) {
        char name[32];
        struct lease *other = NULL;
        snprintf(name, sizeof name, "{id:%u}:l:key", i);
        for (unsigned j = 0; j < LEASE_LEAST; j++)
            other = leases_meet(leases, slice_of(name), &limit, &numbers, 1000020 + i);
        ck_assert_ptr_ne(other, first);
    }
    ck_assert_ptr_eq(busy_for(&limit, 1000, 1, 1019000, 1019000), first);
    ck_assert(first->requested);
    leases_free(leases);
}
END_TEST

START_TEST(returned_units_do_not_count_as_leaked)
{
    struct limit limit = {.kind = LIMIT_BUCKET, .period_us = 1000000, .lease_units = 10};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 1000, 8, 1000000, 1000000); /* leaks one unit per ms */
    lease_take(lease, &(struct lease_charge){10, 5, 900, 15000, 100, 1, 1000000}, 1000000);
    lease_unspend(lease);
    ck_assert_int_eq(lease_left(lease, 1004000), 10);
    ck_assert_int_eq(lease_left(lease, 1005000), 9);
    leases_free(leases);
}
END_TEST

START_TEST(the_largest_lease_leaks_away)
{
    struct limit limit = {
        .kind = LIMIT_BUCKET, .period_us = PERIOD_MAX_US, .lease_units = LEASE_MOST};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, LIMIT_MAX, 8, 1000000, 1000000); /* leaks 31 units per us */
    lease_take(lease, &(struct lease_charge){LEASE_MOST, 5, 900, 15000, 100, 1, 1000000}, 1000000);
    ck_assert_int_eq(lease_left(lease, 1010000), 0);
    leases_free(leases);
}
END_TEST

START_TEST(units_of_changed_limits_are_not_spent)
{
    struct limit limit = {.kind = LIMIT_BUCKET, .period_us = 60000000, .lease_units = 10};
    struct lease *lease;

    leases = leases_new();
    lease = busy_for(&limit, 1000, 8, 1000000, 1000000);
    lease_take(lease, &(struct lease_charge){10, 1, 900, 1000, 100, 1, 1000000}, 1000010);
    ck_assert(lease_spend(lease, 1000020));
    ck_assert_ptr_ne(busy_for(&limit, 2000, 8, 1000030, 1000030), lease);
    ck_assert(!lease_spend(lease, 1000040));
    leases_free(leases);
}
END_TEST

static void take_ten(struct lease *lease)
{
    lease_take(lease, &(struct lease_charge){10, 1, 900, 1000, 100, 1, 1000000}, 1000010);
}

/* Whichever lease of the key was there first, and of any priority. */
START_TEST(units_of_two_plans_are_not_spent_in_turn)
{
    static const struct limit limit = {
        .kind = LIMIT_BUCKET, .period_us = 60000000, .lease_units = 10};
    static const struct limit_numbers small = {.limit = 1000, .burst = 1000},
                                      large = {.limit = 2000, .burst = 2000},
                                      batch = {.limit = 2000, .burst = 2000, .share = 500000};

    leases = leases_new();
    struct lease *first = busy_with(&limit, small, 8, 1000000, 1000000);
    struct lease *second = busy_with(&limit, large, 8, 1000000, 1000000);
    take_ten(second);
    ck_assert_ptr_eq(busy_with(&limit, small, 1, 1000020, 1000020), first);
    ck_assert(!lease_spend(second, 1000030));
    struct lease *other = busy_with(&limit, batch, 1, 1000040, 1000040);
    take_ten(second);
    take_ten(other);
    ck_assert_ptr_eq(busy_with(&limit, large, 1, 1000050, 1000050), second);
    ck_assert(lease_spend(other, 1000060)); /* another priority, but the same numbers */
    ck_assert_ptr_eq(busy_with(&limit, small, 1, 1000070, 1000070), first);
    ck_assert(!lease_spend(other, 1000080) && !lease_spend(second, 1000080));
    leases_free(leases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("leases");
    TCase *test_case = tcase_create("leases");

    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, admissions_never_exceed_the_definition, 0, 2);
    tcase_add_test(test_case, a_lease_is_limited_by_its_use_and_by_other_workers);
    tcase_add_test(test_case, auto_is_for_large_limits_and_for_clients_that_stay_busy);
    tcase_add_test(test_case, after_a_pause_a_client_must_be_busy_again);
    tcase_add_test(test_case, returned_units_do_not_count_as_leaked);
    tcase_add_test(test_case, the_largest_lease_leaks_away);
    tcase_add_test(test_case, units_of_changed_limits_are_not_spent);
    tcase_add_test(test_case, units_of_two_plans_are_not_spent_in_turn);
    tcase_add_test(test_case, remaining_decreases_at_the_rate_of_other_workers);
    tcase_add_test(test_case, requests_of_a_client_that_is_not_busy_are_no_use_by_others);
    tcase_add_test(test_case, a_lease_is_spent_although_its_key_is_not_busy_any_more);
    tcase_add_test(test_case, a_full_table_keeps_leases_with_units);
    suite_add_tcase(suite, test_case);
    return run_suite(suite);
}
