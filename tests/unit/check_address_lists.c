/* check_address_lists.c - the lookup table of address lists, compared with a linear search. */
#include <check.h>
#include <stdlib.h>

#include "policy/address_lists.h"
#include "run_suite.h"

enum { RANGES_MAX = 400 };

static struct listed_range ranges[RANGES_MAX], kept[RANGES_MAX];
static uint64_t random_state = 1;

static uint64_t random_below(uint64_t n)
{
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (random_state >> 33) % n;
}

static struct ip ip_of(const char *text)
{
    struct ip ip;
    ck_assert_msg(ip_parse(slice_of(text), &ip), "%s", text);
    return ip;
}

static struct listed_range range_of(const char *text, enum listed as)
{
    struct listed_range range = {.as = as};
    const char *why;
    ck_assert_msg(ip_range_parse(slice_of(text), &range.range, &why), "%s", text);
    return range;
}

/* The longest prefix wins; on a tie, block wins over allow. */
static enum listed search(const struct ip *ip, unsigned count)
{
    const struct listed_range *best = NULL;

    for (unsigned i = 0; i < count; i++)
        if (ip_range_holds(&kept[i].range, ip) &&
            (!best || kept[i].range.bits > best->range.bits ||
             (kept[i].range.bits == best->range.bits && kept[i].as == LISTED_BLOCKED)))
            best = &kept[i];
    return best ? best->as : LISTED_NOT;
}

/* Few bits vary, at the ends and in the middle, so that ranges are adjacent or nested. */
static struct ip random_ip(void)
{
    struct ip ip = {{0}};
    bool v4 = random_below(2);

    if (v4)
        ip.bytes[10] = ip.bytes[11] = 0xff;
    for (unsigned i = v4 ? 12 : 0; i < 16; i++)
        ip.bytes[i] = (unsigned char)(random_below(4) == 0   ? 0xff
                                      : random_below(4) == 0 ? random_below(256)
                                                             : 0);
    return ip;
}

static void check_at(const struct address_table *table, struct ip ip, unsigned count)
{
    ck_assert_int_eq(address_table_find(table, &ip), search(&ip, count));
}

/* The first and last address of a range, and their neighbours. */
static void check_ends(const struct address_table *table, const struct ip_range *range,
                       unsigned count)
{
    struct ip last = range->ip, ip;

    for (unsigned bit = range->bits; bit < 128; bit++)
        last.bytes[bit / 8] |= (unsigned char)(0x80 >> bit % 8);
    check_at(table, range->ip, count);
    check_at(table, last, count);
    ip = range->ip;
    for (int i = 15; i >= 0 && ip.bytes[i]-- == 0; i--)
        ;
    check_at(table, ip, count);
    ip = last;
    for (int i = 15; i >= 0 && ++ip.bytes[i] == 0; i--)
        ;
    check_at(table, ip, count);
}

START_TEST(the_table_equals_a_linear_search)
{
    struct address_table table;

    for (unsigned round = 0; round < 60; round++) {
        unsigned count = (unsigned)random_below(round % 3 ? 12 : RANGES_MAX);
        for (unsigned i = 0; i < count; i++) {
            struct ip ip = random_ip();
            unsigned bits = ip_is_v4(&ip) && random_below(20) ? 96 + (unsigned)random_below(33)
                                                              : (unsigned)random_below(129);
            ranges[i].range = (struct ip_range){ip_masked(&ip, bits), bits};
            ranges[i].as = random_below(2) ? LISTED_ALLOWED : LISTED_BLOCKED;
        }
        memcpy(kept, ranges, sizeof kept);
        ck_assert(address_table_make(&table, ranges, count));
        for (unsigned i = 0; i < count; i++)
            check_ends(&table, &kept[i].range, count);
        for (unsigned i = 0; i < 200; i++)
            check_at(&table, random_ip(), count);
        address_table_clear(&table);
    }
}
END_TEST

START_TEST(the_longest_prefix_applies)
{
    struct listed_range all[] = {
        range_of("10.0.0.0/8", LISTED_BLOCKED),    range_of("10.1.0.0/16", LISTED_ALLOWED),
        range_of("10.1.2.3", LISTED_BLOCKED),      range_of("::ffff:192.0.2.1", LISTED_BLOCKED),
        range_of("2001:db8::/32", LISTED_BLOCKED), range_of("2001:db8::1", LISTED_ALLOWED),
        range_of("::/0", LISTED_ALLOWED),          range_of("203.0.113.0/24", LISTED_ALLOWED),
        range_of("203.0.113.0/24", LISTED_BLOCKED)};
    static const struct {
        const char *address;
        enum listed as;
    } expected[] = {{"9.255.255.255", LISTED_NOT},
                    {"10.0.0.0", LISTED_BLOCKED},
                    {"10.1.2.2", LISTED_ALLOWED},
                    {"10.1.2.3", LISTED_BLOCKED},
                    {"10.1.2.4", LISTED_ALLOWED},
                    {"10.255.255.255", LISTED_BLOCKED},
                    {"11.0.0.0", LISTED_NOT},
                    {"192.0.2.1", LISTED_BLOCKED},
                    {"::ffff:10.1.2.3", LISTED_BLOCKED},
                    {"2001:db8::1", LISTED_ALLOWED},
                    {"2001:db8::2", LISTED_BLOCKED},
                    {"2001:db9::", LISTED_ALLOWED},
                    {"::1", LISTED_ALLOWED},
                    {"203.0.113.9", LISTED_BLOCKED},
                    {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", LISTED_ALLOWED}};
    struct address_table table;

    ck_assert(address_table_make(&table, all, COUNT_OF(all)));
    for (unsigned i = 0; i < COUNT_OF(expected); i++) {
        struct ip ip = ip_of(expected[i].address);
        ck_assert_msg(address_table_find(&table, &ip) == expected[i].as, "%s", expected[i].address);
    }
    address_table_clear(&table);
    struct ip ip = ip_of("10.0.0.1");
    ck_assert_int_eq(address_table_find(&table, &ip), LISTED_NOT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("address_lists");
    TCase *tests = tcase_create("address_lists");

    tcase_add_test(tests, the_table_equals_a_linear_search);
    tcase_add_test(tests, the_longest_prefix_applies);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
