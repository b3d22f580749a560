/* check_address.c - parsing and formatting of addresses and ranges. */
#include <arpa/inet.h>
#include <check.h>

#include "net/address.h"
#include "run_suite.h"

static struct address parsed(const char *text)
{
    struct address address;
    const char *why = "";
    ck_assert_msg(address_parse(slice_of(text), false, &address, &why), "%s: %s", text, why);
    return address;
}

START_TEST(addresses_are_parsed_and_formatted)
{
    static const char *const same[] = {"127.0.0.1:80", "0.0.0.0:0",         "255.255.255.255:65535",
                                       "[::]:8080",    "[2001:db8::1]:443", "unix:/run/weir.sock",
                                       "unix:/x"};
    char text[ADDRESS_TEXT_MAX];

    for (size_t i = 0; i < COUNT_OF(same); i++) {
        struct address address = parsed(same[i]);
        ck_assert_str_eq(address_format(&address, text), same[i]);
    }
    struct address mapped = parsed("[::ffff:127.0.0.1]:80"), none = {.length = 0};
    ck_assert_int_eq(mapped.any.sa_family, AF_INET);
    ck_assert_str_eq(address_format(&mapped, text), "127.0.0.1:80");
    ck_assert_str_eq(address_format(&none, text), "(none)");
}
END_TEST

START_TEST(addresses_conflict_if_one_socket_cannot_listen_beside_the_other)
{
    static const struct {
        const char *a, *b;
        bool conflict;
    } cases[] = {{"127.0.0.1:80", "127.0.0.1:80", true},  {"127.0.0.1:80", "127.0.0.2:80", false},
                 {"127.0.0.1:80", "127.0.0.1:81", false}, {"0.0.0.0:80", "127.0.0.1:80", true},
                 {"0.0.0.0:80", "0.0.0.0:80", true},      {"0.0.0.0:0", "0.0.0.0:0", false},
                 {"0.0.0.0:80", "127.0.0.1:81", false},   {"[::]:80", "[::1]:80", true},
                 {"[::]:80", "0.0.0.0:80", false},        {"[::]:80", "127.0.0.1:80", false},
                 {"[::1]:80", "[2001:db8::1]:80", false}, {"unix:/a", "unix:/a", true},
                 {"unix:/a", "unix:/b", false},           {"unix:/a", "0.0.0.0:80", false}};

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct address a = parsed(cases[i].a), b = parsed(cases[i].b);
        ck_assert_int_eq(address_conflicts(&a, &b), cases[i].conflict);
        ck_assert_int_eq(address_conflicts(&b, &a), cases[i].conflict);
    }
}
END_TEST

START_TEST(a_peer_name_omits_the_path)
{
    static const struct {
        const char *address, *peer;
    } kept[] = {{"127.0.0.1:80", "127.0.0.1:80"},
                {"[2001:db8::1]:443", "[2001:db8::1]:443"},
                {"unix:/run/client.sock", "unix:"}};
    char text[ADDRESS_TEXT_MAX];
    struct address room;

    for (size_t i = 0; i < COUNT_OF(kept); i++) {
        struct address address = parsed(kept[i].address);
        struct peer peer = peer_of_address(&address);
        memset(&room, 0xa5, sizeof room);
        ck_assert_str_eq(address_format(address_of_peer(&peer, &room), text), kept[i].peer);
    }
    struct address none = {.length = 0};
    struct peer peer = peer_of_address(&none);
    ck_assert_str_eq(address_format(address_of_peer(&peer, &room), text), "(none)");
}
END_TEST

/* ip_parse() takes what inet_pton(3) takes. */
START_TEST(ip_addresses_are_parsed_like_inet_pton)
{
    static const char *const texts[] = {"0.0.0.0",
                                        "255.255.255.255",
                                        "203.0.113.7",
                                        "1.2.3",
                                        "1.2.3.4.5",
                                        "1.2.3.4.",
                                        ".1.2.3.4",
                                        "1..2.3",
                                        "256.1.1.1",
                                        "1.1.1.1000",
                                        "01.2.3.4",
                                        "1.2.3.00",
                                        "1.2.3.-4",
                                        "1.2.3.4 ",
                                        " 1.2.3.4",
                                        "1.2.3.4x",
                                        "a.b.c.d",
                                        "300.1.1.1",
                                        "1.2.3.999",
                                        "127.1",
                                        "0x7f.0.0.1",
                                        "",
                                        ".",
                                        "2001:db8::1",
                                        "::ffff:1.2.3.4",
                                        "::1.2.3.256",
                                        "1:2",
                                        "::g",
                                        "1.2.3.4:80"};
    unsigned char expected[16];

    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct ip ip;
        bool v6 = strchr(texts[i], ':') != NULL;
        memcpy(expected, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
        bool good = inet_pton(v6 ? AF_INET6 : AF_INET, texts[i], expected + (v6 ? 0 : 12)) == 1;
        ck_assert_msg(ip_parse(slice_of(texts[i]), &ip) == good, "%s", texts[i]);
        ck_assert_msg(!good || memcmp(ip.bytes, expected, 16) == 0, "%s", texts[i]);
        ck_assert_msg(ip_parse_v4(slice_of(texts[i]), &ip) == (good && !v6), "%s", texts[i]);
    }
    struct ip ip;
    ck_assert(!ip_parse((struct slice){"1.2.3.4\0", 8}, &ip));
    ck_assert(!ip_parse((struct slice){"::1\0", 4}, &ip));
    ck_assert(ip_parse((struct slice){"1.2.3.45", 7}, &ip));
    ck_assert_uint_eq(ip.bytes[15], 4);
}
END_TEST

START_TEST(the_longest_unix_path_fits)
{
    char text[200] = "unix:/", out[ADDRESS_TEXT_MAX];
    struct address address;
    const char *why;

    memset(text + 6, 'p', 106);
    address = parsed(text);
    ck_assert_str_eq(address_format(&address, out), text);
    text[112] = 'p';
    ck_assert(!address_parse(slice_of(text), false, &address, &why));
    ck_assert(!address_parse(SLICE("unix:p"), false, &address, &why));
    ck_assert(!address_parse(SLICE("unix:"), false, &address, &why));
    ck_assert(!address_parse(SLICE("unix:/a\0b"), false, &address, &why));
}
END_TEST

START_TEST(invalid_addresses_are_refused)
{
    static const char *const bad[] = {"",
                                      ":",
                                      ":80",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "[::1]",
                                      "::1:80",
                                      "[::1]80",
                                      "[127.0.0.1]:80",
                                      "127.0.0.1:65536",
                                      "[]:80",
                                      "[::g]:80",
                                      "a:b:80",
                                      "127.0.0.1:-1",
                                      "127.0.0.1: 80",
                                      "host:80",
                                      "127.0.0.1:+8",
                                      "[::1%lo]:80"};
    struct address address;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const char *why = NULL;
        ck_assert_msg(!address_parse(slice_of(bad[i]), false, &address, &why), "%s", bad[i]);
        ck_assert_ptr_nonnull(why);
    }
}
END_TEST

START_TEST(host_names_are_resolved_synchronously)
{
    struct address address;
    const char *why = NULL;

    ck_assert(!address_parse(SLICE("localhost:80"), false, &address, &why));
    if (!address_parse(SLICE("localhost:80"), true, &address, &why))
        return; /* this machine cannot resolve its own name */
    struct ip ip;
    ck_assert(ip_of_address(&address, &ip));
    ck_assert(ip_is_v4(&ip) ? ip.bytes[12] == 127 : ip.bytes[15] == 1);
    ck_assert_uint_eq(ntohs(address.v4.sin_port), 80); /* same offset as in sockaddr_in6 */
}
END_TEST

static const char *formatted(const struct ip_range *range)
{
    static char room[64];
    struct text text = text_over(room, sizeof room - 1);
    ip_range_format(range, &text);
    ck_assert(!text.failed);
    room[text.n] = 0;
    return room;
}

START_TEST(ranges_are_parsed_and_formatted)
{
    static const char *const same[] = {"10.0.0.0/8", "203.0.113.7", "0.0.0.0/0",  "2001:db8::/32",
                                       "::1",        "::/0",        "10.1.2.0/23"};
    struct ip_range range;
    const char *why;

    for (size_t i = 0; i < COUNT_OF(same); i++) {
        ck_assert(ip_range_parse(slice_of(same[i]), &range, &why));
        ck_assert_str_eq(formatted(&range), same[i]);
    }
    ck_assert(ip_range_parse(SLICE("203.0.113.7/32"), &range, &why));
    ck_assert_str_eq(formatted(&range), "203.0.113.7");
    ck_assert(ip_range_parse(SLICE("::ffff:10.0.0.0/104"), &range, &why));
    ck_assert_str_eq(formatted(&range), "10.0.0.0/8");
}
END_TEST

START_TEST(invalid_ranges_are_refused)
{
    static const char *const bad[] = {"",
                                      "/8",
                                      "10.0.0.0/",
                                      "10.0.0.0/33",
                                      "10.0.0.1/8",
                                      "2001:db8::/129",
                                      "2001:db8::1/64",
                                      "10.0.0/8",
                                      "10.0.0.0/8/8",
                                      "10.0.0.0/-1",
                                      "::1%lo"};
    struct ip_range range;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const char *why = NULL;
        ck_assert_msg(!ip_range_parse(slice_of(bad[i]), &range, &why), "%s", bad[i]);
        ck_assert_ptr_nonnull(why);
    }
}
END_TEST

static bool contains(const char *range_text, const char *ip_text)
{
    struct ip_range range;
    struct ip ip;
    const char *why;
    ck_assert(ip_range_parse(slice_of(range_text), &range, &why));
    ck_assert(ip_parse(slice_of(ip_text), &ip));
    return ip_range_holds(&range, &ip);
}

START_TEST(a_range_contains_addresses_with_its_prefix)
{
    ck_assert(contains("10.0.0.0/8", "10.255.255.255"));
    ck_assert(!contains("10.0.0.0/8", "11.0.0.0"));
    ck_assert(contains("10.1.2.0/23", "10.1.3.255"));
    ck_assert(!contains("10.1.2.0/23", "10.1.4.0"));
    ck_assert(contains("10.0.0.0/8", "::ffff:10.1.1.1")); /* IPv4-mapped IPv6 addresses are IPv4 */
    ck_assert(!contains("0.0.0.0/0", "2001:db8::1"));
    ck_assert(contains("::/0", "2001:db8::1"));
    ck_assert(!contains("::/0", "10.1.1.1"));
    ck_assert(!contains("::/64", "10.1.1.1"));
    ck_assert(contains("2001:db8::/33", "2001:db8:7fff::1"));
    ck_assert(!contains("2001:db8::/33", "2001:db8:8000::1"));
    ck_assert(contains("::1", "::1"));
    ck_assert(!contains("::1", "::2"));
}
END_TEST

START_TEST(masks_clear_the_remaining_bits)
{
    struct ip ip, masked;
    char room[64];

    ck_assert(ip_parse(SLICE("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), &ip));
    for (unsigned bits = 0; bits <= 128; bits++) {
        masked = ip_masked(&ip, bits);
        for (unsigned i = 0; i < 128; i++)
            ck_assert_int_eq(masked.bytes[i / 8] >> (7 - i % 8) & 1, i < bits);
    }
    masked = ip_masked(&ip, 61);
    struct text text = text_over(room, sizeof room);
    ip_format(&masked, &text);
    ck_assert(slice_equal(text_slice(&text), SLICE("ffff:ffff:ffff:fff8::")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("address");
    TCase *tests = tcase_create("address");
    tcase_add_test(tests, addresses_are_parsed_and_formatted);
    tcase_add_test(tests, addresses_conflict_if_one_socket_cannot_listen_beside_the_other);
    tcase_add_test(tests, a_peer_name_omits_the_path);
    tcase_add_test(tests, ip_addresses_are_parsed_like_inet_pton);
    tcase_add_test(tests, the_longest_unix_path_fits);
    tcase_add_test(tests, invalid_addresses_are_refused);
    tcase_add_test(tests, host_names_are_resolved_synchronously);
    tcase_add_test(tests, ranges_are_parsed_and_formatted);
    tcase_add_test(tests, invalid_ranges_are_refused);
    tcase_add_test(tests, a_range_contains_addresses_with_its_prefix);
    tcase_add_test(tests, masks_clear_the_remaining_bits);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
