/* Trailers: which of them are forwarded, and that others never become part of a message. */
#include <stdio.h>
#include <string.h>

#include "http/trailers.h"
#include "run_suite.h"

static struct fields trailers;
static const char *why;

static bool parse(const char *text)
{
    why = NULL;
    return trailers_parse((struct slice){text, strlen(text)}, &trailers, &why);
}

START_TEST(trailers_are_forwarded_as_received)
{
    static const char text[] = "grpc-status: 0\r\nGrpc-Message: a%20b\r\nx_y.z: 1\r\nEmpty:\r\n"
                               "Digest:  sha-256=x \r\nServer-Timing: a;dur=1\r\n\r\n";
    char bytes[TRAILERS_TEXT_MAX];
    struct text out = text_over(bytes, sizeof bytes);

    ck_assert(parse(text));
    ck_assert(trailers_any(&trailers));
    trailers_write(&out, &trailers);
    ck_assert(slice_equal(text_slice(&out),
                          SLICE("grpc-status: 0\r\nGrpc-Message: a%20b\r\nx_y.z: 1\r\nEmpty: \r\n"
                                "Digest: sha-256=x\r\nServer-Timing: a;dur=1\r\n")));
}
END_TEST

static const char *const forbidden[] = {"Content-Length: 5",
                                        "content-length: 5",
                                        "Content_Length: 5",
                                        "CONTENT.LENGTH: 5",
                                        "Transfer-Encoding: chunked",
                                        "Transfer_Encoding: chunked",
                                        "Trailer: x",
                                        "TE: trailers",
                                        "Connection: close",
                                        "Keep-Alive: 1",
                                        "Upgrade: h2c",
                                        "Host: a",
                                        "HOST: a",
                                        "Expect: x",
                                        "Max-Forwards: 1",
                                        "Authorization: x",
                                        "authorization: x",
                                        "Proxy-Authorization: x",
                                        "WWW-Authenticate: x",
                                        "Www_Authenticate: x",
                                        "Cookie: a=b",
                                        "Set-Cookie: a=b",
                                        "set_cookie: a=b",
                                        "Content-Type: text/html",
                                        "Content-Encoding: gzip",
                                        "Content_Encoding: gzip",
                                        "Content-Range: x",
                                        "Range: bytes=0-1",
                                        "If-Match: x",
                                        "If-None-Match: x",
                                        "Cache-Control: x",
                                        "Age: 1",
                                        "Vary: x",
                                        "Location: /",
                                        "Date: x",
                                        "Retry-After: 1",
                                        "RateLimit: x",
                                        "RateLimit-Policy: x",
                                        "X-RateLimit-Limit: 1",
                                        "X-Rate-Limit-Quota: 1",
                                        "X-Client-Id: victim",
                                        "X_Client_Id: victim",
                                        "X-Weir-Client: id:x",
                                        "X-Forwarded-For: 1.2.3.4",
                                        "X_Forwarded_For: 1.2.3.4",
                                        "X-Forwarded-Other: x",
                                        "Forwarded: for=x",
                                        "Via: x",
                                        "X-Real-IP: 1.2.3.4",
                                        "X-HTTP-Method-Override: PUT",
                                        "X-Original-URL: /",
                                        "X-Request-Id: 1",
                                        "Traceparent: x",
                                        "Access-Control-Allow-Origin: *",
                                        "Origin: x",
                                        "Proxy: x"};

START_TEST(trailers_with_a_meaning_as_headers_are_dropped)
{
    char text[128], bytes[256];
    struct text out = text_over(bytes, sizeof bytes);

    snprintf(text, sizeof text, "%s\r\n\r\n", forbidden[_i]);
    ck_assert(parse(text));
    ck_assert_msg(!trailers_any(&trailers), "%s", forbidden[_i]);
    snprintf(text, sizeof text, "a: b\r\n%s\r\nc: d\r\n\r\n", forbidden[_i]);
    ck_assert(parse(text));
    trailers_write(&out, &trailers);
    ck_assert_msg(slice_equal(text_slice(&out), SLICE("a: b\r\nc: d\r\n")), "%s", forbidden[_i]);
}
END_TEST

START_TEST(malformed_lines_are_refused)
{
    static const char *const bad[] = {
        "a\r\n\r\n",       " a: b\r\n\r\n",   "a: b\r\n c\r\n\r\n", "a: b\n\r\n",
        "a: b\rc\r\n\r\n", "a : b\r\n\r\n",   ": b\r\n\r\n",        "a: b",
        "a: b\r\n",        "a: b\x01\r\n\r\n"};
    ck_assert_msg(!parse(bad[_i]), "%s", bad[_i]);
    ck_assert_ptr_nonnull(why);
}
END_TEST

START_TEST(the_number_of_trailers_is_limited)
{
    char text[8 * TRAILER_FIELDS_MAX] = "";
    for (unsigned i = 0; i < TRAILER_FIELDS_MAX; i++)
        strcat(text, "a: b\r\n");
    strcat(text, "\r\n");
    ck_assert(parse(text));
    strcpy(text + strlen(text) - 2, "a: b\r\n\r\n");
    ck_assert(!parse(text));
    ck_assert_str_eq(why, "too many trailers");
}
END_TEST

static struct request_head head;

static bool accepts(const char *fields, bool http2)
{
    char text[256];
    struct refusal refusal;
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    ck_assert(request_head_parse((struct slice){text, strlen(text)}, &head, &refusal));
    return request_accepts_trailers(&head, http2 ? HTTP_VERSION_2 : HTTP_VERSION_1);
}

START_TEST(te_must_be_listed_in_connection)
{
    ck_assert(!accepts("", false));
    ck_assert(accepts("TE: trailers\r\nConnection: TE\r\n", false));
    ck_assert(accepts("TE: deflate;q=0.5, Trailers\r\nConnection: close, te\r\n", false));
    ck_assert(!accepts("TE: trailers\r\n", false));
    ck_assert(!accepts("TE: trailersx\r\nConnection: TE\r\n", false));
    ck_assert(!accepts("TE: gzip\r\nConnection: TE\r\n", false));
    ck_assert(accepts("te: trailers\r\n", true));
    ck_assert(!accepts("", true));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trailers");
    TCase *all = tcase_create("all");
    tcase_add_test(all, trailers_are_forwarded_as_received);
    tcase_add_loop_test(all, trailers_with_a_meaning_as_headers_are_dropped, 0,
                        COUNT_OF(forbidden));
    tcase_add_loop_test(all, malformed_lines_are_refused, 0, 10);
    tcase_add_test(all, the_number_of_trailers_is_limited);
    tcase_add_test(all, te_must_be_listed_in_connection);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
