/* check_ip_shares.c - counts of requests per address over several workers. */
#include "net/ip_shares.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "run_suite.h"

enum { WORKERS = 4, HELD_MAX = 20000 };

static struct ip_counts *common;
static struct ip_shares *workers[WORKERS];

static void set_up(unsigned count)
{
    common = ip_counts_new(1024, 32, 128);
    for (unsigned i = 0; i < count; i++)
        ck_assert_ptr_nonnull(workers[i] = ip_shares_new(common, count));
}

static void tear_down(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ip_shares_free(workers[i]);
    ip_counts_free(common);
}

static struct ip address(unsigned number)
{
    struct ip ip = {{0}};
    ip.bytes[10] = ip.bytes[11] = 0xff;
    memcpy(ip.bytes + 12, &number, sizeof number);
    return ip;
}

START_TEST(the_maximum_is_exact_for_small_numbers)
{
    struct ip ip = address(7);
    uint32_t entries[5], entry;

    set_up(WORKERS);
    for (unsigned i = 0; i < 5; i++)
        ck_assert(ip_shares_enter(workers[i % WORKERS], &ip, 5, &entries[i]) && entries[i]);
    for (unsigned i = 0; i < WORKERS; i++)
        ck_assert(!ip_shares_enter(workers[i], &ip, 5, &entry) && entry == 0);
    ip_shares_leave(workers[2], entries[2]);
    ck_assert(ip_shares_enter(workers[3], &ip, 5, &entry) && entry);
    tear_down(WORKERS);
}
END_TEST

START_TEST(one_worker)
{
    struct ip ip = address(7), other = address(8);
    uint32_t entry;

    set_up(1);
    for (unsigned i = 0; i < 1000; i++)
        ck_assert(ip_shares_enter(workers[0], &ip, 1000, &entry));
    ck_assert(!ip_shares_enter(workers[0], &ip, 1000, &entry));
    ck_assert(ip_shares_enter(workers[0], &other, 1, &entry));
    tear_down(1);
}
END_TEST

START_TEST(one_of_several_workers_admits_seven_eighths)
{
    struct ip ip = address(7);
    uint32_t entry;
    unsigned admitted = 0;

    set_up(WORKERS);
    while (ip_shares_enter(workers[0], &ip, 1000, &entry))
        admitted++;
    ck_assert_uint_ge(admitted, 875);
    ck_assert_uint_lt(admitted, 1000);
    for (unsigned i = 1; i < WORKERS; i++)
        while (ip_shares_enter(workers[i], &ip, 1000, &entry))
            admitted++;
    ck_assert_uint_le(admitted, 1000);
    ck_assert_uint_gt(admitted, 990);
    tear_down(WORKERS);
}
END_TEST

START_TEST(addresses_beyond_the_table_are_not_counted)
{
    uint32_t entry;
    unsigned counted = 0;

    set_up(1);
    for (unsigned i = 0; i < 5000; i++) {
        struct ip ip = address(i);
        ck_assert(ip_shares_enter(workers[0], &ip, 1, &entry));
        counted += entry != 0;
    }
    ck_assert_uint_eq(counted, 4096);
    tear_down(1);
}
END_TEST

/* Random requests of few addresses at random workers, compared with a plain count. */
START_TEST(random_requests)
{
    static struct {
        unsigned worker, address;
        uint32_t entry;
    } held[HELD_MAX];
    unsigned n = 0, totals[16] = {0};

    srandom(1);
    set_up(WORKERS);
    for (unsigned step = 0; step < 200000; step++) {
        unsigned worker = (unsigned)random() % WORKERS, number = (unsigned)random() % 16;
        struct ip ip = address(number);
        uint32_t entry;
        if (n < HELD_MAX && random() % 1000 > 480) {
            if (!ip_shares_enter(workers[worker], &ip, 100, &entry))
                continue;
            held[n].worker = worker, held[n].address = number, held[n++].entry = entry;
            ck_assert_uint_le(++totals[number], 100);
        } else if (n) {
            unsigned i = (unsigned)random() % n;
            ip_shares_leave(workers[held[i].worker], held[i].entry);
            totals[held[i].address]--;
            held[i] = held[--n];
        }
    }
    while (n--)
        ip_shares_leave(workers[held[n].worker], held[n].entry);
    for (unsigned i = 0; i < 100; i++) { /* nothing is left counted */
        struct ip ip = address(3);
        uint32_t entry;
        ck_assert(ip_shares_enter(workers[i % WORKERS], &ip, 100, &entry));
    }
    tear_down(WORKERS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ip_shares");
    TCase *tests = tcase_create("ip_shares");

    tcase_add_test(tests, the_maximum_is_exact_for_small_numbers);
    tcase_add_test(tests, one_worker);
    tcase_add_test(tests, one_of_several_workers_admits_seven_eighths);
    tcase_add_test(tests, addresses_beyond_the_table_are_not_counted);
    tcase_add_test(tests, random_requests);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
