/* check_proxy_header.c - PROXY protocol headers: accepted, and refused at the expected byte. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/proxy_header.h"
#include "run_suite.h"

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define V4                                                                                         \
    "\xcb\x00\x71\x07\xc0\x00\x02\x01\x12\x67\x01\xbb" /* 203.0.113.7:4711 to 192.0.2.1:443 */

/* In memory that ends with the bytes, so that sanitizers detect overreads. */
static enum proxy_header_scan scan(struct slice bytes, struct proxy_header *header)
{
    char *copy = malloc(bytes.n ? bytes.n : 1);
    if (bytes.n)
        memcpy(copy, bytes.p, bytes.n);
    enum proxy_header_scan result = proxy_header_scan((struct slice){copy, bytes.n}, header);
    free(copy);
    return result;
}

/* Parses it whole, cut at every byte, and with bytes after it. `source` is "(none)" if the header
 * has no address. */
static void assert_accepted(struct slice bytes, const char *source)
{
    char text[ADDRESS_TEXT_MAX], behind[PROXY_HEADER_MAX + 8] = {0};
    struct proxy_header header;

    for (size_t n = 0; n < bytes.n; n++)
        ck_assert_msg(scan((struct slice){bytes.p, n}, &header) == PROXY_HEADER_PARTIAL,
                      "%s at %zu", source, n);
    ck_assert_msg(scan(bytes, &header) == PROXY_HEADER_WHOLE, "%s", source);
    ck_assert_uint_eq(header.size, bytes.n);
    ck_assert_str_eq(address_format(&header.source, text), source);
    memcpy(behind, bytes.p, bytes.n);
    memcpy(behind + bytes.n, "\r\nGET /", 7);
    ck_assert(scan((struct slice){behind, bytes.n + 7}, &header) == PROXY_HEADER_WHOLE);
    ck_assert_uint_eq(header.size, bytes.n);
}

/* Refused when complete, or earlier. */
static void assert_refused(struct slice bytes)
{
    struct proxy_header header;
    ck_assert_msg(scan(bytes, &header) == PROXY_HEADER_BAD, "%.*s", SLICE_ARG(bytes));
}

START_TEST(version_1_contains_the_client)
{
    assert_accepted(SLICE("PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"), "203.0.113.7:4711");
    assert_accepted(SLICE("PROXY TCP4 203.0.113.7 192.0.2.1 0 65535\r\n"), "203.0.113.7:0");
    assert_accepted(SLICE("PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n"), "[2001:db8::7]:4711");
    assert_accepted(SLICE("PROXY TCP6 ::ffff:203.0.113.7 2001:db8::1 4711 443\r\n"),
                    "203.0.113.7:4711");
    assert_accepted(SLICE("PROXY UNKNOWN\r\n"), "(none)");
    assert_accepted(SLICE("PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
                          "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n"),
                    "(none)"); /* the longest: 107 bytes */
}
END_TEST

START_TEST(version_1_is_strict)
{
    static const char *const lines[] = {"GET / HTTP/1.1\r\n",
                                        "proxy TCP4 203.0.113.7 192.0.2.1 4711 443\r\n",
                                        "PROXY\r\n",
                                        "PROXY \r\n",
                                        "PROXY  TCP4 203.0.113.7 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP4\r\n",
                                        "PROXY TCP5 203.0.113.7 192.0.2.1 4711 443\r\n",
                                        "PROXY UNKNOWNS\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443 \r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443 1\r\n",
                                        "PROXY TCP4 203.0.113.7  192.0.2.1 4711 443\r\n",
                                        "PROXY TCP4\t203.0.113.7 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP4 203.0.113.07 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP4 203.0.113 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2 4711 443\r\n",
                                        "PROXY TCP4 2001:db8::7 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP6 203.0.113.7 192.0.2.1 4711 443\r\n",
                                        "PROXY TCP6 2001:db8::7%1 2001:db8::1 4711 443\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 65536 443\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 04711 443\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 +1 443\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711 x\r\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\n",
                                        "PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\r\n",
                                        "PROXY UNKNOWN\rx\r\n",
                                        "PROXY UNKNOWN a\nb\r\n"};

    for (size_t i = 0; i < COUNT_OF(lines); i++)
        assert_refused(slice_of(lines[i]));
    assert_refused(SLICE("PROXY TCP4 203.0.113.7\0 192.0.2.1 4711 443\r\n"));
    assert_refused(
        SLICE("PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff "
              "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 655356\r\n")); /* 108 bytes */
}
END_TEST

START_TEST(the_first_byte_of_another_protocol_is_refused)
{
    struct proxy_header header;

    ck_assert(scan(SLICE("G"), &header) == PROXY_HEADER_BAD);
    ck_assert(scan(SLICE("PO"), &header) == PROXY_HEADER_BAD);
    ck_assert(scan(SLICE("\x16"), &header) == PROXY_HEADER_BAD);
    ck_assert(scan(SLICE("\r\n\r\nG"), &header) == PROXY_HEADER_BAD);
    ck_assert(scan(SLICE_NONE, &header) == PROXY_HEADER_PARTIAL);
}
END_TEST

START_TEST(version_2_contains_the_client)
{
    char unix_header[16 + 216] = SIGNATURE "\x21\x31\x00\xd8/run/client.sock";

    assert_accepted(SLICE(SIGNATURE "\x21\x11\x00\x0c" V4), "203.0.113.7:4711");
    assert_accepted(SLICE(SIGNATURE "\x21\x21\x00\x24\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x07"
                                    "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x12\x67\x01\xbb"),
                    "[2001:db8::7]:4711");
    assert_accepted((struct slice){unix_header, sizeof unix_header}, "unix:/run/client.sock");
    assert_accepted(SLICE(SIGNATURE "\x20\x00\x00\x00"), "(none)");
    assert_accepted(SLICE(SIGNATURE "\x20\x11\x00\x0c" V4),
                    "(none)"); /* LOCAL: addresses are ignored */
    assert_accepted(SLICE(SIGNATURE "\x20\xee\x00\x02xx"), "(none)");
    assert_accepted(SLICE(SIGNATURE "\x21\x00\x00\x02xx"), "(none)"); /* UNSPEC */
}
END_TEST

START_TEST(version_2_is_strict)
{
    assert_refused(SLICE(SIGNATURE "\x11"));                /* version 1 in binary */
    assert_refused(SLICE(SIGNATURE "\x22"));                /* no such command */
    assert_refused(SLICE(SIGNATURE "\x21\x12\x00\x0c" V4)); /* datagram over a stream */
    assert_refused(SLICE(SIGNATURE "\x21\x41\x00\x0c" V4)); /* no such family */
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x0b" V4)); /* too short for its addresses */
    assert_refused(SLICE(SIGNATURE "\x21\x21\x00\x0c" V4));
    assert_refused(SLICE(SIGNATURE "\x21\x11\x0f\xf1")); /* over 4 KiB: refused before it arrives */
    assert_refused(SLICE(SIGNATURE "\x20\x00\xff\xff"));
    assert_refused(SLICE("\r\n\r\n\0\r\nQUIT\r"));
}
END_TEST

START_TEST(tlvs_must_be_complete_and_a_checksum_correct)
{
    assert_accepted(SLICE(SIGNATURE "\x21\x11\x00\x12" V4 "\x04\x00\x03"
                                    "abc"),
                    "203.0.113.7:4711");
    assert_accepted(SLICE(SIGNATURE "\x21\x11\x00\x0f" V4 "\x04\x00\x00"), "203.0.113.7:4711");
    assert_accepted(SLICE(SIGNATURE "\x21\x11\x00\x19" V4 "\x04\x00\x03"
                                    "abc"
                                    "\x03\x00\x04\x82\x6b\x80\x2a"),
                    "203.0.113.7:4711");
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x19" V4 "\x04\x00\x03"
                                   "abc"
                                   "\x03\x00\x04\x82\x6b\x80\x2b"));
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x19" V4 "\x04\x00\x03"
                                   "abd"
                                   "\x03\x00\x04\x82\x6b\x80\x2a"));
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x0e" V4 "\x04\x00")); /* truncated TLV header */
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x11" V4 "\x04\x00\x03"
                                   "ab")); /* longer than the rest */
    assert_refused(SLICE(SIGNATURE "\x21\x11\x00\x12" V4 "\x03\x00\x03"
                                   "abc")); /* a checksum of three bytes */
}
END_TEST

START_TEST(the_largest_header_is_accepted)
{
    char bytes[PROXY_HEADER_MAX] = SIGNATURE "\x21\x11\x0f\xf0" V4 "\xe0\x0f\xe1";
    assert_accepted((struct slice){bytes, sizeof bytes}, "203.0.113.7:4711");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proxy_header");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, version_1_contains_the_client);
    tcase_add_test(tests, version_1_is_strict);
    tcase_add_test(tests, the_first_byte_of_another_protocol_is_refused);
    tcase_add_test(tests, version_2_contains_the_client);
    tcase_add_test(tests, version_2_is_strict);
    tcase_add_test(tests, tlvs_must_be_complete_and_a_checksum_correct);
    tcase_add_test(tests, the_largest_header_is_accepted);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
