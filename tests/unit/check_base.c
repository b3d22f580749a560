/* check_base.c - src/base: slices, bounded text, hashes, the clock, timers, counters and the log. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counter_table.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/histogram.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "base/log_throttle.h"
#include "base/recent.h"
#include "base/text.h"
#include "base/timer_heap.h"
#include "net/iobuf.h"
#include "net/ip_counts.h"
#include "run_suite.h"

static void assert_text(const struct text *t, const char *expected)
{
    ck_assert(!t->failed);
    ck_assert_uint_eq(t->n, strlen(expected));
    ck_assert_mem_eq(t->p, expected, t->n);
}

START_TEST(numbers_are_limited_to_their_range)
{
    uint64_t value = 7;
    ck_assert(slice_to_u64(SLICE("18446744073709551615"), UINT64_MAX, &value));
    ck_assert_uint_eq(value, UINT64_MAX);
    value = 7;
    ck_assert(!slice_to_u64(SLICE("18446744073709551616"), UINT64_MAX, &value));
    ck_assert(!slice_to_u64(SLICE("65536"), 65535, &value));
    ck_assert(!slice_to_u64(SLICE("7"), 5, &value));
    ck_assert(!slice_to_u64(SLICE(""), 10, &value));
    ck_assert(!slice_to_u64(SLICE("+1"), 10, &value));
    ck_assert(!slice_to_u64(SLICE("1 "), 10, &value));
    ck_assert_uint_eq(value, 7);
}
END_TEST

START_TEST(lists_skip_empty_elements_and_trim)
{
    struct slice rest = SLICE(" ,a ,\t b,,c,"), element;
    const char *expected[] = {"a", "b", "c"};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(slice_next_element(&rest, &element));
        ck_assert(slice_equal(element, slice_of(expected[i])));
    }
    ck_assert(!slice_next_element(&rest, &element));
}
END_TEST

/* Compares with a list of all events. */
START_TEST(recent_events_are_those_within_the_window)
{
    enum { EVENTS = 20000, WINDOW = 1000 };
    static uint64_t at[EVENTS];
    struct recent recent;
    uint64_t now = 5000000;

    recent_init(&recent, WINDOW);
    ck_assert_uint_eq(recent_count(&recent, 0, now), 0);
    for (unsigned i = 0; i < EVENTS; i++) {
        now += (uint64_t)random() % (i % 1000 ? 30 : 3 * WINDOW);
        recent_add(&recent, i % 7 == 0, now);
        at[i] = now;
        for (unsigned kind = 0; kind < 2; kind++) {
            uint32_t least = 0, most = 0;
            for (unsigned j = i + 1; j-- > 0 && at[j] + WINDOW > now;) {
                most += (j % 7 == 0) == kind;
                least += (j % 7 == 0) == kind && at[j] + WINDOW - WINDOW / RECENT_SLOTS > now;
            }
            uint32_t counted = recent_count(&recent, kind, now);
            ck_assert_uint_ge(counted, least);
            ck_assert_uint_le(counted, most);
        }
    }
    ck_assert_uint_eq(recent_count(&recent, 0, now + WINDOW), 0);
    ck_assert_uint_eq(recent_count(&recent, 1, now + WINDOW), 0);
}
END_TEST

START_TEST(text_never_writes_past_its_end)
{
    char bytes[8] = "abcdefg";
    struct text t = text_over(bytes, 4);
    text_literal(&t, "1234");
    ck_assert(!t.failed);
    text_char(&t, '5');
    ck_assert(t.failed);
    ck_assert_uint_eq(t.n, 4);
    ck_assert_int_eq(bytes[4], 'e');
}
END_TEST

START_TEST(text_writes_numbers)
{
    char bytes[100];
    struct text t = text_over(bytes, sizeof bytes);
    text_u64(&t, UINT64_MAX), text_char(&t, ' ');
    text_i64(&t, INT64_MIN), text_char(&t, ' ');
    text_hex(&t, 0), text_char(&t, ' ');
    text_hex(&t, 0xdeadbeef), text_char(&t, ' ');
    text_hex_fixed(&t, 0xab, 4);
    assert_text(&t, "18446744073709551615 -9223372036854775808 0 deadbeef 00ab");
}
END_TEST

static void write_document(struct json_writer *json)
{
    json_begin(json, NULL, '{');
    json_put_u64(json, "most", UINT64_MAX);
    json_put_i64(json, "least", INT64_MIN);
    json_begin(json, "list", '[');
    json_put_text(json, NULL, NULL);
    json_put_bool(json, NULL, true);
    json_put_seconds(json, NULL, 1500000);
    json_begin(json, NULL, '{');
    json_end(json, '}');
    json_end(json, ']');
    json_put_key(json, SLICE("a \"key\""));
    json_put_slice(json, NULL, SLICE("\x01"));
    json_begin_string(json, "string");
    text_u64(json->out, 7);
    json_end_string(json);
    json_end(json, '}');
}

static const char document[] =
    "{\"most\":18446744073709551615,\"least\":-9223372036854775808,\"list\":[null,true,1.5,{}],"
    "\"a \\\"key\\\"\":\"\\u0001\",\"string\":\"7\"}";

START_TEST(json_documents)
{
    char bytes[sizeof document + 20];
    struct text t = text_over(bytes, sizeof bytes);
    struct json_writer json = json_writer_over(&t);

    write_document(&json);
    assert_text(&t, document);
    for (size_t room = 0; room < sizeof document - 1; room++) {
        t = text_over(bytes, room);
        json = json_writer_over(&t);
        write_document(&json);
        ck_assert(t.failed && t.n <= room);
    }
}
END_TEST

START_TEST(json_documents_grow)
{
    static char zeros[100000];
    struct text t;
    struct json_writer json = json_writer_growing(&t);

    json_begin(&json, NULL, '[');
    for (unsigned i = 0; i < 1000; i++)
        write_document(&json);
    json_put_slice(&json, NULL, (struct slice){zeros, sizeof zeros});
    json_end(&json, ']');
    ck_assert(!t.failed);
    ck_assert_uint_eq(t.n, 1000 * sizeof document + 6 * sizeof zeros + sizeof "[\"\"]" - 1);
    ck_assert_int_eq(strncmp(t.p + 1 + 999 * sizeof document, document, sizeof document - 1), 0);
    free(t.p);
}
END_TEST

START_TEST(json_text_is_always_valid)
{
    char bytes[200];
    struct text t = text_over(bytes, sizeof bytes);
    text_json(&t, SLICE("a\"b\\c\n\x01\x7f\xc3\xa9\xff\xed\xa0\x80\xf0\x9f\x98\x80\xc2\x9b\xc2\xa0"
                        "\xe2\x80\xa8\xe2\x80\xa7\xef\xbf\xbe\xef\xbf\xbd"));
    assert_text(
        &t, "a\\\"b\\\\c\\n\\u0001\\u007f\xc3\xa9\uFFFDff\uFFFDed\uFFFDa0\uFFFD80\xf0\x9f\x98\x80"
            "\\u009b\xc2\xa0\\u2028\xe2\x80\xa7\\ufffe\xef\xbf\xbd");
    t.n = 0;
    text_json(&t, SLICE("\uFFFDff \uFFFDFF \uFFFD"));
    assert_text(&t, "\uFFFDef\uFFFDbf\uFFFDbdff \uFFFDFF \uFFFD");
}
END_TEST

START_TEST(text_for_terminals_has_no_control_characters)
{
    char bytes[200];
    struct text t = text_over(bytes, sizeof bytes);
    text_clean(&t, SLICE("a b~\n\x1b\x7f\xc3\xa9\x9b\xc2\x9b\xc2\x80\xc2\xa0\xe2\x82\xac\xc2"));
    assert_text(&t, "a b~???\xc3\xa9?????\xc2\xa0\xe2\x82\xac?");
}
END_TEST

/* Aumasson and Bernstein's test key over 0..14, for one compression and three finalisation rounds. */
START_TEST(siphash_depends_on_every_byte_and_the_key)
{
    struct hash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u},
                    other = {0x0706050403020101u, 0x0f0e0d0c0b0a0908u};
    char bytes[15];
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    uint64_t whole = hash_slice(&key, (struct slice){bytes, sizeof bytes});
    ck_assert_uint_ne(whole, hash_slice(&other, (struct slice){bytes, sizeof bytes}));
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        ck_assert_uint_ne(whole, hash_slice(&key, (struct slice){bytes, sizeof bytes}));
        bytes[i] ^= 1;
    }
    ck_assert_uint_ne(hash_slice(&key, (struct slice){bytes, 7}),
                      hash_slice(&key, (struct slice){bytes, 8}));
}
END_TEST

/* The variants that process 8 bytes at a time agree with the simple ones at every length. */
START_TEST(names_compare_without_case_at_every_length_and_position)
{
    const char upper[] = "ABCXYZ@[`{-_0189ACEG~", lower[] = "abcxyz@[`{-_0189aceg~";

    for (size_t n = 0; n < sizeof upper; n++) {
        char other[sizeof lower];
        memcpy(other, lower, sizeof lower);
        ck_assert(slice_equal_nocase((struct slice){upper, n}, (struct slice){other, n}));
        for (size_t i = 0; i < n; i++)
            for (unsigned bit = 0; bit < 8; bit++) {
                other[i] = (char)(lower[i] ^ 1 << bit);
                bool letter = (lower[i] | 0x20) >= 'a' && (lower[i] | 0x20) <= 'z';
                ck_assert_int_eq(letter && bit == 5, slice_equal_nocase((struct slice){upper, n},
                                                                        (struct slice){other, n}));
                other[i] = lower[i];
            }
    }
}
END_TEST

/* 9, 10, 11, 99, 100, 101, ... */
static uint64_t powers_around(unsigned i)
{
    uint64_t power = 10;
    for (unsigned n = i / 3; n && power < 10000000000000000000u; n--)
        power *= 10;
    return power + i % 3 - 1;
}

START_TEST(numbers_are_formatted_like_printf)
{
    uint64_t value = 1;
    for (unsigned i = 0; i < 200; i++, value = i < 140 ? value * 7 + i : powers_around(i - 140)) {
        char bytes[64], expected[64];
        struct text t = text_over(bytes, sizeof bytes);
        text_u64(&t, i < 101 ? i : value);
        text_char(&t, ' ');
        text_i64(&t, (int64_t)value);
        text_char(&t, ' ');
        text_hex_fixed(&t, value, 16);
        int n = snprintf(expected, sizeof expected, "%llu %lld %016llx",
                         (unsigned long long)(i < 101 ? i : value), (long long)(int64_t)value,
                         (unsigned long long)value);
        ck_assert(!t.failed);
        ck_assert_uint_eq(t.n, (size_t)n);
        ck_assert(memcmp(bytes, expected, t.n) == 0);
    }
    char addresses[64];
    struct text dotted = text_over(addresses, sizeof addresses);
    text_dotted(&dotted, (const unsigned char[]){0, 9, 10, 99});
    text_char(&dotted, ' ');
    text_dotted(&dotted, (const unsigned char[]){100, 109, 200, 255});
    ck_assert(slice_equal(text_slice(&dotted), SLICE("0.9.10.99 100.109.200.255")));
    char two[2];
    struct text small = text_over(two, sizeof two);
    text_u64(&small, 100);
    ck_assert(small.failed);
    ck_assert_uint_eq(small.n, 0);
    text_char(&small, '1'); /* fits, but an earlier append failed */
    ck_assert_uint_eq(small.n, 0);
}
END_TEST

START_TEST(the_128_bit_hash_depends_on_every_byte)
{
    struct hash_key key = hash_key_random();
    char bytes[33] = "";
    uint64_t whole[2], other[2];

    hash_slice_128(&key, (struct slice){bytes, sizeof bytes}, whole);
    ck_assert_uint_ne(whole[0], whole[1]);
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        hash_slice_128(&key, (struct slice){bytes, sizeof bytes}, other);
        ck_assert(whole[0] != other[0] && whole[1] != other[1]);
        bytes[i] ^= 1;
    }
}
END_TEST

START_TEST(the_cached_clock_never_runs_ahead)
{
    uint64_t before = clock_us();
    ck_assert_uint_ge(clock_cached_us(), before); /* exact if no event loop is running */
    clock_cached_read();
    before = clock_us() + 1;
    while (clock_us() < before)
        ;
    ck_assert_uint_ge(clock_cached_us(), before); /* also after a TLS handshake has refreshed it */
    clock_iteration_begin();
    for (unsigned i = 0; i < 100; i++) {
        uint64_t turn = clock_cached_us();
        ck_assert_uint_ge(turn, before);
        ck_assert_uint_le(turn, clock_us());
        before = turn;
    }
    before = clock_us();
    clock_iteration_begin();
    ck_assert_uint_ge(clock_cached_us(), before); /* never older than the wait */
}
END_TEST

static unsigned long_iterations;

static void on_long_iteration(void *context)
{
    ck_assert_ptr_eq(context, &long_iterations);
    long_iterations++;
}

START_TEST(a_long_iteration_is_reported_when_the_clock_is_read)
{
    clock_iteration_limit(2000, on_long_iteration, &long_iterations);
    clock_iteration_begin();
    uint64_t begun = clock_cached_us();
    while (clock_us() < begun + 2000)
        ;
    ck_assert_uint_eq(clock_cached_us(), begun); /* as old as its uses */
    ck_assert_uint_eq(long_iterations, 0);
    clock_cached_read();
    ck_assert_uint_eq(long_iterations, 1);
    ck_assert_uint_ge(clock_cached_us(), begun + 2000);
    clock_iteration_begin();
    (void)clock_cached_us();
    ck_assert_uint_eq(long_iterations, 1); /* another iteration */
    clock_iteration_limit(0, NULL, NULL);
}
END_TEST

START_TEST(a_value_on_a_bound_is_in_the_lower_bucket)
{
    struct histogram h = {0};
    histogram_add(&h, histogram_bounds_us[3]);
    histogram_add(&h, histogram_bounds_us[3] + 1);
    histogram_add(&h, UINT32_MAX);
    ck_assert_uint_eq(counter_read(&h.bucket[3]), 1);
    ck_assert_uint_eq(counter_read(&h.bucket[4]), 1);
    ck_assert_uint_eq(counter_read(&h.bucket[HISTOGRAM_BUCKETS]), 1);
}
END_TEST

START_TEST(latencies_of_servers_are_shown_within_a_factor_of_3_4)
{
    for (unsigned i = 1; i < ROW_HISTOGRAM_BUCKETS; i++) {
        ck_assert_uint_gt(row_histogram_bounds_us[i], row_histogram_bounds_us[i - 1]);
        ck_assert_uint_le(10 * row_histogram_bounds_us[i], 34 * row_histogram_bounds_us[i - 1]);
    }
    ck_assert_uint_le(row_histogram_bounds_us[0], 100);
    ck_assert_uint_ge(row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS - 1], 10000000);
}
END_TEST

static char passed[8];
static struct deadline many[8];

static void note(struct deadline *d)
{
    size_t n = strlen(passed);
    passed[n] = (char)('0' + (d - many));
    passed[n + 1] = 0;
}

START_TEST(deadlines_of_a_queue_expire_in_order_of_time)
{
    struct event_base *base = event_base_new();
    struct deadlines all;
    struct deadline_queue a, b;

    ck_assert_int_eq(deadlines_init(&all, base), 0);
    deadline_queue_init(&all, &a, note);
    deadline_queue_init(&all, &b, note);
    uint64_t now = clock_us();
    deadline_arm(&a, &many[0], now, 3000);
    deadline_arm(&a, &many[1], now, 1000); /* earlier than the one before it in the same queue */
    deadline_arm(&a, &many[2], now, 9000);
    deadline_arm(&b, &many[4], now, 4000); /* another queue: expires too, in any order */
    deadline_arm(&a, &many[3], now, 2000);
    deadline_cancel(&many[3]);
    deadline_arm(&a, &many[0], now, 5000); /* moved */
    while (deadline_is_armed(&many[2]) || deadline_is_armed(&many[4]))
        event_base_loop(base, EVLOOP_ONCE);
    char *other = strchr(passed, '4');
    ck_assert_ptr_nonnull(other);
    memmove(other, other + 1, strlen(other));
    ck_assert_str_eq(passed, "102");
    deadlines_clear(&all);
    event_base_free(base);
}
END_TEST

static uint64_t last_passed_us;

static void note_order(struct deadline *d)
{
    ck_assert_uint_ge(d->at_us, last_passed_us);
    last_passed_us = d->at_us;
}

START_TEST(deadlines_of_more_lengths_than_lists_expire_in_order_of_time)
{
    static struct deadline armed[300];
    struct event_base *base = event_base_new();
    struct deadlines all;
    struct deadline_queue queue;
    uint64_t now = clock_us();

    ck_assert_int_eq(deadlines_init(&all, base), 0);
    deadline_queue_init(&all, &queue, note_order);
    for (unsigned i = 0; i < COUNT_OF(armed); i++)
        deadline_arm(&queue, &armed[i], now - 1000, (i * 7 % (DEADLINE_LISTS * 2)) * 10 + i / 20);
    for (unsigned i = 0; i < COUNT_OF(armed); i += 3)
        deadline_cancel(&armed[i]);
    deadlines_pass(&all);
    for (unsigned i = 0; i < COUNT_OF(armed); i++)
        ck_assert(!deadline_is_armed(&armed[i]));
    ck_assert_uint_gt(last_passed_us, 0);
    ck_assert_ptr_null(deadline_first(&queue));
    deadlines_clear(&all);
    event_base_free(base);
}
END_TEST

/* Thousands of long deadlines, as of event streams, are not passed over for each short one. */
START_TEST(each_length_has_a_list_of_its_own)
{
    static struct deadline armed[DEADLINE_LISTS * 2];
    struct event_base *base = event_base_new();
    struct deadlines all;
    struct deadline_queue queue;
    uint64_t now = clock_us();

    ck_assert_int_eq(deadlines_init(&all, base), 0);
    deadline_queue_init(&all, &queue, note_order);
    for (unsigned i = 0; i < COUNT_OF(armed); i++)
        deadline_arm(&queue, &armed[i], now + i, (DEADLINE_LISTS - i % DEADLINE_LISTS) * 30000000);
    for (unsigned i = 0; i < COUNT_OF(armed); i++)
        ck_assert_ptr_eq(armed[i].list, &queue.armed[i % DEADLINE_LISTS]);
    ck_assert_ptr_eq(deadline_first(&queue), &armed[DEADLINE_LISTS - 1]);
    deadlines_clear(&all);
    event_base_free(base);
}
END_TEST

static void cancel_a_due_deadline(void *context)
{
    strcat(passed, "b");
    deadline_cancel(context);
}

START_TEST(due_deadlines_run_without_the_timer_and_can_be_cancelled)
{
    struct event_base *base = event_base_new();
    struct deadlines all;
    struct deadline_queue queue;

    ck_assert_int_eq(deadlines_init(&all, base), 0);
    deadline_queue_init(&all, &queue, note);
    all.before = cancel_a_due_deadline;
    all.context = &many[1];
    passed[0] = 0;
    uint64_t now = clock_us() - 10000000;
    deadline_arm(&queue, &many[0], now, 1000000);
    deadline_arm(&queue, &many[1], now, 2000000);
    deadline_arm(&queue, &many[2], now, 3000000);
    deadline_arm(&queue, &many[3], now, 100000000);
    ck_assert(!deadlines_are_due(&all, now + 999999) && deadlines_are_due(&all, now + 1000000));
    deadlines_pass(&all);
    ck_assert_str_eq(passed, "b02");
    ck_assert(!deadlines_are_due(&all, now + 99999999) && deadlines_are_due(&all, now + 100000000));
    event_base_loop(base, EVLOOP_NONBLOCK); /* the timer was rearmed */
    deadlines_pass(&all);
    ck_assert_str_eq(passed, "b02"); /* nothing was due */
    deadlines_clear(&all);
    event_base_free(base);
}
END_TEST

START_TEST(deadlines_need_no_descriptor)
{
    struct event_base *base = event_base_new();
    struct rlimit usual, none;
    struct deadlines all;
    struct deadline_queue queue;

    getrlimit(RLIMIT_NOFILE, &usual);
    none = usual;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    ck_assert_int_eq(deadlines_init(&all, base), 0);
    setrlimit(RLIMIT_NOFILE, &usual);
    ck_assert_int_eq(all.fd, -1);
    deadline_queue_init(&all, &queue, note);
    passed[0] = 0;
    deadline_arm(&queue, &many[0], clock_us(), 5000);
    while (deadline_is_armed(&many[0]))
        event_base_loop(base, EVLOOP_ONCE);
    ck_assert_str_eq(passed, "0");
    deadlines_clear(&all);
    event_base_free(base);
}
END_TEST

START_TEST(buffers_keep_appended_bytes_and_return_to_the_pool)
{
    struct iobuf_pool pool = {0};
    struct iobuf *b = iobuf_get(&pool, 10), *again;

    ck_assert_ptr_nonnull(b);
    iobuf_append(b, SLICE("hello world"));
    iobuf_take(b, 6);
    iobuf_compact(b);
    ck_assert(slice_equal(iobuf_slice(b), SLICE("world")));
    again = b;
    iobuf_put(&pool, &b);
    ck_assert_ptr_null(b);
    b = iobuf_get(&pool, IOBUF_SMALL);
    ck_assert_ptr_eq(b, again);
    ck_assert_uint_eq(iobuf_held(b), 0);
    iobuf_put(&pool, &b);
    iobuf_pool_clear(&pool);
}
END_TEST

static struct address peer(unsigned n)
{
    struct address a = {.v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000000u + n)}};
    a.length = sizeof a.v4;
    return a;
}

START_TEST(connections_per_address_are_counted_exactly)
{
    struct ip_counts *counts = ip_counts_new(1000, 32, 64);
    struct address a;

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned n = 0; n < 1000; n++) {
            a = peer(n);
            ck_assert(ip_counts_enter(counts, &a, 2));
            ck_assert(ip_counts_enter(counts, &a, 2));
            ck_assert(!ip_counts_enter(counts, &a, 2));
        }
        unsigned more = 1000;
        for (a = peer(more); ip_counts_enter(counts, &a, 2); a = peer(++more))
            ck_assert_uint_lt(more, 8000); /* the table is bounded */
        while (more-- > 1000) {
            a = peer(more);
            ip_counts_leave(counts, &a);
        }
        for (unsigned n = 0; n < 1000; n++) {
            a = peer((n * 7 + round) % 1000);
            ip_counts_leave(counts, &a);
            ip_counts_leave(counts, &a);
            ip_counts_leave(counts, &a); /* an extra leave has no effect */
        }
    }
    ip_counts_free(counts);
}
END_TEST

/* ---- timers ---------------------------------------------------------------------------------- */

enum { TIMERS = 500 };

static struct timer_heap timer_heap;
static struct timer expired[TIMERS];
static unsigned expired_count;
static uint64_t last_at_us, last_sequence;

static void on_expired(struct timer *timer)
{
    ck_assert(!timer_is_set(timer));
    ck_assert_uint_ge(clock_us(), timer->at_us);
    ck_assert_uint_ge(timer->at_us, last_at_us);
    ck_assert(timer->at_us > last_at_us || timer->sequence > last_sequence);
    last_at_us = timer->at_us;
    last_sequence = timer->sequence;
    expired_count++;
}

START_TEST(timers_expire_in_order_never_early_and_never_after_cancel)
{
    struct event_base *base = event_base_new();
    unsigned state = 1, cancelled = 0;
    uint64_t now = clock_us();

    expired_count = 0;
    last_at_us = last_sequence = 0;
    timer_heap_init(&timer_heap, base, on_expired);
    for (unsigned i = 0; i < TIMERS; i++) {
        state = state * 1103515245 + 12345;
        ck_assert(timer_set(&timer_heap, &expired[i], now + (state >> 16) % 50000));
        if (state >> 8 & 1 && timer_is_set(&expired[i / 2])) {
            timer_cancel(&timer_heap, &expired[i / 2]);
            cancelled++;
        }
    }
    ck_assert_uint_gt(cancelled, TIMERS / 8);
    while (timer_heap.count)
        event_base_loop(base, EVLOOP_ONCE);
    ck_assert_uint_eq(expired_count, TIMERS - cancelled);
    last_at_us = last_sequence = 0;
    ck_assert(timer_set(&timer_heap, &expired[0], 1)); /* long past */
    ck_assert(timer_set(&timer_heap, &expired[1], UINT64_MAX / 1000000));
    while (timer_is_set(&expired[0]))
        event_base_loop(base, EVLOOP_ONCE);
    ck_assert(timer_is_set(&expired[1]));
    timer_heap_clear(&timer_heap);
    ck_assert(!timer_is_set(&expired[1]));
    event_base_free(base);
}
END_TEST

static void *log_the_same_event(void *is_first)
{
    for (unsigned i = 0; i < 100; i++)
        *(bool *)is_first |= log_is_first(SLICE("10.0.0.1:6379"), "down");
    return NULL;
}

START_TEST(an_event_is_logged_once_for_all_threads)
{
    bool is_first[8] = {false};
    pthread_t threads[8];
    unsigned count = 0;

    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_the_same_event, &is_first[i]), 0);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < 8; i++)
        count += is_first[i];
    ck_assert_uint_eq(count, 1);
    /* Another event, logged by one thread. */
    ck_assert(log_is_first(SLICE("10.0.0.1:6379"), "up"));
    ck_assert(log_is_first(SLICE("10.0.0.1:6379"), "up"));
    ck_assert(log_is_first(SLICE("10.0.0.2:6379"), "down"));
}
END_TEST

/* "full" takes twelve bytes. */
START_TEST(lines_before_the_file_is_open_are_kept_up_to_a_bound)
{
    char path[] = "/tmp/weir-check-log-XXXXXX", line[1024], *bytes = calloc(1, 128 * 1024);

    close(mkstemp(path));
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    log_keep_early_lines();
    for (unsigned i = 0; i < 70; i++) {
        line[0] = (char)('0' + i);
        log_put_line((struct slice){line, sizeof line});
    }
    ck_assert_int_eq(log_open(path), 0);
    log_put_line(SLICE("next\n"));
    ck_assert_int_eq(log_open("stderr"), 0);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(bytes, 1, 128 * 1024 - 1, file);
    fclose(file);
    ck_assert_uint_gt(n, 64 * sizeof line);
    for (unsigned i = 0; i < 64; i++)
        ck_assert_int_eq(bytes[i * sizeof line], '0' + (int)i);
    ck_assert_ptr_nonnull(strstr(bytes + 64 * sizeof line, "on stderr only\nnext\n"));
    unlink(path);
    free(bytes);
}
END_TEST

START_TEST(a_truncated_line_stays_in_its_file)
{
    char directory[] = "/tmp/weir-check-log-XXXXXX", full[64], next[64], bytes[256] = "";
    struct rlimit before, twelve;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(full, sizeof full, "%s/full", directory);
    snprintf(next, sizeof next, "%s/next", directory);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    twelve = (struct rlimit){12, before.rlim_max};
    ck_assert_int_eq(log_open(full), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &twelve), 0);
    log_put_line(SLICE("one\n"));
    log_put_line(SLICE("another one\n"));
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_uint_eq(log_dropped(), 1);
    ck_assert_int_eq(log_open(next), 0);
    log_put_line(SLICE("two\n"));
    ck_assert_int_eq(log_open("stderr"), 0);
    FILE *file = fopen(next, "r");
    ck_assert_ptr_nonnull(file);
    bytes[fread(bytes, 1, sizeof bytes - 1, file)] = '\0';
    fclose(file);
    ck_assert_ptr_nonnull(strstr(bytes, "log: 1 line was lost: File too large\ntwo\n"));
    ck_assert_msg(bytes[0] == '2', "the file starts with \"%s\"", bytes); /* the year */
    unlink(full), unlink(next), rmdir(directory);
}
END_TEST

enum { LINE_BYTES = 700, LINES_AT_ONCE = 80, ROUNDS = 50 };

/* Replaces the log file with a socket that preserves the boundaries of each write(2). Returns the
 * other end. */
static int log_to_a_socket(void)
{
    char path[] = "/tmp/weir-check-log-XXXXXX";
    int pair[2], placeholder = mkstemp(path), file;

    ck_assert_int_ge(placeholder, 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    file = dup(placeholder);
    close(file); /* log_open() gets this descriptor next */
    ck_assert_int_eq(log_open(path), 0);
    ck_assert_int_eq(dup2(pair[1], file), file);
    close(pair[1]), close(placeholder), unlink(path);
    return pair[0];
}

/* Reads this many bytes of whole lines. */
static void take_lines(int fd, size_t size)
{
    static char bytes[LINES_AT_ONCE * LINE_BYTES + 1];

    while (size) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        ck_assert_int_gt(n, 0);
        ck_assert_msg(n % LINE_BYTES == 0 && bytes[n - 1] == '\n',
                      "a write of %zd bytes ends in a line", n);
        size -= (size_t)n;
    }
}

/* Another thread's line must not be written between the two parts of a wrapped line. The ring is
 * 1 MiB, so about three of these lines wrap around. */
START_TEST(a_line_that_wraps_around_is_written_in_one_piece)
{
    char line[LINE_BYTES];
    int fd = log_to_a_socket();

    memset(line, 'r', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    ck_assert_int_eq(log_start(), 0);
    log_thread_begin();
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < LINES_AT_ONCE; i++)
            log_put_line((struct slice){line, sizeof line});
        log_thread_flush();
        take_lines(fd, sizeof line * LINES_AT_ONCE);
    }
    for (unsigned i = 0; i < 3; i++) { /* an event does not wait for log_thread_flush() */
        usleep(50000);                 /* the writer thread sleeps again */
        log_write(LEVEL_ERROR, "%u", i);
        ck_assert_int_gt(recv(fd, line, sizeof line, 0), 0);
    }
    log_thread_end();
    log_stop();
    ck_assert_int_eq(log_open("stderr"), 0);
    close(fd);
}
END_TEST

static void log_one_event(const char *path, const char *format, const char *message,
                          char line[static LOG_LINE_MAX + 1])
{
    ck_assert_int_eq(log_open(path), 0);
    ck_assert_int_eq(truncate(path, 0), 0);
    log_write(LEVEL_WARN, format, message);
    ck_assert_int_eq(log_open("stderr"), 0);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    line[fread(line, 1, LOG_LINE_MAX, file)] = 0;
    fclose(file);
}

START_TEST(a_json_log_line_is_one_valid_object)
{
    static const char start[] = "\",\"level\":\"warn\",\"message\":\"";
    char path[] = "/tmp/weir-check-log-XXXXXX", line[LOG_LINE_MAX + 1], huge[3 * LOG_LINE_MAX];

    close(mkstemp(path));
    log_set_format(LOG_JSON);
    log_one_event(path, "%s", "a \"quoted\" \\ path\n\x01\x7f \xff\xc3\xa9", line);
    ck_assert_int_eq(strncmp(line, "{\"time\":\"2", 10), 0);
    const char *rest = strstr(line, start);
    ck_assert_ptr_nonnull(rest);
    ck_assert_str_eq(rest + sizeof start - 1,
                     "a \\\"quoted\\\" \\\\ path\\n\\u0001\\u007f \uFFFDff\xc3\xa9\"}\n");
    /* Long lines, also with six bytes per escaped byte, are truncated but remain well-formed. */
    memset(huge, 1, sizeof huge - 1);
    huge[sizeof huge - 1] = 0;
    log_one_event(path, "%s", huge, line);
    ck_assert_uint_le(strlen(line), LOG_LINE_MAX);
    ck_assert_ptr_nonnull(strstr(line, "\\u0001...\"}\n"));
    for (size_t i = 0; i + 1 < sizeof huge; i += 2)
        memcpy(huge + i, "\xc3\xa9", 2);
    huge[sizeof huge - 2] = 0;
    log_one_event(path, "%s", huge, line);
    ck_assert_ptr_nonnull(strstr(line, "\xc3\xa9...\"}\n"));
    ck_assert_ptr_null(strstr(line, "\xef\xbf\xbd"));
    log_set_format(LOG_TEXT);
    log_one_event(path, "%s",
                  "a\nb\x1b[2J\xc2\x9b"
                  "2J\xc3\xa9",
                  line);
    ck_assert_ptr_nonnull(strstr(line, "Z warn  a?b?[2J??2J\xc3\xa9\n"));
    unlink(path);
}
END_TEST

START_TEST(a_repeated_message_is_logged_less_and_less_often)
{
    struct log_throttle throttle = {0};
    uint64_t suppressed, lines = 0, all = 0, now = 1000000000;
    unsigned at_s[16];

    for (unsigned ms = 0; ms < 60000; ms += 10) /* for a minute, a hundred times per second */
        if (log_throttle_allows(&throttle, now + ms * 1000ull, &suppressed)) {
            ck_assert_uint_lt(lines, 16);
            at_s[lines++] = ms / 1000;
            all += suppressed + 1;
        }
    const unsigned expected[] = {0, 1, 3, 7, 15, 25, 35, 45, 55};
    ck_assert_uint_eq(lines, COUNT_OF(expected));
    ck_assert_mem_eq(at_s, expected, sizeof expected);
    ck_assert_uint_eq(all + throttle.suppressed, 6000);

    now += 75 * 1000000; /* 15 s later: at once, and then again after a second */
    ck_assert(log_throttle_allows(&throttle, now, &suppressed));
    ck_assert_uint_eq(suppressed, 6000 - all);
    ck_assert(!log_throttle_allows(&throttle, now + 999999, &suppressed));
    ck_assert(log_throttle_allows(&throttle, now + 1000000, &suppressed));
    ck_assert_uint_eq(suppressed, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base and net");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, numbers_are_limited_to_their_range);
    tcase_add_test(tests, lists_skip_empty_elements_and_trim);
    tcase_add_test(tests, text_never_writes_past_its_end);
    tcase_add_test(tests, text_writes_numbers);
    tcase_add_test(tests, json_documents);
    tcase_add_test(tests, json_documents_grow);
    tcase_add_test(tests, json_text_is_always_valid);
    tcase_add_test(tests, text_for_terminals_has_no_control_characters);
    tcase_add_test(tests, siphash_depends_on_every_byte_and_the_key);
    tcase_add_test(tests, names_compare_without_case_at_every_length_and_position);
    tcase_add_test(tests, numbers_are_formatted_like_printf);
    tcase_add_test(tests, the_128_bit_hash_depends_on_every_byte);
    tcase_add_test(tests, the_cached_clock_never_runs_ahead);
    tcase_add_test(tests, a_value_on_a_bound_is_in_the_lower_bucket);
    tcase_add_test(tests, latencies_of_servers_are_shown_within_a_factor_of_3_4);
    tcase_add_test(tests, deadlines_of_a_queue_expire_in_order_of_time);
    tcase_add_test(tests, deadlines_of_more_lengths_than_lists_expire_in_order_of_time);
    tcase_add_test(tests, each_length_has_a_list_of_its_own);
    tcase_add_test(tests, due_deadlines_run_without_the_timer_and_can_be_cancelled);
    tcase_add_test(tests, deadlines_need_no_descriptor);
    tcase_add_test(tests, a_long_iteration_is_reported_when_the_clock_is_read);
    tcase_add_test(tests, timers_expire_in_order_never_early_and_never_after_cancel);
    tcase_add_test(tests, buffers_keep_appended_bytes_and_return_to_the_pool);
    tcase_add_test(tests, connections_per_address_are_counted_exactly);
    tcase_add_test(tests, an_event_is_logged_once_for_all_threads);
    tcase_add_test(tests, recent_events_are_those_within_the_window);
    tcase_add_test(tests, lines_before_the_file_is_open_are_kept_up_to_a_bound);
    tcase_add_test(tests, a_truncated_line_stays_in_its_file);
    tcase_add_test(tests, a_line_that_wraps_around_is_written_in_one_piece);
    tcase_add_test(tests, a_json_log_line_is_one_valid_object);
    tcase_add_test(tests, a_repeated_message_is_logged_less_and_less_often);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
