/* check_http_head.c - heads: character classes, the end of a head, names, fields, Connection.
 * Refused heads are in the corpus (tests/http). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/scan.h"
#include "http/framing.h"
#include "http/head_copy.h"
#include "http/parse.h"
#include "run_suite.h"

static struct request_head request;
static struct response_head response;
static struct refusal refusal;

static bool parse(const char *fields)
{
    static char bytes[64 * 1024];
    int n = snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", fields);
    ck_assert_int_lt(n, (int)sizeof bytes);
    refusal = (struct refusal){0, NULL};
    return request_head_parse((struct slice){bytes, (size_t)n}, &request, &refusal);
}

static bool parse_response(const char *head)
{
    refusal = (struct refusal){0, NULL};
    return response_head_parse(slice_of(head), &response, &refusal);
}

static bool is_one_of(int c, const char *set)
{
    return c != 0 && strchr(set, c) != NULL;
}

#define ALPHA       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define ALPHA_DIGIT ALPHA "0123456789"

START_TEST(character_classes_match_the_rfcs)
{
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        ck_assert_msg(char_is(c, CHAR_TOKEN) == is_one_of(i, "!#$%&'*+-.^_`|~" ALPHA_DIGIT),
                      "token %d", i);
        ck_assert_msg(char_is(c, CHAR_TEXT) == (i == '\t' || (i >= 0x20 && i != 0x7f)), "text %d",
                      i);
        ck_assert_msg(char_is(c, CHAR_PATH) == (i > ' ' && i < 0x7f && i != '#' && i != '?'),
                      "path %d", i);
        ck_assert_msg(char_is(c, CHAR_LABEL) == is_one_of(i, "-_~" ALPHA_DIGIT), "label %d", i);
        ck_assert_msg(char_is(c, CHAR_SEGMENT) == (char_is(c, CHAR_PATH) && !is_one_of(i, "/%;\\")),
                      "segment %d", i);
        ck_assert_msg(char_is(c, CHAR_QUERY) == (i > ' ' && i < 0x7f && i != '#'), "query %d", i);
        ck_assert_msg(char_is(c, CHAR_DIGIT) == is_one_of(i, "0123456789"), "digit %d", i);
        ck_assert_msg(char_is(c, CHAR_HEX) == is_one_of(i, "0123456789abcdefABCDEF"), "hex %d", i);
        ck_assert_msg(char_is(c, CHAR_PLAIN) == is_one_of(i, "-" ALPHA_DIGIT), "plain %d", i);
        if (char_is(c, CHAR_HEX))
            ck_assert_uint_eq(char_hex_value(c), strtoul((char[]){c, 0}, NULL, 16));
    }
}
END_TEST

START_TEST(each_byte_of_a_head_is_scanned_once)
{
    struct slice bytes = SLICE("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest");
    size_t seen = 0, size = 0;
    for (size_t n = 0; n < bytes.n - 4; n++) {
        ck_assert_int_eq(head_scan((struct slice){bytes.p, n}, &seen, &size, &refusal),
                         SCAN_PARTIAL);
        ck_assert_uint_eq(seen, n);
    }
    ck_assert_int_eq(head_scan(bytes, &seen, &size, &refusal), SCAN_WHOLE);
    ck_assert_uint_eq(size, bytes.n - 4);
}
END_TEST

START_TEST(a_bare_lf_is_refused_while_partial)
{
    static const char *const heads[] = {"\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nA: b\nC",
                                        "GET / HTTP/1.1\r\n\n"};
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        size_t seen = 0, size;
        ck_assert_int_eq(head_scan(slice_of(heads[i]), &seen, &size, &refusal), SCAN_REFUSED);
        ck_assert_uint_eq(refusal.status, 400);
    }
}
END_TEST

START_TEST(an_invalid_first_line_is_refused_while_partial)
{
    static const struct {
        const char *bytes;
        unsigned status;
    } lines[] = {{"GET /\r\n", 400},
                 {"GET / HTTP/1.1 \r\nHost:", 400},
                 {"PRI * HTTP/2.0\r\n", 505},
                 {"EHLO mail\r\n", 400},
                 {"GET / HTTP/0.9\r\n", 505}};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct slice all = slice_of(lines[i].bytes);
        size_t seen = 0, size, line = (size_t)(strchr(all.p, '\n') + 1 - all.p);
        ck_assert_int_eq(request_scan(all, &seen, &size, &refusal), SCAN_REFUSED);
        ck_assert_uint_eq(refusal.status, lines[i].status);
        seen = 0;
        for (size_t n = 0; n < line; n++)
            ck_assert_int_eq(request_scan((struct slice){all.p, n}, &seen, &size, &refusal),
                             SCAN_PARTIAL);
        ck_assert_int_eq(request_scan((struct slice){all.p, line}, &seen, &size, &refusal),
                         SCAN_REFUSED);
        ck_assert_uint_eq(refusal.status, lines[i].status);
    }
}
END_TEST

START_TEST(a_response_of_another_protocol_is_refused_at_its_first_other_byte)
{
    static const struct {
        const char *bytes;
        size_t same; /* bytes that begin "HTTP/" */
    } answers[] = {{"SSH-2.0-OpenSSH_9\r\n", 0},
                   {"-ERR unknown command", 0},
                   {"\r\nHTTP/1.1 200 OK\r\n", 0},
                   {"\nHTTP/1.1 200 OK", 0},
                   {"http/1.1 200 OK\r\n", 0},
                   {"HTTPS/1.1 200 OK", 4},
                   {"HTTP 200 OK\r\n\r\n", 4},
                   {"HI\r\n", 1},
                   {"\x15\x03\x01", 0}};
    for (size_t i = 0; i < COUNT_OF(answers); i++) {
        struct slice all = slice_of(answers[i].bytes);
        size_t seen = 0, size;
        for (size_t n = 1; n <= all.n; n++) {
            enum scan scan =
                response_head_read((struct slice){all.p, n}, &seen, &size, &response, &refusal);
            ck_assert_uint_eq(size, 0);
            if (n <= answers[i].same) {
                ck_assert_int_eq(scan, SCAN_PARTIAL);
                continue;
            }
            ck_assert_int_eq(scan, SCAN_REFUSED);
            ck_assert_str_eq(refusal.why, "not HTTP");
            ck_assert_uint_eq(refusal.status, 502);
            break;
        }
        seen = 0; /* the same in one read */
        ck_assert_int_eq(response_head_read(all, &seen, &size, &response, &refusal), SCAN_REFUSED);
        ck_assert_str_eq(refusal.why, "not HTTP");
    }
}
END_TEST

START_TEST(a_response_that_arrives_byte_by_byte_is_read)
{
    struct slice bytes = SLICE("HTTP/1.1 200 OK\r\nA: b\r\n\r\n");
    size_t seen = 0, size;
    for (size_t n = 0; n < bytes.n; n++)
        ck_assert_int_eq(
            response_head_read((struct slice){bytes.p, n}, &seen, &size, &response, &refusal),
            SCAN_PARTIAL);
    ck_assert_int_eq(response_head_read(bytes, &seen, &size, &response, &refusal), SCAN_WHOLE);
    ck_assert_uint_eq(size, bytes.n);
}
END_TEST

START_TEST(empty_lines_before_a_request_are_skipped)
{
    ck_assert_uint_eq(request_skip_empty_line(SLICE("GET")), 0);
    ck_assert_uint_eq(request_skip_empty_line(SLICE("\r\nGET")), 2);
    ck_assert_uint_eq(request_skip_empty_line(SLICE("\r\n\r\n\r")), 4);
    ck_assert_uint_eq(request_skip_empty_line(SLICE("\r")), 0);
    ck_assert_uint_eq(request_skip_empty_line(SLICE("\n")), 0);
    ck_assert_uint_eq(request_skip_empty_line(SLICE_NONE), 0);
}
END_TEST

START_TEST(field_names_are_recognized_in_any_case)
{
    static const struct {
        const char *name;
        enum field_id id;
    } known[] = {
        {"Accept-Encoding", FIELD_ACCEPT_ENCODING},
        {"Connection", FIELD_CONNECTION},
        {"Content-Length", FIELD_CONTENT_LENGTH},
        {"Content-Type", FIELD_CONTENT_TYPE},
        {"Date", FIELD_DATE},
        {"Expect", FIELD_EXPECT},
        {"Forwarded", FIELD_FORWARDED},
        {"Host", FIELD_HOST},
        {"Keep-Alive", FIELD_KEEP_ALIVE},
        {"Max-Forwards", FIELD_MAX_FORWARDS},
        {"X-HTTP-Method", FIELD_METHOD_OVERRIDE},
        {"X-HTTP-Method-Override", FIELD_METHOD_OVERRIDE},
        {"X-Method-Override", FIELD_METHOD_OVERRIDE},
        {"Proxy", FIELD_NEVER_FORWARDED},
        {"X-Original-URL", FIELD_NEVER_FORWARDED},
        {"X-Rewrite-URL", FIELD_NEVER_FORWARDED},
        {"Script-Name", FIELD_NEVER_FORWARDED},
        {"X-Script-Name", FIELD_NEVER_FORWARDED},
        {"Proxy-Authenticate", FIELD_PROXY_AUTHENTICATE},
        {"Proxy-Authorization", FIELD_PROXY_AUTHORIZATION},
        {"Proxy-Connection", FIELD_PROXY_CONNECTION},
        {"X-Host", FIELD_PROXY_CLAIM},
        {"X-Scheme", FIELD_PROXY_CLAIM},
        {"X-Real-IP", FIELD_PROXY_CLAIM},
        {"Client-IP", FIELD_PROXY_CLAIM},
        {"X-Client-IP", FIELD_PROXY_CLAIM},
        {"X-Remote-IP", FIELD_PROXY_CLAIM},
        {"X-Forwarded", FIELD_PROXY_CLAIM},
        {"X-Url-Scheme", FIELD_PROXY_CLAIM},
        {"X-Remote-Addr", FIELD_PROXY_CLAIM},
        {"Forwarded-For", FIELD_PROXY_CLAIM},
        {"Fly-Client-IP", FIELD_PROXY_CLAIM},
        {"X-Original-URI", FIELD_PROXY_CLAIM},
        {"True-Client-IP", FIELD_PROXY_CLAIM},
        {"X-Original-Host", FIELD_PROXY_CLAIM},
        {"Front-End-Https", FIELD_PROXY_CLAIM},
        {"CF-Connecting-IP", FIELD_PROXY_CLAIM},
        {"Fastly-Client-IP", FIELD_PROXY_CLAIM},
        {"X-Azure-ClientIP", FIELD_PROXY_CLAIM},
        {"X-Azure-SocketIP", FIELD_PROXY_CLAIM},
        {"X-Originating-IP", FIELD_PROXY_CLAIM},
        {"X-Original-Method", FIELD_PROXY_CLAIM},
        {"Appengine-User-IP", FIELD_PROXY_CLAIM},
        {"CF-Connecting-IPv6", FIELD_PROXY_CLAIM},
        {"X-Cluster-Client-IP", FIELD_PROXY_CLAIM},
        {"X-ProxyUser-IP", FIELD_PROXY_CLAIM},
        {"Proxy-Client-IP", FIELD_PROXY_CLAIM},
        {"WL-Proxy-Client-IP", FIELD_PROXY_CLAIM},
        {"X-Appengine-User-IP", FIELD_PROXY_CLAIM},
        {"X-HTTP-Host-Override", FIELD_PROXY_CLAIM},
        {"Client-Cert", FIELD_PROXY_CLAIM},
        {"Client-Cert-Chain", FIELD_PROXY_CLAIM},
        {"X-Client-Cert", FIELD_PROXY_CLAIM},
        {"X-ARR-ClientCert", FIELD_PROXY_CLAIM},
        {"X-Envoy-External-Address", FIELD_PROXY_CLAIM},
        {"X-Original-Forwarded-For", FIELD_PROXY_CLAIM},
        {"RateLimit", FIELD_RATELIMIT},
        {"RateLimit-Policy", FIELD_RATELIMIT},
        {"Referer", FIELD_REFERER},
        {"Retry-After", FIELD_RETRY_AFTER},
        {"TE", FIELD_TE},
        {"Traceparent", FIELD_TRACEPARENT},
        {"Trailer", FIELD_TRAILER},
        {"Transfer-Encoding", FIELD_TRANSFER_ENCODING},
        {"Upgrade", FIELD_UPGRADE},
        {"User-Agent", FIELD_USER_AGENT},
        {"Via", FIELD_VIA},
        {"X-Client-Id", FIELD_X_CLIENT_ID},
        {"X-Forwarded-For", FIELD_X_FORWARDED_FOR},
        {"X-Forwarded-Host", FIELD_X_FORWARDED_HOST},
        {"X-Forwarded-Proto", FIELD_X_FORWARDED_PROTO},
        {"X-Rate-Limit-Policy", FIELD_X_RATE_LIMIT},
        {"X-Rate-Limit-Quota", FIELD_X_RATE_LIMIT},
        {"X-Rate-Limit-Reset", FIELD_X_RATE_LIMIT},
        {"X-Rate-Limit-Used", FIELD_X_RATE_LIMIT},
        {"X-RateLimit-Limit", FIELD_X_RATELIMIT},
        {"X-RateLimit-Remaining", FIELD_X_RATELIMIT},
        {"X-RateLimit-Reset", FIELD_X_RATELIMIT},
        {"X-RateLimit-Limit-Tokens", FIELD_X_RATELIMIT_OF},
        {"X-RateLimit-Remaining-Requests", FIELD_X_RATELIMIT_OF},
        {"X-Request-Id", FIELD_X_REQUEST_ID},
        {"X-Weir-Client", FIELD_X_WEIR_CLIENT},
    };
    uint64_t all = 0;
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        char name[32], *p = name;
        ck_assert_msg(field_id_of(slice_of(known[i].name)) == known[i].id, "%s", known[i].name);
        for (strcpy(name, known[i].name); *p; p++)
            *p = (char)(*p >= 'a' && *p <= 'z'   ? *p & ~0x20
                        : *p >= 'A' && *p <= 'Z' ? *p | 0x20
                                                 : *p);
        ck_assert_msg(field_id_of(slice_of(name)) == known[i].id, "%s", name);
        name[strlen(name) - 1] = '!';
        ck_assert_msg(field_id_of(slice_of(name)) == FIELD_OTHER || strstr(name, "ORWARDED-"), "%s",
                      name);
        all |= UINT64_C(1) << known[i].id;
    }
    ck_assert_uint_eq(all, (UINT64_C(1) << FIELD_ID_COUNT) -
                               2); /* every id but FIELD_OTHER has a name */
}
END_TEST

START_TEST(every_name_of_a_family_is_a_claim)
{
    static const char *const claims[] = {"X-Forwarded-Port",
                                         "x-forwarded-tls-client-cert-info",
                                         "X-FORWARDED-X",
                                         "X-Forwarded-Fox",
                                         "X-SSL-Client-Verify",
                                         "x-ssl-client-s-dn",
                                         "SSL-Client-Subject-Dn",
                                         "ssl-client-cert",
                                         "X-Amzn-Mtls-Clientcert-Serial-Number",
                                         "x-amzn-mtls-clientcert"};
    static const char *const others[] = {
        "X-Forwarded-",     "X-Forwarder-Port", "Y-Forwarded-Port",  "X-Forwarded_Port",
        "X_Forwarded-Port", "X-Real-IP2",       "XX-Forwarded-Port", "X-SSL-Clients",
        "SSL-Client-",      "X-Amzn-Trace-Id",  "X-Amzn-Mtls-",      "X_SSL-Client-Verify"};

    for (size_t i = 0; i < COUNT_OF(claims); i++)
        ck_assert_msg(field_id_of(slice_of(claims[i])) == FIELD_PROXY_CLAIM, "%s", claims[i]);
    for (size_t i = 0; i < COUNT_OF(others); i++)
        ck_assert_msg(field_id_of(slice_of(others[i])) == FIELD_OTHER, "%s", others[i]);
}
END_TEST

/* Returns whether a field sent as `name` is not forwarded. */
static bool is_dropped(const char *name)
{
    const struct field *field = fields_next_named(&request.fields, slice_of(name), NULL);
    ck_assert_msg(field != NULL, "%s", name);
    return field->hop_by_hop;
}

START_TEST(twins_of_field_names_used_by_weir_are_dropped)
{
    static const char *const twins[] = {
        "X_Weir_Client",      "Content_Length",
        "transfer-encodinG~", "X!Forwarded-For",
        "X.Request'Id",       "HOST_",
        "User_Agent",         "X_Forwarded_Tls_Client_Cert_Information",
        "X|Real_IP"};
    static const bool dropped[] = {true, true, false, true, true, false, true, true, true};
    static const char *const others[] = {"My_Field", "X_Api_Key", "_", "X_Weir", "Weir_Client"};
    char line[128];

    for (size_t i = 0; i < COUNT_OF(twins); i++) {
        snprintf(line, sizeof line, "%s: 1\r\nX-Weir-Other: 1\r\n", twins[i]);
        ck_assert_msg(parse(line), "%s", twins[i]);
        ck_assert(request.fields.odd_names);
        ck_assert_msg(is_dropped(twins[i]) == dropped[i], "%s", twins[i]);
        ck_assert(!is_dropped("X-Weir-Other"));
    }
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        snprintf(line, sizeof line, "%s: 1\r\n", others[i]);
        ck_assert(parse(line) && !is_dropped(others[i]));
    }
    ck_assert(parse("X-Api-Key: 1\r\nAccept-Encoding2: 2\r\n") && !request.fields.odd_names);
}
END_TEST

START_TEST(twins_of_names_in_the_policy_are_dropped)
{
    const struct slice names[] = {SLICE("X-Api-Key"), SLICE("x_tenant"), SLICE("A.b")};

    ck_assert(parse("X-Api-Key: 1\r\nX_Api_Key: 2\r\nx-api.key: 3\r\nX-Tenant: 4\r\nX_TENANT: 5\r\n"
                    "a-B: 6\r\na.B: 7\r\nX-Api-Keys: 8\r\n"));
    fields_drop_twins(&request.fields, names, COUNT_OF(names));
    ck_assert(!is_dropped("X-Api-Key") && is_dropped("X_Api_Key") && is_dropped("x-api.key"));
    ck_assert(is_dropped("X-Tenant") && !is_dropped("x_tenant") && is_dropped("a-b") &&
              !is_dropped("a.b"));
    ck_assert(!is_dropped("X-Api-Keys"));
    ck_assert(names_are_twins(SLICE("a_b"), SLICE("A-B")) &&
              !names_are_twins(SLICE("a-b"), SLICE("A-B")));
    ck_assert(!names_are_twins(SLICE("a_b"), SLICE("ab")) &&
              !names_are_twins(SLICE("a_b"), SLICE("a-bc")));
}
END_TEST

START_TEST(fields_are_found_by_id_and_by_name)
{
    ck_assert(parse("X-Client-Id: a\r\nOther: 1\r\nother:2\r\nx-client-id: b\r\n"));
    ck_assert(slice_equal(fields_find(&request.fields, FIELD_X_CLIENT_ID)->value, SLICE("a")));
    ck_assert(fields_repeat(&request.fields, FIELD_X_CLIENT_ID));
    ck_assert(!fields_repeat(&request.fields, FIELD_HOST));
    ck_assert(!fields_have(&request.fields, FIELD_VIA));
    ck_assert_ptr_null(fields_find(&request.fields, FIELD_VIA));
    const struct field *field = fields_next_named(&request.fields, SLICE("OTHER"), NULL);
    ck_assert(slice_equal(field->value, SLICE("1")));
    field = fields_next_named(&request.fields, SLICE("OTHER"), field);
    ck_assert(slice_equal(field->value, SLICE("2")));
    ck_assert_ptr_null(fields_next_named(&request.fields, SLICE("OTHER"), field));
}
END_TEST

/* Returns whether each scan of `n` letters that contain `c` stops at the right byte. */
static bool scans_end_correctly(const char *bytes, size_t n, size_t position, unsigned c)
{
    const char *end = bytes + n, *there = bytes + position,
               *found = c < 0x20 || c == 0x7f ? there : end;
    bool in_name = c == '-' || (c < 0x80 && strchr(ALPHA, (int)c ? (int)c : '0'));

    return scan_to_control(bytes, end) == found &&
           scan_to_blank(bytes, end) == (c == ' ' ? there : found) &&
           scan_past_letters(bytes, end) <= (in_name ? end : there);
}

/* Each byte at each position of runs of each length; the run ends at the end of its memory. */
START_TEST(scans_end_at_the_right_byte)
{
    for (size_t n = 1; n <= 40; n++) {
        char *bytes = malloc(n);
        for (size_t position = 0; position < n; position++)
            for (unsigned c = 0; c < 256; c++) {
                memset(bytes, 'a', n);
                bytes[position] = (char)c;
                if (!scans_end_correctly(bytes, n, position,
                                         c)) /* each assertion is a system call */
                    ck_abort_msg("byte %u at %zu of %zu", c, position, n);
            }
        free(bytes);
    }
}
END_TEST

/* Values are scanned 8 bytes at a time: each control byte must be found at each position. */
START_TEST(control_bytes_are_found_at_every_position)
{
    for (unsigned position = 0; position < 24; position++)
        for (unsigned c = 0; c < 256; c++) {
            char head[] = "GET / HTTP/1.1\r\nHost: a\r\nX: abcdefghijklmnopqrstuvwxyz\r\n\r\n";
            head[sizeof "GET / HTTP/1.1\r\nHost: a\r\nX: a" - 1 + position] = (char)c;
            bool ok = request_head_parse((struct slice){head, sizeof head - 1}, &request, &refusal);
            ck_assert_msg(ok == char_is((char)c, CHAR_TEXT), "byte %u at %u", c, position);
            ck_assert(!ok || request.fields.at[1].value.n == 26);
        }
}
END_TEST

START_TEST(connection_marks_the_fields_that_it_lists)
{
    ck_assert(parse(
        "A: 1\r\nConnection: a, b\r\nB: 2\r\nC: 3\r\nUpgrade: x\r\nX-Weir-Client: y\r\nConnection: "
        "x-weir-client\r\n"));
    static const bool hop_by_hop[] = {false, true, true, true, false, true, false, true};
    ck_assert_uint_eq(request.fields.count, COUNT_OF(hop_by_hop));
    for (unsigned i = 0; i < request.fields.count; i++)
        ck_assert_msg(request.fields.at[i].hop_by_hop == hop_by_hop[i], "field %u", i);
    ck_assert(request.keep_alive);
}
END_TEST

START_TEST(the_least_keep_alive_timeout_counts)
{
    static const struct {
        const char *fields;
        uint32_t seconds;
    } cases[] = {{"", UINT32_MAX},
                 {"Keep-Alive: timeout=5\r\n", 5},
                 {"keep-alive: max=100, Timeout=5\r\n", 5},
                 {"Keep-Alive: timeout=0,max=1\r\n", 0},
                 {"Keep-Alive: ,timeout=75 ,\r\n", 75},
                 {"Keep-Alive: timeout=7, timeout=5, timeout=6\r\n", 5},
                 {"Keep-Alive: timeout=7\r\nX: timeout=1\r\nKeep-Alive: timeout=6\r\n", 6},
                 {"Keep-Alive: timeout=99999999999999999999999, timeout=8\r\n", 8},
                 {"Keep-Alive: timeout=99999999999999999999999\r\n", UINT32_MAX},
                 {"Keep-Alive: timeout=\r\n", UINT32_MAX},
                 {"Keep-Alive: timeout\r\n", UINT32_MAX},
                 {"Keep-Alive: timeout=-1\r\n", UINT32_MAX},
                 {"Keep-Alive: timeout=+1, timeout=1s, timeout=1.5\r\n", UINT32_MAX},
                 {"Keep-Alive: timeout = 5, timeout=\"5\"\r\n", UINT32_MAX},
                 {"Keep-Alive: xtimeout=5\r\n", UINT32_MAX},
                 {"Keep-Alive:\r\n", UINT32_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char head[256];
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\n%s\r\n", cases[i].fields);
        ck_assert(parse_response(head));
        ck_assert_msg(keep_alive_timeout(&response.fields) == cases[i].seconds, "%s",
                      cases[i].fields);
    }
}
END_TEST

START_TEST(keep_alive_depends_on_version_and_connection)
{
    static const struct {
        const char *head;
        bool keep_alive;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\n\r\n", true},
        {"HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\n\r\n", false},
        {"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", true},
        {"HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\n\r\n", false},
        {"HTTP/1.0 200 OK\r\nProxy-Connection: keep-alive\r\n\r\n", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        ck_assert(parse_response(cases[i].head));
        ck_assert_msg(response.keep_alive == cases[i].keep_alive, "%s", cases[i].head);
    }
}
END_TEST

START_TEST(max_forwards_applies_to_options)
{
    ck_assert(parse("Max-Forwards: 3\r\n"));
    ck_assert_int_eq(request.max_forwards, -1);
    ck_assert(request_head_parse(SLICE("OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"),
                                 &request, &refusal));
    ck_assert_int_eq(request.max_forwards, 0);
    ck_assert(
        request_head_parse(SLICE("OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n"), &request, &refusal));
    ck_assert_int_eq(request.max_forwards, -1);
}
END_TEST

START_TEST(an_absolute_target_must_match_host)
{
    static const struct {
        const char *target, *host;
        bool agree;
    } cases[] = {
        {"http://a/", "a", true},           {"http://a:80/", "a", true},
        {"http://a/", "a:80", true},        {"http://a:/", "A:080", true},
        {"HTTPS://a:443/", "a", true},      {"https://a/", "a:443", true},
        {"http://a:8080/", "a:8080", true}, {"http://[::1]:80/", "[::1]", true},
        {"http://12:80", "12", true},       {"http://a:443/", "a", false},
        {"https://a:80/", "a", false},      {"http://a:81/", "a", false},
        {"http://a/", "a:81", false},       {"http://b/", "a", false},
        {"http://a:80/", "a.", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char head[128];
        int n = snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].target,
                         cases[i].host);
        bool good = request_head_parse((struct slice){head, (size_t)n}, &request, &refusal);
        ck_assert_msg(good == cases[i].agree, "%s and %s", cases[i].target, cases[i].host);
    }
}
END_TEST

START_TEST(method_and_target_of_a_refused_line_are_reported)
{
    static const struct {
        const char *bytes, *method, *target;
    } cases[] = {
        {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/a#b"},
        {"GET /a\xff HTTP/1.1\r\n", "GET", "/a\xff"},
        {"GET /a\001b HTTP/1.1\r\n", "GET", "/a\001b"},
        {"GET /a\r\n", "GET", "/a"},
        {"GET /a", "GET", "/a"},
        {"GET ", "GET", ""},
        {"GET  /a", "GET", ""},
        {"GET", "", ""},
        {"\x16\x03\x01 x", "", ""},
        {"", "", ""},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct request_line line = request_line_peek(slice_of(cases[i].bytes));
        ck_assert_msg(slice_equal(line.method, slice_of(cases[i].method)), "%s", cases[i].bytes);
        ck_assert_msg(slice_equal(line.target, slice_of(cases[i].target)), "%s", cases[i].bytes);
    }
}
END_TEST

START_TEST(which_methods_are_idempotent)
{
    static const char *const yes[] = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"};
    static const char *const no[] = {"POST", "PATCH", "CONNECT", "get", "LINK", "GETS", "PU"};
    for (size_t i = 0; i < COUNT_OF(yes); i++)
        ck_assert_msg(method_is_idempotent(method_of(slice_of(yes[i]))), "%s", yes[i]);
    for (size_t i = 0; i < COUNT_OF(no); i++)
        ck_assert_msg(!method_is_idempotent(method_of(slice_of(no[i]))), "%s", no[i]);
}
END_TEST

START_TEST(content_of_responses_depends_on_the_request)
{
    struct framing framing;
    ck_assert(parse_response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"));
    ck_assert(response_framing(&response, METHOD_HEAD, &framing, &refusal));
    ck_assert_int_eq(framing.kind, FRAMING_NONE);
    ck_assert(response_framing(&response, METHOD_GET, &framing, &refusal));
    ck_assert_int_eq(framing.kind, FRAMING_LENGTH);
    ck_assert(parse_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    ck_assert(response_framing(&response, METHOD_HEAD, &framing, &refusal));
    ck_assert_int_eq(framing.kind, FRAMING_NONE);
    ck_assert(parse_response("HTTP/1.1 200 OK\r\n\r\n"));
    ck_assert(response_framing(&response, METHOD_POST, &framing, &refusal));
    ck_assert_int_eq(framing.kind, FRAMING_UNTIL_CLOSE);
    ck_assert(parse_response("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"));
    ck_assert(response_framing(&response, METHOD_GET, &framing, &refusal));
    ck_assert_int_eq(framing.kind, FRAMING_NONE);
}
END_TEST

/* The bytes end at the end of their memory, so that AddressSanitizer detects overreads. */
START_TEST(nothing_is_read_past_the_end)
{
    static const char text[] =
        "GET /a?b HTTP/1.1\r\nHost: a\r\nConnection: x\r\nX: abcdefgh\r\n\r\n";
    for (size_t n = 0; n < sizeof text; n++) {
        char *bytes = malloc(n + 4);
        memcpy(bytes, text, n);
        size_t seen = 0, size;
        char *exact = memcpy(malloc(n + 1) /* also valid for n == 0 */ + 1, bytes, n);
        (void)!request_head_parse((struct slice){exact, n}, &request, &refusal);
        (void)!response_head_parse((struct slice){exact, n}, &response, &refusal);
        (void)request_head_read((struct slice){exact, n}, &seen, &size, &request, &refusal);
        free(exact - 1);
        memcpy(bytes + n, "\r\n\r\n", 4); /* cut anywhere, then ended like a head */
        (void)!request_head_parse((struct slice){bytes, n + 4}, &request, &refusal);
        (void)!response_head_parse((struct slice){bytes, n + 4}, &response, &refusal);
        free(bytes);
    }
}
END_TEST

/* The buffer of a head is reused while its request waits. */
START_TEST(a_copied_head_outlives_its_bytes)
{
    char bytes[] = "OPTIONS * HTTP/1.1\r\nHost: a.test\r\nX_A: 1\r\nB: two\r\n\r\n";
    ck_assert(request_head_parse(((struct slice){bytes, sizeof bytes - 1}), &request, &refusal));
    fields_drop_named(&request.fields, SLICE("x_a"));
    struct head_copy *copy = head_copy_new(&request);
    ck_assert_ptr_nonnull(copy);
    memset(bytes, 'x', sizeof bytes);
    memset(&request, 0, sizeof request);
    head_copy_restore(copy, &request);
    ck_assert(slice_equal(request.method_text, SLICE("OPTIONS")));
    ck_assert(slice_equal(request.path, SLICE("*")));
    ck_assert(slice_equal(request.host, SLICE("a.test")));
    ck_assert_uint_eq(request.fields.count, 3);
    ck_assert(slice_equal(request.fields.at[1].name, SLICE("X_A")) &&
              request.fields.at[1].hop_by_hop);
    ck_assert(slice_equal(request.fields.at[2].value, SLICE("two")) &&
              !request.fields.at[2].hop_by_hop);
    ck_assert(slice_starts_with(request.whole, SLICE("OPTIONS * HTTP/1.1\r\n")));
    head_copy_free(copy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http head");
    TCase *tests = tcase_create("head");
    tcase_add_test(tests, character_classes_match_the_rfcs);
    tcase_add_test(tests, each_byte_of_a_head_is_scanned_once);
    tcase_add_test(tests, a_bare_lf_is_refused_while_partial);
    tcase_add_test(tests, an_invalid_first_line_is_refused_while_partial);
    tcase_add_test(tests, a_response_of_another_protocol_is_refused_at_its_first_other_byte);
    tcase_add_test(tests, a_response_that_arrives_byte_by_byte_is_read);
    tcase_add_test(tests, empty_lines_before_a_request_are_skipped);
    tcase_add_test(tests, field_names_are_recognized_in_any_case);
    tcase_add_test(tests, every_name_of_a_family_is_a_claim);
    tcase_add_test(tests, twins_of_field_names_used_by_weir_are_dropped);
    tcase_add_test(tests, twins_of_names_in_the_policy_are_dropped);
    tcase_add_test(tests, fields_are_found_by_id_and_by_name);
    tcase_add_test(tests, control_bytes_are_found_at_every_position);
    tcase_add_test(tests, scans_end_at_the_right_byte);
    tcase_add_test(tests, connection_marks_the_fields_that_it_lists);
    tcase_add_test(tests, the_least_keep_alive_timeout_counts);
    tcase_add_test(tests, keep_alive_depends_on_version_and_connection);
    tcase_add_test(tests, max_forwards_applies_to_options);
    tcase_add_test(tests, an_absolute_target_must_match_host);
    tcase_add_test(tests, method_and_target_of_a_refused_line_are_reported);
    tcase_add_test(tests, which_methods_are_idempotent);
    tcase_add_test(tests, content_of_responses_depends_on_the_request);
    tcase_add_test(tests, nothing_is_read_past_the_end);
    tcase_add_test(tests, a_copied_head_outlives_its_bytes);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
