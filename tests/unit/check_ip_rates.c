/* check_ip_rates.c - events per second of addresses. */
#include "net/ip_rates.h"

#include <check.h>
#include <string.h>

#include "run_suite.h"

enum { START_US = 1000000, SECOND_US = 1000000 };

static struct ip_rates *rates;

static void set_up(void)
{
    ck_assert_ptr_nonnull(rates = ip_rates_new());
}

static void tear_down(void)
{
    ip_rates_free(rates);
}

static struct ip address(unsigned number)
{
    struct ip ip = {{0}};
    memcpy(ip.bytes + 12, &number, sizeof number);
    return ip;
}

/* Returns how many of `tries` events at once are admitted. */
static unsigned admitted(unsigned number, unsigned tries, unsigned per_second, uint64_t now_us)
{
    struct ip ip = address(number);
    unsigned count = 0;

    while (tries--)
        count += ip_rates_admit(rates, &ip, per_second, now_us);
    return count;
}

START_TEST(twice_as_many_at_once_then_the_rate)
{
    static const unsigned all[] = {1, 3, 100, 100000};
    uint64_t now = START_US;

    for (unsigned i = 0; i < sizeof all / sizeof *all; i++, now = START_US) {
        unsigned rate = all[i], tries = 2 * rate + 10;
        ck_assert_uint_eq(admitted(i, tries, rate, now), 2 * rate);
        ck_assert_uint_eq(admitted(100 + i, 1, rate, now), 1); /* another address */
        for (unsigned second = 0; second < 3; second++)
            ck_assert_uint_eq(admitted(i, tries, rate, now += SECOND_US), rate);
        ck_assert_uint_eq(admitted(i, tries, rate, now += 1000 * (uint64_t)SECOND_US), 2 * rate);
    }
}
END_TEST

START_TEST(a_changed_rate_applies_at_once)
{
    uint64_t now = START_US;

    ck_assert_uint_eq(admitted(1, 1000, 10, now), 20);
    ck_assert_uint_eq(admitted(1, 1000, 1000, now + SECOND_US), 1000);
    ck_assert_uint_eq(admitted(1, 1000, 1, now + SECOND_US), 0);
    ck_assert_uint_eq(admitted(1, 1000, 1, now + 4 * SECOND_US), 2);
}
END_TEST

/* The expected number is one in a thousand. */
START_TEST(a_thousand_floods_do_not_keep_others_out)
{
    unsigned refused = 0;

    for (unsigned i = 0; i < 1000; i++)
        admitted(i, 20, 2, START_US);
    for (unsigned i = 10000; i < 12000; i++)
        refused += !admitted(i, 1, 2, START_US);
    ck_assert_uint_le(refused, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ip_rates");
    TCase *tests = tcase_create("ip_rates");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, twice_as_many_at_once_then_the_rate);
    tcase_add_test(tests, a_changed_rate_applies_at_once);
    tcase_add_test(tests, a_thousand_floods_do_not_keep_others_out);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
