/* check_denials.c - cached denials are found until they expire or are invalidated. */
#include <check.h>

#include "base/clock.h"
#include "limit/denials.h"
#include "run_suite.h"

static struct denials *denials;

static void set_up(void)
{
    denials = denials_new();
}

static void tear_down(void)
{
    denials_free(denials);
}

static struct denial_key key_of(const char *name)
{
    return denials_key(denials, slice_of(name), SLICE("numbers"));
}

static void cache_denial(const char *name, uint64_t requested_us, int64_t wait_us)
{
    struct denial denial = {.key = key_of(name),
                            .requested_us = requested_us,
                            .count = 1,
                            .limits = {{.limited = true, .retry_after_us = wait_us}}};
    denials_remember(denials, &denial);
}

START_TEST(a_denial_expires_with_its_wait_or_after_a_second)
{
    uint64_t now = clock_us();

    cache_denial("short", now, 1000);
    cache_denial("long", now, 3600000000);
    cache_denial("never", now, -1);
    ck_assert(denials_any(denials, now));
    ck_assert_ptr_nonnull(denials_find(denials, key_of("short"), now + 999));
    ck_assert_ptr_null(denials_find(denials, key_of("short"), now + 1000));
    ck_assert_ptr_nonnull(denials_find(denials, key_of("long"), now + DENIAL_US - 1));
    ck_assert_ptr_null(denials_find(denials, key_of("long"), now + DENIAL_US));
    ck_assert_ptr_nonnull(denials_find(denials, key_of("never"), now + DENIAL_US - 1));
    ck_assert_ptr_null(denials_find(denials, key_of("other"), now));
    ck_assert(!denials_any(denials, now + DENIAL_US));
}
END_TEST

START_TEST(denials_from_before_a_reset_are_dropped)
{
    uint64_t before = clock_us();

    cache_denial("a", before, 3600000000);
    ck_assert_ptr_nonnull(denials_find(denials, key_of("a"), before + 1));
    denials_forget_all();
    uint64_t after = clock_us() + 1;
    ck_assert_ptr_null(denials_find(denials, key_of("a"), after));
    cache_denial("under way", before, 3600000000); /* the reply arrived after the reset */
    ck_assert_ptr_null(denials_find(denials, key_of("under way"), after));
    cache_denial("a", after, 3600000000);
    ck_assert_ptr_nonnull(denials_find(denials, key_of("a"), after + 1));
}
END_TEST

START_TEST(a_refund_concerns_the_keys_of_its_client)
{
    struct slice own = SLICE("weir:{id:a%7B}:l:daily"), other = SLICE("weir:{id:b}:l:daily");
    uint64_t before = clock_us();

    ck_assert(!denials_may_be_forgotten(before));
    denials_forget(SLICE("id:a{"));
    ck_assert(denials_may_be_forgotten(before));
    ck_assert(denials_are_forgotten(own, before));
    ck_assert(!denials_are_forgotten(other, before));
    ck_assert(!denials_are_forgotten(SLICE("no tag"), before));
    uint64_t after = clock_us() + 1;
    ck_assert(!denials_may_be_forgotten(after));
    ck_assert(!denials_are_forgotten(own, after));
    denials_forget_key(SLICE("weir:{id:b}:l:hourly"));
    ck_assert(denials_are_forgotten(other, before));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("denials");
    TCase *tests = tcase_create("denials");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_denial_expires_with_its_wait_or_after_a_second);
    tcase_add_test(tests, denials_from_before_a_reset_are_dropped);
    tcase_add_test(tests, a_refund_concerns_the_keys_of_its_client);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
