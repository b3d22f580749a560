/* check_resets.c - a reset invalidates earlier requests of this client, and no others. */
#include <check.h>

#include "base/clock.h"
#include "limit/resets.h"
#include "run_suite.h"

#define A SLICE("{id:a}:l:each")
#define B SLICE("{id:b}:l:each:{route:/v1}")

/* Waits until the clock has advanced. */
static uint64_t later(void)
{
    uint64_t now_us = clock_us();

    while (clock_us() == now_us) {
    }
    return clock_us();
}

START_TEST(a_reset_applies_to_one_client)
{
    uint64_t before_us = clock_us();

    ck_assert(!resets_concern(A, before_us));
    resets_note(SLICE("id:a"));
    ck_assert(resets_concern(A, before_us));
    ck_assert(!resets_concern(B, before_us));
    ck_assert(!resets_concern(A, later()));
    resets_note(SLICE("id:b"));
    ck_assert(resets_concern(A, before_us));
    ck_assert(resets_concern(B, before_us));
    ck_assert(!resets_concern(SLICE("{all}:l:each"), before_us));
}
END_TEST

START_TEST(names_are_escaped_as_in_keys)
{
    uint64_t before_us = clock_us();

    resets_note(SLICE("id:}{a%"));
    ck_assert(resets_concern(SLICE("{id:%7D%7Ba%25}:l:each"), before_us));
    ck_assert(!resets_concern(SLICE("{id:}:l:each"), before_us));
}
END_TEST

START_TEST(a_reset_without_a_name_applies_to_all_clients)
{
    uint64_t before_us = clock_us();

    resets_note(SLICE_NONE);
    ck_assert(resets_concern(A, before_us));
    ck_assert(!resets_concern(A, later()));
    ck_assert(resets_concern(SLICE_NONE, before_us)); /* unknown client */
}
END_TEST

START_TEST(requests_older_than_all_known_resets_are_uncertain)
{
    uint64_t first_us = clock_us(), then_us = 0;

    for (unsigned i = 0; i <= RESETS_MAX; i++) {
        (void)later();
        resets_note(SLICE("id:a"));
        if (i == 0)
            then_us = later();
    }
    ck_assert(resets_concern(B, first_us));
    ck_assert(!resets_concern(B, then_us));
    ck_assert(resets_concern(A, then_us));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resets");
    TCase *tests = tcase_create("resets");

    tcase_add_test(tests, a_reset_applies_to_one_client);
    tcase_add_test(tests, names_are_escaped_as_in_keys);
    tcase_add_test(tests, a_reset_without_a_name_applies_to_all_clients);
    tcase_add_test(tests, requests_older_than_all_known_resets_are_uncertain);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
