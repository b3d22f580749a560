/* The rewriting of an HTTP/2 request's fields as an HTTP/1.1 head: RFC 9113 section 8. */
#include <stdio.h>

#include "http2/head_text.h"
#include "run_suite.h"

static char head_bytes[HEAD_TEXT_MAX], side_bytes[HEAD_TEXT_MAX];
static struct request_head head;
static struct framing framing;
static struct refusal refusal;
static struct head_text text;

/* Reads "name=value|name=value". "_" in a value stands for a space, "~" for CR LF, "^" for HTAB. */
static const char *add_fields(const char *fields)
{
    char bytes[4096], *save = NULL;
    const char *fault = NULL;

    ck_assert_uint_lt(strlen(fields), sizeof bytes);
    strcpy(bytes, fields);
    for (char *field = strtok_r(bytes, "|", &save); field && !fault;
         field = strtok_r(NULL, "|", &save)) {
        char *equals = strchr(field + 1, '='), value[4096];
        size_t n = 0;
        for (const char *p = equals + 1; *p; p++) {
            if (*p == '~')
                value[n++] = '\r';
            value[n++] = (char)(*p == '_'   ? ' '
                                : *p == '~' ? '\n'
                                : *p == '^' ? '\t'
                                : *p == '`' ? 0
                                            : *p);
        }
        fault = request_text_field(&text, (struct slice){field, (size_t)(equals - field)},
                                   (struct slice){value, n});
    }
    return fault;
}

static enum request_text_end rewrite(const char *fields, bool end_stream, uint32_t list_max)
{
    head_text_begin(&text, head_bytes, side_bytes, list_max);
    refusal = (struct refusal){0, NULL};
    refusal.why = add_fields(fields);
    return refusal.why ? REQUEST_TEXT_MALFORMED
                       : request_text_end(&text, end_stream, &head, &framing, &refusal);
}

#define GET ":method=GET|:scheme=https|:authority=a.test|:path=/x"

static const struct {
    const char *fields, *text;
    bool content;
} good[] = {
    {GET, "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
    {":path=/x?q=1|:authority=a.test|:scheme=http|:method=GET",
     "GET /x?q=1 HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
    {":method=GET|:scheme=https|:path=/|host=a.test:8443",
     "GET / HTTP/1.1\r\nhost: a.test:8443\r\n\r\n", false},
    {GET "|host=A.test", "GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
    {GET "|accept=*/*|te=trailers",
     "GET /x HTTP/1.1\r\nHost: a.test\r\naccept: */*\r\nte: trailers\r\n\r\n", false},
    {GET "|cookie=a=1|accept=x|cookie=b=2|cookie=c=3",
     "GET /x HTTP/1.1\r\nHost: a.test\r\naccept: x\r\ncookie: a=1; b=2; c=3\r\n\r\n", false},
    {GET "|x-empty=", "GET /x HTTP/1.1\r\nHost: a.test\r\nx-empty: \r\n\r\n", false},
    {GET "|x-tab=a^b", "GET /x HTTP/1.1\r\nHost: a.test\r\nx-tab: a\tb\r\n\r\n", false},
    {":method=OPTIONS|:scheme=https|:authority=a.test|:path=*",
     "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
    {":method=POST|:scheme=https|:authority=a.test|:path=/x|content-length=5",
     "POST /x HTTP/1.1\r\nHost: a.test\r\ncontent-length: 5\r\n\r\n", true},
    {":method=POST|:scheme=https|:authority=a.test|:path=/x",
     "POST /x HTTP/1.1\r\nHost: a.test\r\ntransfer-encoding: chunked\r\n\r\n", true},
    {":method=GET|:scheme=https|:authority=a.test|:path=/x|content-length=0",
     "GET /x HTTP/1.1\r\nHost: a.test\r\ncontent-length: 0\r\n\r\n", false},
};

START_TEST(valid_requests_become_one_head)
{
    ck_assert_int_eq(rewrite(good[_i].fields, !good[_i].content, 4096), REQUEST_TEXT_GOOD);
    ck_assert_uint_eq(text.out.n, strlen(good[_i].text));
    ck_assert_mem_eq(text.out.p, good[_i].text, text.out.n);
    ck_assert(head.keep_alive);
    ck_assert_int_eq(framing.kind, !good[_i].content ? FRAMING_NONE
                                   : text.has_length ? FRAMING_LENGTH
                                                     : FRAMING_CHUNKED);
}
END_TEST

/* RFC 9113 section 8.1.1: content may follow, and then the request is malformed. */
START_TEST(a_length_of_0_does_not_end_a_request)
{
    static const char trace[] =
        ":method=TRACE|:scheme=https|:authority=a.test|:path=/x|content-length=0";

    ck_assert_int_eq(rewrite(GET "|content-length=0", false, 4096), REQUEST_TEXT_GOOD);
    ck_assert_int_eq(framing.kind, FRAMING_CHUNKED);
    ck_assert_int_eq(rewrite(trace, false, 4096), REQUEST_TEXT_REFUSED);
    ck_assert_int_eq(rewrite(trace, true, 4096), REQUEST_TEXT_GOOD);
}
END_TEST

static const struct {
    const char *fields, *why;
} malformed[] = {
    {":scheme=https|:authority=a.test|:path=/", "missing pseudo-field"},
    {":method=GET|:authority=a.test|:path=/", "missing pseudo-field"},
    {":method=GET|:scheme=https|:authority=a.test", "missing pseudo-field"},
    {"accept=x", "missing pseudo-field"},
    {GET "|:status=200", "unknown pseudo-field"},
    {":status=200|" GET, "unknown pseudo-field"},
    {":protocol=websocket|" GET, "unknown pseudo-field"},
    {":Method=GET|:scheme=https|:path=/", "unknown pseudo-field"},
    {":=x|" GET, "unknown pseudo-field"},
    {GET "|accept=x|:authority=b.test", "pseudo-field after another field"},
    {GET "|:path=/y", "repeated pseudo-field"},
    {GET "|:method=POST", "repeated pseudo-field"},
    {":method=|:scheme=https|:path=/", "invalid :method"},
    {":method=GET_/|:scheme=https|:path=/", "invalid :method"},
    {":method=GET~x|:scheme=https|:path=/", "invalid :method"},
    {":method=GET|:scheme=ftp|:path=/", ":scheme other than http and https"},
    {":method=GET|:scheme=https~|:path=/", ":scheme other than http and https"},
    {":method=GET|:scheme=https|:path=", "invalid :path"},
    {":method=GET|:scheme=https|:path=x", "invalid :path"},
    {":method=GET|:scheme=https|:path=http://b.test/", "invalid :path"},
    {":method=GET|:scheme=https|:path=/_HTTP/1.1", "invalid :path"},
    {":method=GET|:scheme=https|:path=/~X-Evil:1", "invalid :path"},
    {":method=GET|:scheme=https|:path=/^x", "invalid :path"},
    {":method=GET|:scheme=https|:path=/`x", "invalid :path"},
    {":method=GET|:scheme=https|:path=*/x", "invalid :path"},
    {":method=GET|:scheme=https|:path=/|:authority=a~X:_1", "invalid :authority"},
    {":method=GET|:scheme=https|:path=/|:authority=a_b", "invalid :authority"},
    {":method=CONNECT|:authority=a.test:443|:path=/", "missing pseudo-field"},
    {":method=CONNECT|:authority=", "invalid :authority"},
    {GET "|Accept=x", "invalid byte in a field name"},
    {GET "|a b=x", "invalid byte in a field name"},
    {GET "|a:b=x", "invalid byte in a field name"},
    {GET "|a\r\nb=x", "invalid byte in a field name"},
    {GET "|a\xc3\xa9=x", "invalid byte in a field name"},
    {GET "|a\x01=x", "invalid byte in a field name"},
    {GET "|a=x~y", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=x~X-Evil:_1", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=x`y", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=x\x01y", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=x\x7fy", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=_x", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=x_", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=^x", "invalid byte in a field value, or a blank at its end"},
    {GET "|a=~", "invalid byte in a field value, or a blank at its end"},
    {GET "|cookie=a=1~b", "invalid byte in a field value, or a blank at its end"},
    {GET "|connection=close", "connection-specific field"},
    {GET "|keep-alive=1", "connection-specific field"},
    {GET "|proxy-connection=close", "connection-specific field"},
    {GET "|transfer-encoding=chunked", "connection-specific field"},
    {GET "|upgrade=websocket", "connection-specific field"},
    {GET "|te=gzip", "TE other than trailers"},
    {GET "|te=trailers, gzip", "TE other than trailers"},
    {GET "|host=b.test", "Host differs from :authority"},
    {GET "|host=a.test:443", "Host differs from :authority"},
    {GET "|host=", "Host differs from :authority"},
    {GET "|content-length=3", "Content-Length without content"},
};

START_TEST(malformed_requests_are_refused)
{
    ck_assert_int_eq(rewrite(malformed[_i].fields, true, 4096), REQUEST_TEXT_MALFORMED);
    ck_assert_str_eq(refusal.why, malformed[_i].why);
}
END_TEST

static const struct {
    const char *fields;
    unsigned status;
} refused[] = {
    {":method=GET|:scheme=https|:path=/", 400},                     /* no Host */
    {":method=GET|:scheme=https|:path=/|:authority=", 400},         /* empty Host */
    {":method=GET|:scheme=https|:path=/|:authority=u@a.test", 400}, /* RFC 9113 section 8.3.1 */
    {":method=GET|:scheme=https|:path=/|:authority=a..b", 400},
    {":method=GET|:scheme=https|:path=/|host=a.test|host=a.test", 400},
    {":method=GET|:scheme=https|:authority=a.test|:path=/#x", 400},
    {":method=GET|:scheme=https|:authority=a.test|:path=/\xc3\xa9", 400},
    {":method=GET|:scheme=https|:authority=a.test|:path=*", 400},
    {":method=CONNECT|:authority=a.test:443", 501},
    {GET "|content-length=x", 400},
    {GET "|content-length=1|content-length=1", 400},
    {GET "|content-length=-1", 400},
    {GET "|content-length=99999999999999999999", 400},
    {GET "|expect=else", 417},
    {":method=TRACE|:scheme=https|:authority=a.test|:path=/|content-length=1", 400},
};

START_TEST(other_invalid_requests_get_a_status)
{
    ck_assert_int_eq(rewrite(refused[_i].fields, false, 4096), REQUEST_TEXT_REFUSED);
    ck_assert_uint_eq(refusal.status, refused[_i].status);
    ck_assert_ptr_nonnull(refusal.why);
}
END_TEST

/* RFC 9113 section 6.5.2: a field counts 32 bytes more than its name and value. */
START_TEST(the_header_list_limit_is_exact)
{
    size_t size = strlen(":methodGET:schemehttps:authoritya.test:path/x") + 4 * 32;
    ck_assert_int_eq(rewrite(GET, true, (uint32_t)size), REQUEST_TEXT_GOOD);
    ck_assert_uint_eq(text.list_size, size);
    ck_assert_int_eq(rewrite(GET, true, (uint32_t)size - 1), REQUEST_TEXT_REFUSED);
    ck_assert_uint_eq(refusal.status, 431);
}
END_TEST

/* The head is longer than the list at most by its first line. */
START_TEST(the_largest_header_list_fits)
{
    char value[64];
    size_t n;
    head_text_begin(&text, head_bytes, side_bytes, HEAD_TEXT_LIST_MAX);
    ck_assert_ptr_null(add_fields(GET));
    for (unsigned i = 0; text.list_size + 6 + 40 + 32 <= HEAD_TEXT_LIST_MAX; i++) {
        n = (size_t)snprintf(value, sizeof value, "%040u", i);
        ck_assert_ptr_null(request_text_field(&text, SLICE("cookie"), (struct slice){value, n}));
    }
    ck_assert_int_eq(request_text_end(&text, false, &head, &framing, &refusal), REQUEST_TEXT_GOOD);
}
END_TEST

START_TEST(more_fields_than_http1_allows_get_431)
{
    char name[16];
    head_text_begin(&text, head_bytes, side_bytes, HEAD_TEXT_LIST_MAX);
    ck_assert_ptr_null(add_fields(GET));
    for (unsigned i = 0; i < HEAD_FIELDS_MAX; i++) {
        size_t n = (size_t)snprintf(name, sizeof name, "a%u", i);
        ck_assert_ptr_null(request_text_field(&text, (struct slice){name, n}, SLICE("x")));
    }
    ck_assert_int_eq(request_text_end(&text, true, &head, &framing, &refusal),
                     REQUEST_TEXT_REFUSED);
    ck_assert_uint_eq(refusal.status, 431);
}
END_TEST

START_TEST(trailers_become_field_lines)
{
    head_text_begin(&text, head_bytes, side_bytes, 4096);
    ck_assert_ptr_null(trailer_text_field(&text, SLICE("grpc-status"), SLICE("0")));
    ck_assert_ptr_nonnull(trailer_text_field(&text, SLICE("Grpc-Status"), SLICE("0")));
    ck_assert_ptr_nonnull(trailer_text_field(&text, SLICE(":path"), SLICE("/")));
    ck_assert_ptr_nonnull(trailer_text_field(&text, SLICE("transfer-encoding"), SLICE("chunked")));
    ck_assert_ptr_nonnull(trailer_text_field(&text, SLICE("a"), SLICE("b\r\nc")));
    ck_assert_ptr_null(trailer_text_field(&text, SLICE("a"), SLICE("")));
    ck_assert(slice_equal(trailer_text_end(&text), SLICE("grpc-status: 0\r\na: \r\n\r\n")));
    head_text_begin(&text, head_bytes, side_bytes, 4096);
    ck_assert_uint_eq(trailer_text_end(&text).n, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http2 request");
    TCase *tests = tcase_create("request");
    tcase_add_loop_test(tests, valid_requests_become_one_head, 0, COUNT_OF(good));
    tcase_add_test(tests, a_length_of_0_does_not_end_a_request);
    tcase_add_loop_test(tests, malformed_requests_are_refused, 0, COUNT_OF(malformed));
    tcase_add_loop_test(tests, other_invalid_requests_get_a_status, 0, COUNT_OF(refused));
    tcase_add_test(tests, the_header_list_limit_is_exact);
    tcase_add_test(tests, the_largest_header_list_fits);
    tcase_add_test(tests, more_fields_than_http1_allows_get_431);
    tcase_add_test(tests, trailers_become_field_lines);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
