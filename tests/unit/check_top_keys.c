/* check_top_keys.c - the error bounds of Space-Saving, compared with exact counts. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/top_keys.h"
#include "run_suite.h"

enum { KEYS = 5000, ADDITIONS = 200000 };
static const uint64_t start_us = UINT64_C(1000) * TOP_SLICE_US;

static struct slice name_of(unsigned key, char room[static 40])
{
    snprintf(room, 40, "id:client-%u", key);
    return slice_of(room);
}

static unsigned number_of(const struct top_entry *entry)
{
    unsigned number = 0;
    for (size_t i = strlen("id:client-"); i < entry->size; i++)
        number = number * 10 + (unsigned)(entry->key[i] - '0');
    return number;
}

/* Uniform bits; the same sequence every time. */
static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* Small numbers are frequent: P(key < k) is about ln(k) / ln(KEYS), as with Zipf's law. */
static unsigned skewed(uint64_t *state)
{
    unsigned bound = KEYS >> next_random(state) % 13;
    return bound ? next_random(state) % bound : 0;
}

START_TEST(counts_are_within_their_bounds)
{
    static uint64_t exact[KEYS];
    static struct top_entry entries[100];
    struct top_keys *tops[] = {top_keys_new(), top_keys_new(), top_keys_new()};
    uint64_t state = 42, total = 0;
    char room[40];
    double seconds;

    for (unsigned i = 0; i < ADDITIONS; i++) {
        unsigned key = skewed(&state), amount = 1 + i % 3;
        top_keys_add(tops[i % 3], start_us + i * 250, name_of(key, room), amount); /* 50 s in all */
        exact[key] += amount;
        total += amount;
    }
    unsigned n = top_keys_read(tops, 3, start_us + 50000000, entries, 100, &seconds);
    ck_assert_uint_eq(n, 100);
    ck_assert(seconds > 49.9 && seconds < 50.1);
    for (unsigned i = 0; i < n; i++) {
        uint64_t count = exact[number_of(&entries[i])];
        ck_assert_msg(entries[i].at_least <= count && count <= entries[i].at_most,
                      "%u: %llu <= %llu <= %llu", i, (unsigned long long)entries[i].at_least,
                      (unsigned long long)count, (unsigned long long)entries[i].at_most);
        ck_assert(i == 0 || entries[i].at_least <= entries[i - 1].at_least);
    }
    unsigned frequent = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        /* One percent or more. Half a percent could be missing: the hash has a random key, and sets
         * can get several frequent keys. */
        bool listed = exact[key] * 100 < total;
        frequent += !listed;
        for (unsigned i = 0; i < n && !listed; i++)
            listed = number_of(&entries[i]) == key;
        ck_assert_msg(listed, "client-%u: %llu", key, (unsigned long long)exact[key]);
    }
    ck_assert_uint_gt(frequent, 8);
    for (unsigned t = 0; t < 3; t++)
        top_keys_free(tops[t]);
}
END_TEST

START_TEST(few_keys_are_counted_exactly_for_a_minute)
{
    struct top_keys *top = top_keys_new();
    struct top_entry entries[8];
    char room[40], longest[TOP_KEY_MAX];
    double seconds;

    ck_assert_uint_eq(top_keys_read(&top, 1, start_us, entries, 8, &seconds), 0);
    for (unsigned i = 0; i < 6; i++)
        for (unsigned k = 0; k <= i; k++)
            top_keys_add(top, start_us + i, name_of(i, room), 10);
    memset(longest, 'x', sizeof longest);
    top_keys_add(top, start_us + 10000000, (struct slice){longest, sizeof longest}, 1);
    unsigned n = top_keys_read(&top, 1, start_us + 20000000, entries, 8, &seconds);
    ck_assert_uint_eq(n, 7);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_uint_eq(number_of(&entries[i]), 5 - i);
        ck_assert_uint_eq(entries[i].at_least, 10 * (6 - i));
        ck_assert_uint_eq(entries[i].at_most, entries[i].at_least);
    }
    ck_assert_uint_eq(entries[6].size, TOP_KEY_MAX);
    ck_assert(seconds == 20);
    ck_assert_uint_eq(top_keys_read(&top, 1, start_us + 69000000, entries, 8, &seconds), 7);
    ck_assert(seconds == 69);
    ck_assert_uint_eq(top_keys_read(&top, 1, start_us + 70000000, entries, 8, &seconds), 1);
    top_keys_add(top, start_us + 70000000, name_of(9, room), 1); /* reuses the first slice */
    ck_assert_uint_eq(top_keys_read(&top, 1, start_us + 75000000, entries, 8, &seconds), 2);
    ck_assert(seconds == 65);
    top_keys_free(top);
}
END_TEST

struct writer {
    struct top_keys *top;
    atomic_bool end;
};

static void *write_keys(void *arg)
{
    struct writer *writer = arg;
    uint64_t state = 7, now = start_us;
    char room[40];

    while (!atomic_load(&writer->end))
        top_keys_add(writer->top, now += 100, name_of(next_random(&state) % KEYS, room), 1);
    return NULL;
}

START_TEST(a_reader_sees_complete_keys)
{
    struct writer writer = {.top = top_keys_new()};
    struct top_entry entries[50];
    pthread_t thread;
    double seconds;

    ck_assert_int_eq(pthread_create(&thread, NULL, write_keys, &writer), 0);
    for (unsigned i = 0; i < 200; i++) {
        unsigned n = top_keys_read(&writer.top, 1, start_us + i, entries, 50, &seconds);
        for (unsigned k = 0; k < n; k++) {
            char room[40];
            struct slice name = name_of(number_of(&entries[k]), room);
            ck_assert_msg(slice_equal(name, (struct slice){entries[k].key, entries[k].size}),
                          "%.*s", (int)entries[k].size, entries[k].key);
        }
    }
    atomic_store(&writer.end, true);
    pthread_join(thread, NULL);
    top_keys_free(writer.top);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("top keys");
    TCase *tests = tcase_create("top keys");
    tcase_add_loop_test(tests, counts_are_within_their_bounds, 0, 25); /* each with other hashes */
    tcase_add_test(tests, few_keys_are_counted_exactly_for_a_minute);
    tcase_add_test(tests, a_reader_sees_complete_keys);
    suite_add_tcase(suite, tests);
    return run_suite_in_processes(suite);
}
