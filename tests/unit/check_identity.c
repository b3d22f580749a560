/* check_identity.c - client identity from headers and from addresses behind trusted proxies. The
 * two kinds never collide. */
#include <check.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "policy/identity.h"
#include "run_suite.h"

static struct policy *policy;

static void load(const char *identity)
{
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             "listen: 127.0.0.1:0\nupstreams: { a: { servers: 127.0.0.1:1 } }\nidentity: { %s }\n",
             identity);
    policy_drop(policy);
    FILE *report = fopen("/dev/null", "w"); /* one of them comes with a warning */
    policy = policy_load_text("test.yaml", slice_of(yaml), "lua", report);
    fclose(report);
    ck_assert_ptr_nonnull(policy);
}

static void drop(void)
{
    policy_drop(policy);
    policy = NULL;
}

/* Parses "Name: value" lines into fields. */
static struct fields fields_of(const char *const *lines)
{
    struct fields fields = {.count = 0};
    for (; lines && *lines; lines++) {
        const char *colon = strchr(*lines, ':');
        struct field field = {.name = {*lines, (size_t)(colon - *lines)},
                              .value = slice_of(colon + 1)};
        field.value = slice_trim_ows(field.value);
        if (slice_equal_nocase(field.name, SLICE("X-Forwarded-For")))
            field.id = FIELD_X_FORWARDED_FOR;
        if (slice_equal_nocase(field.name, SLICE("X-Client-Id")))
            field.id = FIELD_X_CLIENT_ID;
        fields.repeated |= fields.present & FIELD_BIT(field.id);
        fields.present |= FIELD_BIT(field.id);
        fields.at[fields.count++] = field;
    }
    return fields;
}

static struct identity identity;
static const char *why;
static bool peer_unknown; /* the PROXY protocol header has no address */
static const char *query; /* of the target */

static bool identify(const char *peer, const char *const *lines)
{
    struct address address;
    struct fields fields = fields_of(lines);
    const char *bad;

    ck_assert(address_parse(slice_of(peer), false, &address, &bad));
    why = NULL;
    const struct peer source = peer_of_address(&address);
    const struct identity_input input = {.policy = policy,
                                         .peer = {.source = &source, .unknown = peer_unknown},
                                         .fields = &fields,
                                         .query = slice_of(query)};
    return identity_of(&input, &identity, &why);
}

#define LINES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_identity(const char *peer, const char *const *lines, const char *text)
{
    ck_assert_msg(identify(peer, lines), "%s: %s", peer, why);
    struct slice found = identity_text(&identity);
    ck_assert_msg(slice_equal(found, slice_of(text)), "%s: %.*s in place of %s", peer,
                  SLICE_ARG(found), text);
}

START_TEST(addresses_are_grouped_by_prefix)
{
    load("ipv6_prefix: 64");
    assert_identity("203.0.113.7:1", NULL, "ip:203.0.113.7");
    ck_assert(!identity.is_id && identity.has_ip && !identity.peer_trusted);
    assert_identity("[2001:db8:1:2:3:4:5:6]:1", NULL, "ip:2001:db8:1:2::/64");
    ck_assert_int_eq(identity.ip.bytes[15], 6); /* whole */
    assert_identity("[::ffff:203.0.113.7]:1", NULL, "ip:203.0.113.7");
    assert_identity("unix:/run/client.sock", NULL, "ip:unix");
    ck_assert(!identity.has_ip);
    load("ipv6_prefix: 128");
    assert_identity("[2001:db8::1]:1", NULL, "ip:2001:db8::1");
    load("ipv6_prefix: 61");
    assert_identity("[2001:db8:0:f::1]:1", NULL, "ip:2001:db8:0:8::/61");
    drop();
}
END_TEST

START_TEST(forwarded_for_is_used_from_trusted_peers_only)
{
    load("trusted_proxies: [ 10.0.0.0/8, '2001:db8::/32' ]");
    assert_identity("203.0.113.7:1", LINES("X-Forwarded-For: 198.51.100.1"), "ip:203.0.113.7");
    ck_assert(!identity.peer_trusted);
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 198.51.100.1"), "ip:198.51.100.1");
    ck_assert(identity.peer_trusted);
    assert_identity("[2001:db8::9]:1", LINES("X-Forwarded-For: 198.51.100.1"), "ip:198.51.100.1");
    assert_identity("10.1.1.1:1", NULL, "ip:10.1.1.1");
    assert_identity("unix:/x", LINES("X-Forwarded-For: 198.51.100.1"), "ip:unix");
    load("trusted_proxies: 'unix:'");
    assert_identity("unix:/x", LINES("X-Forwarded-For: 198.51.100.1"), "ip:198.51.100.1");
    assert_identity("unix:/x", LINES("X-Forwarded-For: unknown"), "ip:unix");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 198.51.100.1"), "ip:10.1.1.1");
    drop();
}
END_TEST

START_TEST(identity_headers_are_used_from_the_peers_in_the_policy)
{
    load("from: [ 'header:X-Client-Id', ip ], trusted_proxies: [ 10.0.0.0/8, 'unix:' ]");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: alice"), "ip:203.0.113.7");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: a", "X-Client-Id: b"), "ip:203.0.113.7");
    ck_assert(!identity.headers_trusted);
    assert_identity("10.1.1.1:1", LINES("X-Client-Id: alice"), "id:alice");
    ck_assert(identity.headers_trusted);
    assert_identity("unix:/x", LINES("X-Client-Id: alice"), "id:alice");
    peer_unknown = true;
    assert_identity("10.1.1.1:1", LINES("X-Client-Id: alice", "X-Forwarded-For: 198.51.100.1"),
                    "ip:10.1.1.1");
    ck_assert(!identity.peer_trusted && !identity.headers_trusted);
    peer_unknown = false;
    load("from: [ 'header:X-Client-Id', ip ], trusted_proxies: 10.0.0.0/8, headers_from: anyone");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: alice"), "id:alice");
    ck_assert(identity.headers_trusted && !identity.peer_trusted);
    load("from: [ 'header:X-Client-Id', ip ], headers_from: trusted");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: alice"), "id:alice");
    drop();
}
END_TEST

START_TEST(forwarded_for_is_read_from_right_to_left)
{
    load("trusted_proxies: 10.0.0.0/8");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 1.1.1.1, 2.2.2.2"), "ip:2.2.2.2");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 1.1.1.1, 2.2.2.2, 10.9.9.9"),
                    "ip:2.2.2.2");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 10.3.3.3, 10.2.2.2"),
                    "ip:10.3.3.3"); /* all are proxies */
    assert_identity("10.1.1.1:1",
                    LINES("X-Forwarded-For: 1.1.1.1", "Via: x", "x-forwarded-for: 10.2.2.2"),
                    "ip:1.1.1.1");
    assert_identity("10.1.1.1:1",
                    LINES("X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 2.2.2.2,10.2.2.2 ,"),
                    "ip:2.2.2.2");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For:"), "ip:10.1.1.1");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: ,, ,"), "ip:10.1.1.1");
    drop();
}
END_TEST

START_TEST(elements_can_have_ports_and_brackets)
{
    load("trusted_proxies: 10.0.0.0/8");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 1.1.1.1:4711"), "ip:1.1.1.1");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: [2001:db8::1]:4711"), "ip:2001:db8::/64");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: [2001:db8::1]"), "ip:2001:db8::/64");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 2001:db8::1"), "ip:2001:db8::/64");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: ::ffff:1.1.1.1"), "ip:1.1.1.1");
    assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: [::ffff:10.2.2.2]:5"), "ip:10.2.2.2");
    drop();
}
END_TEST

START_TEST(an_invalid_element_ends_the_search)
{
    static const char *const bad[] = {"unknown",      "_hidden",        "1.1.1",  "1.1.1.1.1",
                                      "[1.1.1.1]",    "[::1",           "[::1]x", "1.1.1.1;2",
                                      "\"1.1.1.1\"",  "256.1.1.1",      "::g",    ":",
                                      "fe80::1%eth0", "1.1.1.1:80:90",  "[]:1",   "-",
                                      "0x1.1.1.1",    "1.1.1.1 2.2.2.2"};
    char line[128];

    load("trusted_proxies: 10.0.0.0/8");
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        snprintf(line, sizeof line, "X-Forwarded-For: 9.9.9.9, %s, 10.2.2.2", bad[i]);
        assert_identity("10.1.1.1:1", LINES(line), "ip:10.2.2.2");
        assert_identity("10.1.1.1:1", LINES("X-Forwarded-For: 9.9.9.9", line), "ip:10.2.2.2");
    }
    drop();
}
END_TEST

START_TEST(a_header_sets_the_id)
{
    load("from: [ 'header:X-Client-Id', 'header:X-Key', ip ]");
    assert_identity("203.0.113.7:1", LINES("x-client-id: client-2"), "id:client-2");
    ck_assert(identity.is_id);
    ck_assert(identity.has_ip); /* for limits per ip */
    assert_identity("203.0.113.7:1", LINES("X-Key: k", "X-Client-Id: c"), "id:c");
    assert_identity("203.0.113.7:1", LINES("X-Key: k"), "id:k");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id:", "X-Key: k"),
                    "id:k"); /* an empty id counts as absent */
    assert_identity("203.0.113.7:1", LINES("X-Client-Id:"), "ip:203.0.113.7");
    assert_identity("203.0.113.7:1", NULL, "ip:203.0.113.7");
    ck_assert(!identity.is_id);
    load("from: 'header:X-Client-Id'");
    assert_identity("203.0.113.7:1", NULL, "ip:203.0.113.7"); /* the address if there is no id */
    load("from: [ ip, 'header:X-Client-Id' ], trusted_proxies: 10.0.0.0/8");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: c"), "ip:203.0.113.7");
    drop();
}
END_TEST

START_TEST(ids_and_addresses_never_collide)
{
    load("from: [ 'header:X-Client-Id', ip ]");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: 203.0.113.7"), "id:203.0.113.7");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: ip:203.0.113.7"), "id:ip:203.0.113.7");
    assert_identity("203.0.113.7:1", LINES("X-Client-Id: {a}:l \xc3\xa9"), "id:{a}:l \xc3\xa9");
    drop();
}
END_TEST

START_TEST(an_invalid_identity_header_is_refused)
{
    char line[400] = "X-Client-Id: ";

    load("from: [ 'header:X-Client-Id', ip ]");
    ck_assert(!identify("1.1.1.1:1", LINES("X-Client-Id: a", "X-Client-Id: a")));
    ck_assert_str_eq(why, "the identity header occurs twice");
    ck_assert(!identify("1.1.1.1:1", LINES("X-Client-Id:", "x-client-id: a")));
    ck_assert(!identify("1.1.1.1:1", LINES("X-Client-Id: a\tb")));
    ck_assert_str_eq(why, "the identity header contains control bytes");
    ck_assert(!identify("1.1.1.1:1", LINES("X-Client-Id: a\x7f")));
    memset(line + 13, 'x', CLIENT_ID_MAX);
    ck_assert(identify("1.1.1.1:1", LINES(line)));
    ck_assert_uint_eq(identity.size, CLIENT_ID_MAX + 3);
    line[13 + CLIENT_ID_MAX] = 'x';
    ck_assert(identify("1.1.1.1:1", LINES(line)));
    ck_assert_uint_eq(identity.size, strlen("id:h:") + 32); /* hashed */
    drop();
}
END_TEST

START_TEST(a_long_list_is_read_in_one_pass)
{
    size_t n = 60000;
    char *line = malloc(n + 32);

    load("trusted_proxies: [ 10.0.0.0/8 ]");
    strcpy(line, "X-Forwarded-For: 1.1.1.1");
    for (size_t at = strlen(line); at + 10 < n; at += 10)
        strcpy(line + at, ", 10.0.0.1");
    assert_identity("10.1.1.1:1", LINES(line), "ip:1.1.1.1");
    free(line);
    drop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identity");
    TCase *tests = tcase_create("identity");
    tcase_add_test(tests, addresses_are_grouped_by_prefix);
    tcase_add_test(tests, forwarded_for_is_used_from_trusted_peers_only);
    tcase_add_test(tests, identity_headers_are_used_from_the_peers_in_the_policy);
    tcase_add_test(tests, forwarded_for_is_read_from_right_to_left);
    tcase_add_test(tests, elements_can_have_ports_and_brackets);
    tcase_add_test(tests, an_invalid_element_ends_the_search);
    tcase_add_test(tests, a_header_sets_the_id);
    tcase_add_test(tests, ids_and_addresses_never_collide);
    tcase_add_test(tests, an_invalid_identity_header_is_refused);
    tcase_add_test(tests, a_long_list_is_read_in_one_pass);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
