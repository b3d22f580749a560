#include "replay/log_line.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "replay/log_merge.h"
#include "run_suite.h"

/* 2000-10-10 20:55:36 UTC */
#define OCTOBER INT64_C(971211336000000)

static char buffer[REPLAY_LINE_MAX];
static struct log_line line;

static enum log_line_kind parse(const char *text)
{
    size_t size = strlen(text);
    memcpy(buffer, text, size);
    return log_line_parse(buffer, size, &line);
}

static void assert_slice(struct slice value, const char *wanted)
{
    ck_assert_msg(slice_equal(value, slice_of(wanted)), "\"%.*s\", not \"%s\"", SLICE_ARG(value),
                  wanted);
}

START_TEST(a_line_in_the_common_format)
{
    ck_assert_int_eq(
        parse("192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a.gif HTTP/1.0\" 200 2326"),
        LOG_LINE_REQUEST);
    assert_slice(line.address, "192.0.2.1");
    assert_slice(line.user, "frank");
    assert_slice(line.client, "");
    assert_slice(line.method, "GET");
    assert_slice(line.target, "/a.gif");
    ck_assert_int_eq(line.time_us, OCTOBER);
    ck_assert_uint_eq(line.status, 200);
}
END_TEST

START_TEST(a_combined_line_of_weir_contains_the_client)
{
    ck_assert_int_eq(parse("2001:db8::1 - id:al\\x20ice [10/Oct/2000:20:55:36 +0000] \"POST "
                           "/v1?x=\\x22 HTTP/1.1\" "
                           "429 12 \"-\" \"curl\"\r"),
                     LOG_LINE_REQUEST);
    assert_slice(line.client, "id:al ice");
    assert_slice(line.user, "");
    assert_slice(line.target, "/v1?x=\"");
    ck_assert_uint_eq(line.status, 429);
    ck_assert_int_eq(line.time_us, OCTOBER);
}
END_TEST

START_TEST(unusual_quotes_brackets_and_spaces)
{
    ck_assert_int_eq(parse("192.0.2.1 - a [b] c [10/Oct/2000:20:55:36 +0000] \"GET /\\\"x y\" "
                           "HTTP/1.1\" 404 - \"r\""),
                     LOG_LINE_REQUEST);
    assert_slice(line.user, "a [b] c");
    assert_slice(line.target, "/\"x y\"");
    ck_assert_int_eq(parse("192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /old\" 200 1"),
                     LOG_LINE_REQUEST);
    assert_slice(line.target, "/old");
}
END_TEST

START_TEST(a_line_in_the_json_format)
{
    ck_assert_int_eq(
        parse(
            "{\"time\":\"2000-10-10T22:55:36.250+02:00\",\"peer\":\"10.0.0.1\",\"method\":\"GET\","
            "\"target\":\"/"
            "\\u00e9\\ud83d\\ude00\\\"\",\"host\":\"a.test\",\"client_ip\":\"192.0.2.7\","
            "\"client\":\"id:x\",\"status\":200,\"shadow\":[\"a\",\"b}\"],\"n\":{\"time\":1}}"),
        LOG_LINE_REQUEST);
    ck_assert_int_eq(line.time_us, OCTOBER + 250000);
    assert_slice(line.address, "192.0.2.7");
    assert_slice(line.client, "id:x");
    assert_slice(line.target, "/\xc3\xa9\xf0\x9f\x98\x80\"");
    assert_slice(line.host, "a.test");
    ck_assert_uint_eq(line.status, 200);
}
END_TEST

START_TEST(lines_of_other_programs)
{
    ck_assert_int_eq(
        parse("example.com:443 192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /a "
              "HTTP/1.1\" 200 2326 \"-\" \"curl\""),
        LOG_LINE_REQUEST);
    assert_slice(line.host, "example.com:443");
    assert_slice(line.address, "192.0.2.1");
    assert_slice(line.user, "frank");
    ck_assert_int_eq(
        parse("{\"time_iso8601\":\"2000-10-10T20:55:36+00:00\",\"remote_addr\":\"192.0.2.1\","
              "\"request_method\":\"GET\",\"request_uri\":\"/a?b=1\",\"http_host\":"
              "\"a.test\",\"status\":\"404\"}"),
        LOG_LINE_REQUEST);
    assert_slice(line.target, "/a?b=1");
    assert_slice(line.address, "192.0.2.1");
    assert_slice(line.host, "a.test");
    ck_assert_uint_eq(line.status, 404);
    ck_assert_int_eq(line.time_us, OCTOBER);
    ck_assert_int_eq(parse("{\"msec\":971211336.25,\"client\":\"192.0.2.1\",\"request\":\"POST /x "
                           "HTTP/2.0\",\"status\":200}"),
                     LOG_LINE_REQUEST);
    assert_slice(line.method, "POST");
    assert_slice(line.target, "/x");
    assert_slice(line.address, "192.0.2.1");
    assert_slice(line.client, "");
    ck_assert_int_eq(line.time_us, OCTOBER + 250000);
    ck_assert_int_eq(parse("2026-11-24T14:03:35.803Z warn  weir.yaml:3:1: warning"),
                     LOG_LINE_OTHER);
    ck_assert_int_eq(parse("2026-11-24T14:03:35.803Z whatever"), LOG_LINE_ODD);
}
END_TEST

START_TEST(lines_without_a_request)
{
    static const char *const other[] = {"", "# comment", "{}",
                                        "{\"level\":\"info\",\"message\":\"reload\"}"};
    static const char *const odd[] = {
        "x",
        "\xff\x00\x01",
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"-\" 408 -",
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET\" 400 -",
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1",
        "192.0.2.1 - - [31/Feb/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1",
        "192.0.2.1 - - [10/Okt/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1",
        "[10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1",
        "{\"time\":\"yesterday\",\"method\":\"GET\",\"target\":\"/\"}",
        "{\"time\":\"2000-10-10T20:55:36Z\",\"method\":\"GET\",\"target\":\"/",
        "{\"time\":\"2000-10-10T20:55:36Z\",\"method\":\"GET\",\"target\":\"/\\x\"}",
        "{\"a\":1}}",
        "{\"a\"",
        "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]",
    };
    for (unsigned i = 0; i < COUNT_OF(other); i++)
        ck_assert_msg(parse(other[i]) == LOG_LINE_OTHER, "%s", other[i]);
    for (unsigned i = 0; i < COUNT_OF(odd); i++)
        ck_assert_msg(parse(odd[i]) == LOG_LINE_ODD, "%s", odd[i]);
}
END_TEST

START_TEST(times_are_parsed_with_their_zones)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2000-02-29T23:59:60Z", INT64_C(951868800000000)},
                {"29/Feb/2004:00:00:00 +0530", INT64_C(1077993000000000)},
                {"2026-11-22 15:00:00.1234567Z", INT64_C(1795359600123456)}};
    int64_t us;

    for (unsigned i = 0; i < COUNT_OF(good); i++) {
        ck_assert_msg(log_time_parse(slice_of(good[i].text), &us), "%s", good[i].text);
        ck_assert_int_eq(us, good[i].us);
    }
    ck_assert(!log_time_parse(SLICE("2000-13-01T00:00:00Z"), &us));
    ck_assert(!log_time_parse(SLICE("2000-01-01T00:00:00"), &us));
    ck_assert(!log_time_parse(SLICE("01/Jan/2000:24:00:00 +0000"), &us));
}
END_TEST

/* A pipe cannot hold the lines of a window, so they go through files. */
static char *written(const char *text, size_t size)
{
    char *path = strdup("/tmp/weir-replay-XXXXXX");
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    close(fd);
    return path;
}

START_TEST(files_are_merged_by_time)
{
    static const char one[] =
        "192.0.2.1 - - [10/Oct/2000:20:55:38 +0000] \"GET /3 HTTP/1.1\" 200 1\n"
        "192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET /1 HTTP/1.1\" 200 1\n"
        "nonsense\n"
        "192.0.2.1 - - [10/Oct/2000:20:55:39 +0000] \"GET /4 HTTP/1.1\" 200 1";
    static const char other[] =
        "192.0.2.1 - - [10/Oct/2000:22:55:37 +0200] \"GET /2 HTTP/1.1\" 200 1\n";
    char *paths[] = {written(one, sizeof one - 1), written(other, sizeof other - 1)};
    struct log_merge *merge = log_merge_open(paths, 2);
    const struct log_line *next;
    const char *file;
    uint64_t number;
    char targets[16] = "";

    while ((next = log_merge_next(merge, &file, &number)))
        strncat(targets, next->target.p, next->target.n);
    ck_assert_str_eq(targets, "/1/2/3/4");
    struct log_counts counts = log_merge_counts(merge);
    ck_assert_uint_eq(counts.lines, 5);
    ck_assert_uint_eq(counts.requests, 4);
    ck_assert_uint_eq(counts.odd, 1);
    ck_assert_uint_eq(counts.out_of_order, 0);
    ck_assert_str_eq(counts.odd_file, paths[0]);
    ck_assert_uint_eq(counts.odd_line, 3);
    ck_assert(!counts.failed);
    log_merge_close(merge);
    for (unsigned i = 0; i < 2; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
}
END_TEST

START_TEST(long_lines_are_skipped)
{
    static char text[REPLAY_LINE_MAX * 5];
    static const char last[] =
        "\n192.0.2.1 - - [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1\n";
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof text - sizeof last + 1, last, sizeof last - 1);
    char *path = written(text, sizeof text);
    struct log_merge *merge = log_merge_open(&path, 1);
    const char *file;
    uint64_t number;

    ck_assert(log_merge_next(merge, &file, &number) != NULL);
    ck_assert_uint_eq(number, 2);
    ck_assert(log_merge_next(merge, &file, &number) == NULL);
    ck_assert_uint_eq(log_merge_counts(merge).odd, 1);
    log_merge_close(merge);
    unlink(path);
    free(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log_line");
    TCase *cases = tcase_create("all");

    tcase_add_test(cases, a_line_in_the_common_format);
    tcase_add_test(cases, a_combined_line_of_weir_contains_the_client);
    tcase_add_test(cases, unusual_quotes_brackets_and_spaces);
    tcase_add_test(cases, a_line_in_the_json_format);
    tcase_add_test(cases, lines_of_other_programs);
    tcase_add_test(cases, lines_without_a_request);
    tcase_add_test(cases, times_are_parsed_with_their_zones);
    tcase_add_test(cases, files_are_merged_by_time);
    tcase_add_test(cases, long_lines_are_skipped);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
