/* check_decision.c - the exact response fields of each header family for each verdict. */
#include <check.h>
#include <stdlib.h>

#include "base/arena.h"
#include "headers_named.h"
#include "http/head.h"
#include "limit/problem.h"
#include "run_suite.h"

static unsigned all_families; /* set by main() */

static const struct limit bucket = {.name = (char *)"per-client",
                                    .label = (char *)"per-client",
                                    .headers = true,
                                    .kind = LIMIT_BUCKET,
                                    .limit = 100,
                                    .burst = 20,
                                    .period_us = 60000000};
static const struct limit window = {.name = (char *)"quota",
                                    .label = (char *)"Window",
                                    .headers = true,
                                    .kind = LIMIT_WINDOW,
                                    .limit = 60,
                                    .burst = 60,
                                    .period_us = 60000000};

static char bytes[4096];

static uint64_t written; /* the result of the last decision_fields_write() */

static const char *fields(const struct decision *d, unsigned headers)
{
    struct text out = text_over(bytes, sizeof bytes - 1);
    written = decision_fields_write(&out, d, headers, 1700000000500000, NULL);
    ck_assert(!out.failed);
    bytes[out.n] = 0;
    return bytes;
}

static const char *problem(const struct decision *d, unsigned status)
{
    struct text out = text_over(bytes, sizeof bytes - 1);
    decision_problem_write(&out, d, status, NULL);
    ck_assert(!out.failed);
    bytes[out.n] = 0;
    return bytes;
}

static struct decision two_limits(void)
{
    struct decision d = {.verdict = VERDICT_ALLOWED, .result_count = 2, .rejected_by = -1};
    d.results[0] = (struct limit_result){.limit = &bucket,
                                         .verdict = VERDICT_ALLOWED,
                                         .quota = 100,
                                         .capacity = 20,
                                         .remaining = 15,
                                         .reset_us = 3000000,
                                         .next_us = 600000};
    d.results[1] = (struct limit_result){.limit = &window,
                                         .verdict = VERDICT_ALLOWED,
                                         .quota = 60,
                                         .capacity = 60,
                                         .remaining = 30,
                                         .reset_us = 11000001,
                                         .next_us = 7000001};
    return d;
}

START_TEST(an_allowed_request_shows_the_limit_with_the_smallest_share)
{
    struct decision d = two_limits();
    ck_assert_str_eq(fields(&d, all_families),
                     "X-RateLimit-Limit: 60\r\n"
                     "X-RateLimit-Remaining: 30\r\n"
                     "X-RateLimit-Reset: 12\r\n"
                     "X-Rate-Limit-Policy: Window\r\n"
                     "X-Rate-Limit-Quota: 60\r\n"
                     "X-Rate-Limit-Used: 30\r\n"
                     "X-Rate-Limit-Reset: 12\r\n"
                     "RateLimit-Policy: \"per-client\";q=20;w=12, \"quota\";q=60;w=60\r\n"
                     "RateLimit: \"per-client\";r=15;t=1, \"quota\";r=30;t=8\r\n");
    d.results[0].remaining = 9;
    ck_assert_str_eq(fields(&d, headers_named("x-ratelimit")), "X-RateLimit-Limit: 20\r\n"
                                                               "X-RateLimit-Remaining: 9\r\n"
                                                               "X-RateLimit-Reset: 3\r\n");
}
END_TEST

START_TEST(each_family_can_be_selected_alone)
{
    struct decision d = two_limits();
    ck_assert_str_eq(fields(&d, 0), "");
    ck_assert_str_eq(fields(&d, headers_named("x-ratelimit-epoch x-ratelimit")),
                     "X-RateLimit-Limit: 60\r\n"
                     "X-RateLimit-Remaining: 30\r\n"
                     "X-RateLimit-Reset: 1700000012\r\n");
    ck_assert_ptr_null(strstr(fields(&d, headers_named("x-rate-limit")), "X-RateLimit-"));
    ck_assert_ptr_null(strstr(fields(&d, headers_named("ietf")), "X-"));
}
END_TEST

START_TEST(a_rejected_request_shows_the_limit_that_rejected)
{
    struct decision d = two_limits();
    d.verdict = d.results[0].verdict = VERDICT_LIMITED;
    d.rejected_by = 0;
    d.results[0].remaining = 0;
    d.results[0].retry_after_us = 600001;
    d.results[0].reset_us = 12000000;
    d.results[1].remaining = 0;
    ck_assert_str_eq(fields(&d, all_families),
                     "X-RateLimit-Limit: 20\r\n"
                     "X-RateLimit-Remaining: 0\r\n"
                     "X-RateLimit-Reset: 12\r\n"
                     "X-Rate-Limit-Policy: per-client\r\n"
                     "X-Rate-Limit-Quota: 20\r\n"
                     "X-Rate-Limit-Used: 20\r\n"
                     "X-Rate-Limit-Reset: 12\r\n"
                     "RateLimit-Policy: \"per-client\";q=20;w=12, \"quota\";q=60;w=60\r\n"
                     "RateLimit: \"per-client\";r=0;t=1, \"quota\";r=0;t=8\r\n"
                     "Retry-After: 1\r\n");
    ck_assert_str_eq(problem(&d, 429),
                     "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\","
                     "\"status\":429,\"detail\":\"Try again in 1 second.\","
                     "\"violated-policies\":[\"per-client\"]}\n");
}
END_TEST

START_TEST(a_request_that_can_never_be_admitted_has_no_retry_after)
{
    struct decision d = two_limits();
    d.verdict = d.results[0].verdict = VERDICT_LIMITED;
    d.rejected_by = 0;
    d.results[0].retry_after_us = -1;
    ck_assert_int_eq(decision_retry_after(&d), -1);
    ck_assert_ptr_null(strstr(fields(&d, all_families), "Retry-After"));
    ck_assert_ptr_nonnull(strstr(problem(&d, 429), "costs more than its rate limit ever allows"));
}
END_TEST

static struct decision random_rejection(void)
{
    static const int64_t some[] = {0, 1, 5, 9, 10, 12, 99, 100, 3600, INT64_C(2000000000000000)};
    struct decision d = two_limits();

    d.verdict = VERDICT_LIMITED;
    d.rejected_by = rand() % 2;
    d.results[d.rejected_by].verdict = VERDICT_LIMITED;
    d.results[!d.rejected_by].shadow = rand() % 3 == 0;
    d.results[d.rejected_by].retry_after_us = some[rand() % 9] * 1000000 - rand() % 3;
    for (unsigned i = 0; i < 2; i++) {
        d.results[i].remaining = some[rand() % 10];
        d.results[i].reset_us = some[rand() % 9] * 1000000 + rand() % 2;
        d.results[i].next_us = some[rand() % 9] * 1000000 + rand() % 2;
        d.results[i].capacity += rand() % 8 == 0;
    }
    return d;
}

static size_t write_marked(struct text *out, const struct decision *d, unsigned headers,
                           struct marks *marks)
{
    marks->count = 0;
    marks->too_many = false;
    decision_fields_write(out, d, headers, 1700000000500000, marks);
    decision_problem_write(out, d, 429, marks);
    ck_assert(!out->failed && !marks->too_many);
    return out->n;
}

/* Two rejections of the same form differ only in their numbers. */
START_TEST(a_rejection_with_patched_numbers_equals_a_new_one)
{
    unsigned families[16] = {all_families, headers_named("x-ratelimit-epoch ietf"), 0}, count = 3;
    char first[2048], second[2048], digits[24];
    unsigned alike = 0, same_size = 0;

    for (unsigned i = 0; header_family_words[i]; i++)
        if (header_families_patchable(1u << i))
            families[count++] = 1u << i;
    ck_assert(!header_families_patchable(all_families | headers_named("openai")));
    srand(1);
    for (unsigned n = 0; n < 200000; n++) {
        struct decision a = random_rejection(), b = random_rejection();
        struct text one = text_over(first, sizeof first), two = text_over(second, sizeof second);
        struct marks marks, others;
        unsigned headers = families[n % count];
        bool fits = true;

        if (!decision_reads_like(&a, &b))
            continue;
        alike++;
        size_t size = write_marked(&one, &a, headers, &marks),
               size_b = write_marked(&two, &b, headers, &others);
        for (unsigned i = 0; i < marks.count; i++) {
            struct text number = text_over(digits, sizeof digits);
            const struct mark *m = &marks.mark[i];
            text_i64(&number,
                     decision_number(&b, m->number, &b.results[m->result], 1700000000500000));
            fits = fits && number.n == m->size;
            if (fits)
                memcpy(first + m->at, digits, number.n);
        }
        if (!fits)
            continue;
        same_size++;
        ck_assert_uint_eq(size, size_b);
        ck_assert_msg(memcmp(first, second, size) == 0, "%.*s\n%.*s", (int)size, first, (int)size,
                      second);
    }
    ck_assert_uint_gt(alike, 1000);
    ck_assert_uint_gt(same_size, 100);
}
END_TEST

START_TEST(prepared_parts_of_fields_read_like_written_ones)
{
    static const enum verdict verdicts[] = {VERDICT_ALLOWED, VERDICT_LIMITED, VERDICT_PROHIBITED,
                                            VERDICT_UNLIMITED};
    struct arena arena = {NULL};
    struct limit limits[2] = {bucket, window};
    struct limit unprepared[2];
    static struct policy policy;
    char written_anew[sizeof bytes];

    limits[1].name = (char *)"odd \"name\"";
    memcpy(unprepared, limits, sizeof limits);
    policy = (struct policy){.arena = &arena, .limits = limits, .limit_count = 2};
    header_families_prepare(&policy);
    for (unsigned i = 0; i < LIMIT_FIELD_PARTS; i++)
        ck_assert(limits[0].fields.parts[i].n && limits[1].fields.parts[i].n);
    srand(2);
    for (unsigned n = 0; n < 20000; n++) {
        struct decision d = random_rejection();
        unsigned headers = n % 3 ? all_families : headers_named("x-ratelimit-epoch openai");
        d.verdict = verdicts[n % COUNT_OF(verdicts)];
        for (unsigned i = 0; i < 2; i++)
            d.results[i].limit = &unprepared[i];
        strcpy(written_anew, fields(&d, headers));
        for (unsigned i = 0; i < 2; i++)
            d.results[i].limit = &limits[i];
        ck_assert_str_eq(fields(&d, headers), written_anew);
    }
    arena_free(&arena);
}
END_TEST

static struct decision decision_without_numbers(enum verdict verdict)
{
    struct decision d = {.verdict = verdict,
                         .result_count = 1,
                         .rejected_by = verdict == VERDICT_PROHIBITED ? 0 : -1};
    d.results[0] =
        (struct limit_result){.limit = &window, .verdict = verdict, .retry_after_us = -1};
    return d;
}

START_TEST(a_prohibited_client_gets_quota_zero_and_no_times)
{
    struct decision d = decision_without_numbers(VERDICT_PROHIBITED);
    ck_assert_str_eq(fields(&d, all_families), "X-RateLimit-Limit: 0\r\n"
                                               "X-RateLimit-Remaining: 0\r\n"
                                               "X-Rate-Limit-Policy: Window\r\n"
                                               "X-Rate-Limit-Quota: 0\r\n");
    ck_assert_ptr_nonnull(strstr(problem(&d, 429), "\"violated-policies\":[\"quota\"]"));
}
END_TEST

START_TEST(an_unlimited_client_gets_quota_minus_one)
{
    struct decision d = decision_without_numbers(VERDICT_UNLIMITED);
    ck_assert_str_eq(fields(&d, all_families),
                     "X-Rate-Limit-Policy: Window\r\nX-Rate-Limit-Quota: -1\r\n");
    ck_assert_str_eq(fields(&d, headers_named("ietf x-ratelimit")), "");
}
END_TEST

START_TEST(decisions_without_redis_have_no_fields)
{
    struct decision open = {.verdict = VERDICT_FAILED_OPEN, .rejected_by = -1};
    struct decision closed = {.verdict = VERDICT_FAILED_CLOSED, .rejected_by = -1};
    struct decision none = {.verdict = VERDICT_ALLOWED, .rejected_by = -1};
    ck_assert_str_eq(fields(&open, all_families), "");
    ck_assert_str_eq(fields(&none, all_families), "");
    ck_assert_str_eq(fields(&closed, all_families), "Retry-After: 1\r\n");
    ck_assert_ptr_nonnull(strstr(problem(&closed, 503), "#temporary-reduced-capacity"));
    ck_assert_ptr_nonnull(strstr(problem(&closed, 503), "\"status\":503"));
    ck_assert_ptr_null(strstr(problem(&closed, 503), "violated-policies"));
}
END_TEST

START_TEST(jitter_only_increases_the_wait)
{
    struct decision d = two_limits();
    d.results[1].verdict = d.verdict = VERDICT_LIMITED;
    d.results[1].retry_after_us = 100000000;
    d.rejected_by = 1;
    decision_spread(&d, 1000, 0);
    ck_assert_int_eq(decision_retry_after(&d), 100);
    decision_spread(&d, 1000, UINT64_MAX / 2);
    ck_assert_int_eq(decision_retry_after(&d), 105);
    decision_spread(&d, 1000, UINT64_MAX);
    ck_assert_int_eq(decision_retry_after(&d), 110);
    decision_spread(&d, 0, UINT64_MAX);
    ck_assert_int_eq(decision_retry_after(&d), 100);
    d.results[1].retry_after_us = -1;
    decision_spread(&d, 10000, UINT64_MAX);
    ck_assert_int_eq(decision_retry_after(&d), -1);
    d.results[1].retry_after_us = INT64_C(1) << 52;
    decision_spread(&d, 10000, UINT64_MAX);
    ck_assert_int_eq(decision_retry_after(&d), 9007199254);
}
END_TEST

START_TEST(concurrency_limits_have_no_window_and_no_reset)
{
    static const struct limit flight = {.name = (char *)"flight",
                                        .label = (char *)"flight",
                                        .headers = true,
                                        .kind = LIMIT_CONCURRENCY,
                                        .limit = 20,
                                        .burst = 20,
                                        .period_us = 10000000};
    struct decision d = {.verdict = VERDICT_LIMITED, .result_count = 1, .rejected_by = 0};
    d.results[0] = (struct limit_result){.limit = &flight,
                                         .verdict = VERDICT_LIMITED,
                                         .quota = 20,
                                         .capacity = 20,
                                         .retry_after_us = 1000000,
                                         .reset_us = 9000000};
    ck_assert_str_eq(fields(&d, all_families),
                     "X-RateLimit-Limit: 20\r\nX-RateLimit-Remaining: 0\r\n"
                     "X-Rate-Limit-Policy: flight\r\nX-Rate-Limit-Quota: 20\r\n"
                     "X-Rate-Limit-Used: 20\r\n"
                     "RateLimit-Policy: \"flight\";q=20;qu=\"concurrent-requests\"\r\n"
                     "RateLimit: \"flight\";r=0\r\nRetry-After: 1\r\n");
}
END_TEST

/* The service has requests_per_unit: 0; a priority's share of a burst of 1 is 0. */
START_TEST(a_limit_of_zero_never_resets)
{
    struct decision d = {.verdict = VERDICT_LIMITED, .result_count = 2, .rejected_by = 0};

    d.results[0] = (struct limit_result){
        .limit = &window, .verdict = VERDICT_LIMITED, .retry_after_us = -1, .next_us = 5000000};
    d.results[1] = (struct limit_result){
        .limit = &bucket, .verdict = VERDICT_LIMITED, .quota = 100, .retry_after_us = -1};
    ck_assert_str_eq(fields(&d, all_families),
                     "X-RateLimit-Limit: 0\r\nX-RateLimit-Remaining: 0\r\n"
                     "X-Rate-Limit-Policy: Window\r\nX-Rate-Limit-Quota: 0\r\n"
                     "RateLimit-Policy: \"quota\";q=0;w=60, \"per-client\";q=0\r\n"
                     "RateLimit: \"quota\";r=0, \"per-client\";r=0\r\n");
    ck_assert_ptr_null(strstr(fields(&d, headers_named("openai")), "reset"));
}
END_TEST

START_TEST(limits_with_headers_off_are_hidden)
{
    struct decision d = two_limits();
    struct limit hidden = window;
    hidden.headers = false;
    d.results[1].limit = &hidden;
    d.results[1].remaining = 0;
    const char *bucket_alone =
        "X-RateLimit-Limit: 20\r\nX-RateLimit-Remaining: 15\r\nX-RateLimit-Reset: 3\r\n"
        "RateLimit-Policy: \"per-client\";q=20;w=12\r\n"
        "RateLimit: \"per-client\";r=15;t=1\r\n";
    ck_assert_str_eq(fields(&d, headers_named("x-ratelimit ietf")), bucket_alone);
    d.results[1].limit = &window;
    d.results[1].shadow = true;
    d.results[1].verdict = VERDICT_SHADOW;
    d.results[1].retry_after_us = 5000000;
    ck_assert_str_eq(fields(&d, headers_named("x-ratelimit ietf")), bucket_alone);
    d.results[0].shadow = true;
    ck_assert_str_eq(fields(&d, all_families), "");
    d = two_limits(); /* a hidden limit that rejects still sends Retry-After */
    d.results[1].limit = &hidden;
    d.results[1].verdict = d.verdict = VERDICT_LIMITED;
    d.results[1].retry_after_us = 5000000;
    d.rejected_by = 1;
    ck_assert_str_eq(
        fields(&d, headers_named("x-ratelimit")),
        "X-RateLimit-Limit: 20\r\nX-RateLimit-Remaining: 15\r\nX-RateLimit-Reset: 3\r\n"
        "Retry-After: 5\r\n");
    ck_assert_ptr_nonnull(strstr(problem(&d, 429), "\"violated-policies\":[\"quota\"]"));
}
END_TEST

START_TEST(names_are_escaped_and_large_numbers_are_limited)
{
    struct limit odd = {.name = (char *)"a\"b\\c\xc3\n",
                        .label = (char *)"odd",
                        .headers = true,
                        .limit = 1,
                        .period_us = INT64_MAX};
    struct decision d = {.verdict = VERDICT_ALLOWED, .result_count = 1, .rejected_by = -1};
    d.results[0] = (struct limit_result){.limit = &odd,
                                         .quota = 1,
                                         .capacity = INT64_MAX,
                                         .remaining = INT64_MAX,
                                         .reset_us = INT64_MAX - 999999,
                                         .next_us = INT64_MAX - 999999};
    ck_assert_str_eq(fields(&d, headers_named("ietf")),
                     "RateLimit-Policy: \"a\\\"b\\\\c??\";q=999999999999999;w=999999999999999\r\n"
                     "RateLimit: \"a\\\"b\\\\c??\";r=999999999999999;t=9223372036854\r\n");
}
END_TEST

/* A server's fields of the written families are replaced, others stay. */
START_TEST(every_field_that_is_sent_is_known_to_the_parser)
{
    struct decision d = two_limits(), unlimited = decision_without_numbers(VERDICT_UNLIMITED);

    for (unsigned i = 0; header_family_words[i]; i++) {
        const char *line = fields(&d, 1u << i);
        ck_assert_msg(*line, "%s sends no field", header_family_words[i]);
        for (; *line; line = strchr(line, '\n') + 1) {
            struct slice name = {line, strcspn(line, ":")};
            ck_assert_msg(written == FIELD_BIT(field_id_of(name)), "%.*s in http/head.h",
                          SLICE_ARG(name));
        }
    }
    fields(&unlimited, all_families);
    ck_assert_uint_eq(written, FIELD_BIT(FIELD_X_RATE_LIMIT));
    d.results[0].shadow = d.results[1].shadow = true;
    fields(&d, all_families);
    ck_assert_uint_eq(written, 0);
}
END_TEST

int main(void)
{
    all_families = headers_named("x-ratelimit x-rate-limit ietf");
    Suite *suite = suite_create("decision");
    TCase *tests = tcase_create("fields");

    tcase_add_test(tests, an_allowed_request_shows_the_limit_with_the_smallest_share);
    tcase_add_test(tests, each_family_can_be_selected_alone);
    tcase_add_test(tests, every_field_that_is_sent_is_known_to_the_parser);
    tcase_add_test(tests, a_rejected_request_shows_the_limit_that_rejected);
    tcase_add_test(tests, a_request_that_can_never_be_admitted_has_no_retry_after);
    tcase_add_test(tests, a_rejection_with_patched_numbers_equals_a_new_one);
    tcase_add_test(tests, prepared_parts_of_fields_read_like_written_ones);
    tcase_add_test(tests, a_prohibited_client_gets_quota_zero_and_no_times);
    tcase_add_test(tests, an_unlimited_client_gets_quota_minus_one);
    tcase_add_test(tests, decisions_without_redis_have_no_fields);
    tcase_add_test(tests, jitter_only_increases_the_wait);
    tcase_add_test(tests, limits_with_headers_off_are_hidden);
    tcase_add_test(tests, concurrency_limits_have_no_window_and_no_reset);
    tcase_add_test(tests, a_limit_of_zero_never_resets);
    tcase_add_test(tests, names_are_escaped_and_large_numbers_are_limited);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
