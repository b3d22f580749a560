/* check_send_rate.c - when a client takes its responses fast enough. */
#include <check.h>

#include "policy/policy.h"
#include "proxy/send_rate.h"
#include "run_suite.h"

enum { SECOND = 1000000, RATE = 100 };

static const struct timeouts timeouts = {.send_us = 60 * SECOND, .send_min_rate = RATE};

START_TEST(a_write_renews_the_time_only_at_the_rate)
{
    struct send_rate rate;

    send_rate_begin(&rate, 5 * SECOND, 1000);
    ck_assert(!send_rate_moved(&rate, &timeouts, 15 * SECOND, 1000 + 10 * RATE - 1));
    ck_assert_uint_eq(rate.kept_us, 5 * SECOND);
    ck_assert(send_rate_moved(&rate, &timeouts, 25 * SECOND, 1000 + 20 * RATE));
    ck_assert_uint_eq(rate.kept_us, 25 * SECOND);
    ck_assert(!send_rate_moved(&rate, &timeouts, 26 * SECOND, 1000 + 20 * RATE));
}
END_TEST

START_TEST(after_half_of_the_time_acknowledged_bytes_count)
{
    struct send_rate rate;

    send_rate_begin(&rate, 0, 90000);
    ck_assert(send_rate_renew(&rate, &timeouts, 30 * SECOND, 5000)); /* the exact count begins */
    ck_assert(!send_rate_moved(&rate, &timeouts, 31 * SECOND, 95000));
    ck_assert(send_rate_renew(&rate, &timeouts, 60 * SECOND, 5000 + 30 * RATE));
    ck_assert_uint_eq(rate.kept_us, 60 * SECOND);
    ck_assert(!send_rate_renew(&rate, &timeouts, 90 * SECOND, 5000 + 60 * RATE - 1));
}
END_TEST

START_TEST(a_burst_counts_for_the_next_time_but_not_for_ever)
{
    struct send_rate rate;

    send_rate_begin(&rate, 0, 0);
    ck_assert(send_rate_renew(&rate, &timeouts, 30 * SECOND, 0));
    ck_assert(send_rate_renew(&rate, &timeouts, 60 * SECOND, 1000 * RATE)); /* 60 s are kept */
    ck_assert(send_rate_renew(&rate, &timeouts, 90 * SECOND, 1000 * RATE));
    ck_assert(send_rate_renew(&rate, &timeouts, 120 * SECOND, 1000 * RATE));
    ck_assert(!send_rate_renew(&rate, &timeouts, 150 * SECOND, 1000 * RATE));
}
END_TEST

START_TEST(without_a_rate_any_byte_renews_the_time)
{
    static const struct timeouts any = {.send_us = 60 * SECOND, .send_min_rate = 0};
    struct send_rate rate;

    send_rate_begin(&rate, 0, 0);
    ck_assert(send_rate_renew(&rate, &any, 30 * SECOND, 0));
    ck_assert(send_rate_renew(&rate, &any, 60 * SECOND, 1)); /* perhaps at 59 s */
    ck_assert(send_rate_renew(&rate, &any, 90 * SECOND, 1));
    ck_assert(send_rate_renew(&rate, &any, 120 * SECOND, 2));
    ck_assert(send_rate_renew(&rate, &any, 150 * SECOND, 2));
    ck_assert(!send_rate_renew(&rate, &any, 180 * SECOND, 2));
}
END_TEST

START_TEST(content_in_bursts_keeps_its_rate)
{
    struct rate_mark mark = {0, 0};

    for (unsigned burst = 2; burst < 200; burst += 2) /* one in 29 s, checked every 58 s */
        ck_assert(
            rate_mark_move(&mark, RATE, 30 * SECOND, burst * 29ull * SECOND, burst * 29ull * RATE));
}
END_TEST

START_TEST(surplus_content_counts_for_one_further_period)
{
    struct rate_mark mark = {0, 0};

    ck_assert(rate_mark_move(&mark, RATE, 30 * SECOND, 31 * SECOND, 1000 * RATE));
    ck_assert(rate_mark_move(&mark, RATE, 30 * SECOND, 61 * SECOND, 1000 * RATE));
    ck_assert(!rate_mark_move(&mark, RATE, 30 * SECOND, 92 * SECOND, 1000 * RATE + 1));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("send_rate");
    TCase *tests = tcase_create("all");

    tcase_add_test(tests, a_write_renews_the_time_only_at_the_rate);
    tcase_add_test(tests, after_half_of_the_time_acknowledged_bytes_count);
    tcase_add_test(tests, a_burst_counts_for_the_next_time_but_not_for_ever);
    tcase_add_test(tests, without_a_rate_any_byte_renews_the_time);
    tcase_add_test(tests, content_in_bursts_keeps_its_rate);
    tcase_add_test(tests, surplus_content_counts_for_one_further_period);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
