/* check_http_rewrite.c - forwarded heads: trusted peers, rewrite plans, size limits, dates. Other
 * dropped and kept fields are in the corpus (tests/http). */
#include <check.h>
#include <stdio.h>
#include <time.h>

#include "http/rewrite.h"
#include "run_suite.h"

static struct request_head request;
static struct response_head response;
static struct refusal refusal;
static char bytes[4096];

static struct slice rewritten_request(const char *head, const struct forward_facts *facts)
{
    struct framing framing;
    struct text out = text_over(bytes, sizeof bytes);
    ck_assert_msg(request_head_parse(slice_of(head), &request, &refusal), "%s", refusal.why);
    ck_assert(request_framing(&request, &framing, &refusal));
    request_head_write(&out, &request, &framing, facts);
    ck_assert(!out.failed);
    return text_slice(&out);
}

/* weir's choices for a response, and the client's connection. */
struct response_plan {
    uint64_t dropped; /* FIELD_BITs */
    struct slice rate_fields, request_id, upgrade;
    struct response_connection connection;
};

static struct slice rewritten_response(const char *head, const struct response_plan *plan)
{
    char line_bytes[1024];
    struct text out = text_over(bytes, sizeof bytes),
                lines = text_over(line_bytes, sizeof line_bytes);
    struct framing framing = {FRAMING_NONE, 0};
    struct response chosen;
    ck_assert_msg(response_head_parse(slice_of(head), &response, &refusal), "%s", refusal.why);
    response_forward(&chosen, &lines, &response, &framing, SLICE("Sat, 21 Nov 2026 12:00:00 GMT"));
    chosen.dropped |= plan->dropped;
    text_put(&lines, plan->rate_fields);
    response_add_request_id(&lines, &response, plan->request_id);
    chosen.lines = text_slice(&lines);
    chosen.upgrade = plan->upgrade;
    response_head_write(&out, &chosen, &plan->connection);
    ck_assert(!out.failed);
    return text_slice(&out);
}

static void assert_equals(struct slice is, const char *wanted)
{
    ck_assert_msg(slice_equal(is, slice_of(wanted)), "%.*s", SLICE_ARG(is));
}

static const char forged[] =
    "GET /a HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: "
    "https\r\n"
    "X-Forwarded-Host: api.example.com\r\nForwarded: for=203.0.113.9\r\nX-Weir-Client: id:admin\r\n"
    "X-Weir-Client: id:root\r\nX-Request-Id: 1\r\n\r\n";

START_TEST(forwarding_fields_of_untrusted_peers_are_replaced)
{
    struct forward_facts facts = {.peer_ip = SLICE("192.0.2.7"),
                                  .scheme = SLICE("http"),
                                  .client = SLICE("ip:192.0.2.7"),
                                  .request_id = SLICE("abc")};
    assert_equals(
        rewritten_request(forged, &facts),
        "GET /a HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-For: 203.0.113.9, "
        "192.0.2.7\r\nX-Forwarded-Proto: http\r\n"
        "X-Forwarded-Host: weir.test\r\nVia: 1.1 weir\r\nX-Request-Id: abc\r\nX-Weir-Client: "
        "ip:192.0.2.7\r\n\r\n");
}
END_TEST

START_TEST(forwarding_fields_of_trusted_peers_are_kept)
{
    struct forward_facts facts = {
        .peer_ip = SLICE("192.0.2.7"), .peer_trusted = true, .scheme = SLICE("http")};
    assert_equals(
        rewritten_request(forged, &facts),
        "GET /a HTTP/1.1\r\nHost: weir.test\r\nForwarded: for=203.0.113.9\r\nX-Forwarded-For: "
        "203.0.113.9, 192.0.2.7\r\n"
        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: api.example.com\r\nVia: 1.1 weir\r\n\r\n");
}
END_TEST

START_TEST(repeated_forwarding_fields_of_trusted_peers_are_replaced)
{
    struct forward_facts facts = {
        .peer_ip = SLICE("192.0.2.7"), .peer_trusted = true, .scheme = SLICE("http")};
    assert_equals(
        rewritten_request(
            "GET /a HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Proto: "
            "http\r\nX-Forwarded-Host:\r\n\r\n",
            &facts),
        "GET /a HTTP/1.1\r\nHost: weir.test\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: "
        "http\r\n"
        "X-Forwarded-Host: weir.test\r\nVia: 1.1 weir\r\n\r\n");
}
END_TEST

START_TEST(a_peer_without_address_appends_nothing)
{
    struct forward_facts facts = {.scheme = SLICE("http"), .host = SLICE("127.0.0.1:3000")};
    assert_equals(rewritten_request("GET /a HTTP/1.0\r\n\r\n", &facts),
                  "GET /a HTTP/1.1\r\nHost: 127.0.0.1:3000\r\nX-Forwarded-Proto: http\r\nVia: 1.0 "
                  "weir\r\n\r\n");
}
END_TEST

/* Returns the Forwarded line of a request with these field lines. */
static const char *forwarded(const char *lines, const struct forward_facts *facts)
{
    static char line[1024];
    char head[1024];
    snprintf(head, sizeof head, "GET /a HTTP/1.1\r\nHost: weir.test\r\n%s\r\n", lines);
    struct slice out = rewritten_request(head, facts);
    const char *found = memmem(out.p, out.n, "\r\nForwarded: ", 13);
    ck_assert_ptr_nonnull(found);
    const char *end = memchr(found + 13, '\r', (size_t)(out.p + out.n - found - 13));
    ck_assert_msg(memmem(end, (size_t)(out.p + out.n - end), "\r\nForwarded: ", 13) == NULL, "%.*s",
                  SLICE_ARG(out));
    snprintf(line, sizeof line, "%.*s", (int)(end - found - 13), found + 13);
    return line;
}

START_TEST(forwarded_is_sent_once_and_forged_values_are_removed)
{
    struct forward_facts facts = {
        .peer_ip = SLICE("192.0.2.7"), .forwarded = true, .scheme = SLICE("https")};
    const char *ours = "for=192.0.2.7;host=weir.test;proto=https";
    ck_assert_str_eq(forwarded("", &facts), ours);
    ck_assert_str_eq(forwarded("Forwarded: for=203.0.113.9\r\n", &facts), ours);
    facts.peer_trusted = true;
    ck_assert_str_eq(forwarded("", &facts), ours);
    ck_assert_str_eq(forwarded("Forwarded: for=203.0.113.9\r\nX-A: 1\r\nforwarded:\r\nFORWARDED: "
                               "for=\"[2001:db8::1]:80\"; "
                               "proto=https , for=_x\r\n",
                               &facts),
                     "for=203.0.113.9, for=\"[2001:db8::1]:80\"; proto=https , for=_x, "
                     "for=192.0.2.7;host=weir.test;proto=https");
    /* Values that would include the element that weir appends. */
    static const char *const open[] = {"Forwarded: for=\"203.0.113.9\r\n",
                                       "Forwarded: for=\"a\\\"\r\n",
                                       "Forwarded: for=\"a\\\\\"\r\n",
                                       "Forwarded: \"\r\n",
                                       "Forwarded: for=a\"b\"\r\n",
                                       "Forwarded: for=\"a\"b\r\n",
                                       "Forwarded: for=b\r\nForwarded: for=\"a\r\n"};
    for (size_t i = 0; i < COUNT_OF(open); i++)
        ck_assert_str_eq(forwarded(open[i], &facts), ours);
}
END_TEST

START_TEST(forwarded_quotes_values_that_are_not_tokens)
{
    struct forward_facts facts = {
        .peer_ip = SLICE("2001:db8::7"), .forwarded = true, .scheme = SLICE("http")};
    const char *head = "GET /a HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n";
    assert_equals(
        rewritten_request(head, &facts),
        "GET /a HTTP/1.1\r\nHost: [::1]:8080\r\nX-Forwarded-For: 2001:db8::7\r\nX-Forwarded-Proto: "
        "http\r\n"
        "X-Forwarded-Host: [::1]:8080\r\n"
        "Forwarded: for=\"[2001:db8::7]\";host=\"[::1]:8080\";proto=http\r\nVia: 1.1 weir\r\n\r\n");
    facts.peer_ip = SLICE_NONE;
    ck_assert_str_eq(forwarded("", &facts), "for=unknown;host=weir.test;proto=http");
    assert_equals(rewritten_request("GET /a HTTP/1.0\r\n\r\n", &facts),
                  "GET /a HTTP/1.1\r\nHost: \r\nX-Forwarded-Proto: http\r\nForwarded: "
                  "for=unknown;proto=http\r\nVia: 1.0 "
                  "weir\r\n\r\n");
}
END_TEST

START_TEST(upgrade_is_sent_only_if_planned)
{
    const char *head = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, X-A\r\nUpgrade: "
                       "websocket\r\nX-A: 1\r\n\r\n";
    struct forward_facts facts = {.scheme = SLICE("http"), .upgrade = SLICE("websocket")};
    assert_equals(rewritten_request(head, &facts),
                  "GET /a HTTP/1.1\r\nHost: a\r\nConnection: "
                  "upgrade\r\nUpgrade: websocket\r\nX-Forwarded-Proto: http\r\n"
                  "X-Forwarded-Host: a\r\nVia: 1.1 weir\r\n\r\n");
    struct response_plan plan = {.connection.client_minor = 1, .upgrade = SLICE("websocket")};
    assert_equals(
        rewritten_response("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "
                           "websocket\r\nDate: x\r\n\r\n",
                           &plan),
        "HTTP/1.1 101 Switching Protocols\r\nDate: x\r\nConnection: upgrade\r\nUpgrade: "
        "websocket\r\nVia: 1.1 weir\r\n\r\n");
}
END_TEST

START_TEST(a_426_keeps_its_upgrade_field)
{
    const char *head =
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: a, b\r\nConnection: upgrade\r\nUpgrade: \r\n"
        "Upgrade: c\r\nDate: x\r\n\r\n";
    struct response_plan plan = {.connection.client_minor = 1};
    assert_equals(rewritten_response(head, &plan),
                  "HTTP/1.1 426 Upgrade Required\r\nDate: x\r\nUpgrade: a, b\r\nUpgrade: c\r\n"
                  "Connection: upgrade\r\nVia: 1.1 weir\r\n\r\n");
    plan.connection.client_minor = 0;
    assert_equals(rewritten_response(head, &plan),
                  "HTTP/1.1 426 Upgrade Required\r\nDate: x\r\nConnection: keep-alive\r\nVia: 1.1 "
                  "weir\r\n\r\n");
}
END_TEST

START_TEST(response_fields_follow_the_plan)
{
    const char *head =
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nRateLimit: \"theirs\"\r\nX-RateLimit-Reset: "
        "1\r\nDate: x\r\n\r\n";
    struct response_plan plan = {.connection.client_minor = 1};
    assert_equals(rewritten_response(head, &plan),
                  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nRateLimit: \"theirs\"\r\n"
                  "X-RateLimit-Reset: 1\r\nDate: x\r\nVia: 1.1 weir\r\n\r\n");
    plan = (struct response_plan){.dropped = FIELD_BIT(FIELD_RATELIMIT),
                                  .rate_fields = SLICE("RateLimit: \"ours\"\r\n")};
    assert_equals(rewritten_response(head, &plan),
                  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-RateLimit-Reset: 1\r\nDate: x\r\n"
                  "Connection: keep-alive\r\nVia: 1.1 weir\r\nRateLimit: \"ours\"\r\n\r\n");
    plan.dropped |= FIELD_BIT(FIELD_X_RATELIMIT);
    assert_equals(rewritten_response(head, &plan),
                  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: x\r\nConnection: keep-alive\r\n"
                  "Via: 1.1 weir\r\nRateLimit: \"ours\"\r\n\r\n");
    plan = (struct response_plan){.connection = {.client_minor = 1, .close = true, .chunked = true},
                                  .request_id = SLICE("id")};
    assert_equals(
        rewritten_response("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", &plan),
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nDate: Sat, 21 "
        "Nov 2026 "
        "12:00:00 "
        "GMT\r\nVia: 1.0 weir\r\nX-Request-Id: id\r\n\r\n");
}
END_TEST

START_TEST(interim_responses_contain_only_end_to_end_fields)
{
    struct text out = text_over(bytes, sizeof bytes);
    ck_assert(response_head_parse(SLICE("HTTP/1.1 103 Early Hints\r\nLink: a\r\nConnection: "
                                        "b\r\nB: c\r\nContent-Length: 1\r\n\r\n"),
                                  &response, &refusal));
    struct response interim = response_interim(&response);
    interim_head_write(&out, &interim);
    assert_equals(text_slice(&out), "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n");
}
END_TEST

START_TEST(an_overflow_is_recorded_and_nothing_is_written)
{
    struct framing framing = {FRAMING_CHUNKED, 0};
    struct forward_facts facts = {.peer_ip = SLICE("192.0.2.7"), .scheme = SLICE("http")};
    size_t whole = rewritten_request(forged, &facts).n;
    whole += sizeof "Transfer-Encoding: chunked\r\n" - 1;
    for (size_t cap = 0; cap <= whole; cap++) {
        struct text out = text_over(bytes, cap);
        bytes[cap] = '!';
        request_head_write(&out, &request, &framing, &facts);
        ck_assert(out.failed == (cap < whole));
        ck_assert(bytes[cap] == '!');
    }
}
END_TEST

START_TEST(dates_equal_those_of_the_c_library)
{
    static const int64_t times[] = {0,          784111777,  951782399,  951782400,   1078012800,
                                    1709164800, 1795262400, 4107542400, 253402300799};
    for (size_t i = 0; i < COUNT_OF(times) + 2000; i++) {
        int64_t seconds = i < COUNT_OF(times) ? times[i] : (int64_t)(i * UINT64_C(86399) * 31);
        time_t time = (time_t)seconds;
        struct tm tm;
        char wanted[64], date[29];
        strftime(wanted, sizeof wanted, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&time, &tm));
        http_date_write(date, seconds);
        ck_assert_msg(memcmp(date, wanted, 29) == 0, "%.29s, %s", date, wanted);
    }
    char date[29];
    http_date_write(date, -1);
    ck_assert_mem_eq(date, "Thu, 01 Jan 1970 00:00:00 GMT", 29);
    http_date_write(date, INT64_MAX);
    ck_assert_mem_eq(date, "Fri, 31 Dec 9999 23:59:59 GMT", 29);
}
END_TEST

START_TEST(reason_phrases)
{
    ck_assert_str_eq(reason_phrase(200), "OK");
    ck_assert_str_eq(reason_phrase(429), "Too Many Requests");
    ck_assert_str_eq(reason_phrase(299), "");
    ck_assert_str_eq(reason_phrase(599), "");
    ck_assert_str_eq(reason_phrase(600), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http rewrite");
    TCase *tests = tcase_create("rewrite");
    tcase_add_test(tests, forwarding_fields_of_untrusted_peers_are_replaced);
    tcase_add_test(tests, forwarding_fields_of_trusted_peers_are_kept);
    tcase_add_test(tests, repeated_forwarding_fields_of_trusted_peers_are_replaced);
    tcase_add_test(tests, a_peer_without_address_appends_nothing);
    tcase_add_test(tests, forwarded_is_sent_once_and_forged_values_are_removed);
    tcase_add_test(tests, forwarded_quotes_values_that_are_not_tokens);
    tcase_add_test(tests, upgrade_is_sent_only_if_planned);
    tcase_add_test(tests, a_426_keeps_its_upgrade_field);
    tcase_add_test(tests, response_fields_follow_the_plan);
    tcase_add_test(tests, interim_responses_contain_only_end_to_end_fields);
    tcase_add_test(tests, an_overflow_is_recorded_and_nothing_is_written);
    tcase_add_test(tests, dates_equal_those_of_the_c_library);
    tcase_add_test(tests, reason_phrases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
