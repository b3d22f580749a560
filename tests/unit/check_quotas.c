/* check_quotas.c - parsing of database rows, and the quota cache. */
#include <check.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "policy/bounds.h"
#include "quota/quotas.h"
#include "run_suite.h"

static int64_t read_or(const char *text, int64_t otherwise)
{
    int64_t quota;
    return quota_read(slice_of(text), &quota) ? quota : otherwise;
}

START_TEST(a_quota_is_parsed)
{
    ck_assert_int_eq(read_or("3", -9), 3);
    ck_assert_int_eq(read_or("0", -9), 0);
    ck_assert_int_eq(read_or("-1", -9), -1);
    ck_assert_int_eq(read_or("unlimited", -9), -1);
    ck_assert_int_eq(read_or("1000000000", -9), 1000000000);
    ck_assert_int_eq(read_or("  12  ", -9), 12);
    ck_assert_int_eq(read_or("5.", -9), 5);
    ck_assert_int_eq(read_or("50.00", -9), 50);
    ck_assert_int_eq(read_or("-1.0", -9), -1);
    ck_assert_int_eq(read_or("100", -9), 100);
    ck_assert_int_eq(read_or("2147483647", -9), LIMIT_MAX > 2147483647 ? 2147483647 : LIMIT_MAX);
    ck_assert_int_eq(read_or("99999999999999999999999999", -9), LIMIT_MAX);
    ck_assert_int_eq(read_or("-2", -9), 0);
    ck_assert_int_eq(read_or("-0", -9), 0);
    ck_assert_int_eq(read_or("-10", -9), 0);
    ck_assert_int_eq(read_or("-5.00", -9), 0);
    ck_assert_int_eq(read_or("-99999999999999999999999999", -9), 0);
}
END_TEST

START_TEST(invalid_quotas_are_refused)
{
    const char *const bad[] = {"",  " ",  "-",   "ten", "5.5", "5.01", "1e3",  "+3",  "Infinity",
                               ".", ".0", "0x3", "3 4", "NaN", "--1",  "-1.5", "- 1", "-ten"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(read_or(bad[i], -9) == -9, "%s", bad[i]);
}
END_TEST

static void assert_round_trip(struct quota_row row, const char *written)
{
    char bytes[QUOTA_TEXT_MAX];
    struct text text = text_over(bytes, sizeof bytes);
    struct quota_row read;

    quota_row_write(&text, &row);
    ck_assert(!text.failed);
    ck_assert_msg(slice_equal(text_slice(&text), slice_of(written)), "%.*s", (int)text.n, text.p);
    ck_assert(quota_row_parse(text_slice(&text), &read));
    ck_assert_int_eq(read.present, row.present);
    ck_assert_int_eq(read.quota, row.present ? row.quota : QUOTA_OF_ITS_OWN);
    ck_assert_str_eq(read.plan, row.plan);
}

START_TEST(a_row_is_stored_as_text)
{
    struct quota_row longest = {.present = true, .quota = 1000000000};
    char written[QUOTA_TEXT_MAX] = "1000000000 ";

    memset(longest.plan, 'p', QUOTA_PLAN_MAX);
    strcat(written, longest.plan);
    assert_round_trip((struct quota_row){.present = false}, "absent");
    assert_round_trip((struct quota_row){.present = true, .quota = 3, .plan = ""}, "3");
    assert_round_trip((struct quota_row){.present = true, .quota = -1, .plan = ""}, "-1");
    assert_round_trip((struct quota_row){.present = true, .quota = QUOTA_OF_ITS_OWN, .plan = ""},
                      "-");
    assert_round_trip(
        (struct quota_row){.present = true, .quota = QUOTA_OF_ITS_OWN, .plan = "gold"}, "- gold");
    assert_round_trip((struct quota_row){.present = true, .quota = 7, .plan = "gold and silver"},
                      "7 gold and silver");
    assert_round_trip(longest, written);
}
END_TEST

/* A value of another program, or of a future version. */
START_TEST(invalid_rows_are_refused)
{
    const char *const bad[] = {"", "many", "--2", "3gold", "absent gold", " 3"};
    char longer[QUOTA_PLAN_MAX + 8] = "3 ";
    struct quota_row row;

    for (size_t i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(!quota_row_parse(slice_of(bad[i]), &row), "%s", bad[i]);
    memset(longer + 2, 'p', QUOTA_PLAN_MAX + 1);
    ck_assert(!quota_row_parse(slice_of(longer), &row));
}
END_TEST

/* --- The cache -------------------------------------------------------------------------------- */

static struct quota_entry entry_of(enum quota_outcome outcome, int64_t quota)
{
    return (struct quota_entry){.outcome = outcome,
                                .row = {.present = outcome == QUOTA_FOUND, .quota = quota},
                                .got_us = 100,
                                .fresh_us = 1000,
                                .usable_us = 2000};
}

static void put(struct quota_cache *table, const char *id, enum quota_outcome outcome,
                int64_t quota)
{
    struct quota_entry entry = entry_of(outcome, quota);
    quota_cache_put(table, slice_of(id), &entry);
}

/* -9: absent. */
static int64_t quota_of(struct quota_cache *table, const char *id, uint64_t now_us)
{
    struct quota_entry entry;
    return quota_cache_find(table, slice_of(id), now_us, &entry) ? entry.row.quota : -9;
}

START_TEST(an_entry_is_found_until_it_expires)
{
    struct quota_cache *table = quota_cache_new(100, 100);
    struct quota_entry entry;

    put(table, "a", QUOTA_FOUND, 3);
    put(table, "", QUOTA_FOUND, 4);
    ck_assert_int_eq(quota_of(table, "a", 1999), 3);
    ck_assert_int_eq(quota_of(table, "", 1999), 4);
    ck_assert_int_eq(quota_of(table, "a", 2000), -9);
    ck_assert_int_eq(quota_of(table, "b", 500), -9);
    put(table, "a", QUOTA_FOUND, 5);
    ck_assert_int_eq(quota_of(table, "a", 500), 5);
    put(table, "a", QUOTA_ABSENT, 0);
    ck_assert(quota_cache_find(table, SLICE("a"), 500, &entry) && entry.outcome == QUOTA_ABSENT);
    ck_assert_uint_eq(quota_cache_count(table, QUOTA_FOUND), 1);
    ck_assert_uint_eq(quota_cache_count(table, QUOTA_ABSENT), 1);
    quota_cache_remove(table, SLICE("a"));
    quota_cache_remove(table, SLICE("never there"));
    ck_assert_int_eq(quota_of(table, "a", 500), -9);
    quota_cache_clear(table);
    ck_assert_uint_eq(quota_cache_count(table, QUOTA_FOUND), 0);
    quota_cache_free(table);
}
END_TEST

/* Older entries are queried again, and still used if that fails. */
START_TEST(aged_entries_are_not_fresh)
{
    struct quota_cache *table = quota_cache_new(100, 100);
    struct quota_entry entry;

    put(table, "a", QUOTA_FOUND, 3);
    quota_cache_age(table, 100);
    ck_assert(quota_cache_find(table, SLICE("a"), 500, &entry));
    ck_assert_uint_eq(entry.fresh_us, 0);
    ck_assert_int_eq(entry.row.quota, 3);
    quota_cache_age(table, 99);
    ck_assert(quota_cache_find(table, SLICE("a"), 500, &entry) && entry.fresh_us == 1000);
    quota_cache_free(table);
}
END_TEST

START_TEST(made_up_ids_evict_only_each_other)
{
    struct quota_cache *table = quota_cache_new(640, 640);
    char id[32];

    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof id, "client-%d", i);
        put(table, id, QUOTA_FOUND, i);
    }
    unsigned clients = quota_cache_count(table, QUOTA_FOUND);
    for (int i = 0; i < 100000; i++) {
        snprintf(id, sizeof id, "made-up-%d", i);
        put(table, id, i % 2 ? QUOTA_ABSENT : QUOTA_UNKNOWN, 0);
    }
    ck_assert_uint_eq(quota_cache_count(table, QUOTA_FOUND), clients);
    ck_assert_uint_le(quota_cache_count(table, QUOTA_ABSENT), 640 + 64);
    ck_assert_int_eq(quota_of(table, "made-up-99999", 500), 0);
    ck_assert_int_eq(quota_of(table, "made-up-1", 500), -9);
    quota_cache_free(table);
}
END_TEST

/* Of the entries with a row, the least recently used is evicted. */
START_TEST(entries_in_use_are_kept)
{
    struct quota_cache *table = quota_cache_new(64 * 8, 64);
    char id[32];

    put(table, "used", QUOTA_FOUND, 3);
    for (int i = 0; i < 20000; i++) {
        snprintf(id, sizeof id, "client-%d", i);
        put(table, id, QUOTA_FOUND, i);
        ck_assert_int_eq(quota_of(table, "used", 500), 3);
    }
    ck_assert_uint_le(quota_cache_count(table, QUOTA_FOUND), 64 * 9);
    quota_cache_free(table);
}
END_TEST

/* If no newer row can be requested, the expired one applies. */
START_TEST(an_expired_row_is_set_although_it_must_be_requested)
{
    const struct policy policy = {.quotas.connection = "postgresql://127.0.0.1/"};
    struct event_base *base = event_base_new();
    struct quotas *quotas = quotas_new();
    struct deadlines deadlines;
    struct identity client = {.is_id = true, .size = 4, .text = "id:a"};
    struct quota_entry entry = entry_of(QUOTA_FOUND, 3);
    enum quota_outcome outcome = QUOTA_UNKNOWN;
    struct quota_row row;

    ck_assert(quotas && quotas_prepare(quotas, &policy));
    ck_assert_int_eq(deadlines_init(&deadlines, base), 0);
    struct quota_client *worker = quota_client_new(quotas, base, &deadlines);
    ck_assert(!quota_client_find(worker, &client, &outcome, &row) && outcome == QUOTA_UNKNOWN);
    entry.usable_us = clock_us() + 60000000;
    quota_cache_put(quotas_cache(quotas), SLICE("id:a"), &entry);
    ck_assert(!quota_client_find(worker, &client, &outcome, &row));
    ck_assert(outcome == QUOTA_FOUND && row.quota == 3);
    entry.fresh_us = entry.usable_us;
    quota_cache_put(quotas_cache(quotas), SLICE("id:a"), &entry);
    ck_assert(quota_client_find(worker, &client, &outcome, &row));
    quota_client_free(worker);
    quotas_free(quotas);
    deadlines_clear(&deadlines);
    event_base_free(base);
}
END_TEST

static void *use_all(void *arg)
{
    struct quota_cache *table = arg;
    char id[32];

    for (int i = 0; i < 20000; i++) {
        snprintf(id, sizeof id, "%d", i % 500);
        if (i % 3 == 0)
            put(table, id, i % 2 ? QUOTA_FOUND : QUOTA_ABSENT, i % 500);
        else if (i % 50 == 1)
            quota_cache_remove(table, slice_of(id));
        else {
            int64_t quota = quota_of(table, id, 500);
            ck_assert(quota == -9 || quota == i % 500);
        }
        if (i % 5000 == 4999)
            quota_cache_age(table, 50);
    }
    return NULL;
}

START_TEST(threads_share_the_cache)
{
    struct quota_cache *table = quota_cache_new(200, 100);
    pthread_t threads[4];

    for (unsigned i = 0; i < COUNT_OF(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, use_all, table), 0);
    for (unsigned i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    quota_cache_free(table);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("quotas");
    TCase *rows = tcase_create("rows"), *table = tcase_create("table");
    tcase_add_test(rows, a_quota_is_parsed);
    tcase_add_test(rows, invalid_quotas_are_refused);
    tcase_add_test(rows, a_row_is_stored_as_text);
    tcase_add_test(rows, invalid_rows_are_refused);
    tcase_add_test(table, an_entry_is_found_until_it_expires);
    tcase_add_test(table, aged_entries_are_not_fresh);
    tcase_add_test(table, made_up_ids_evict_only_each_other);
    tcase_add_test(table, entries_in_use_are_kept);
    tcase_add_test(table, an_expired_row_is_set_although_it_must_be_requested);
    tcase_add_test(table, threads_share_the_cache);
    suite_add_tcase(suite, rows);
    suite_add_tcase(suite, table);
    return run_suite(suite);
}
