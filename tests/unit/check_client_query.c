/* check_client_query.c - the commands of client queries and the handling of each reply, without
 * Redis. */
#include <check.h>
#include <stdlib.h>

#include "admin/client_query.h"
#include "config/policy_file.h"
#include "policy/client_table.h"
#include "redis/redis_reply_reader.h"
#include "run_suite.h"

static const char yaml[] =
    "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"
    "identity: { from: [ 'header:X-Client-Id', ip ], ipv6_prefix: 56 }\n"
    "redis: { key_prefix: 'p*' }\n"
    "limits:\n"
    "  single: { script: gcra, limit: 5, period: 1s }\n"
    "  list: { script: gcra, limit: 6, period: 1s, per: [ client, route ] }\n"
    "  all: { script: gcra, limit: 7, period: 1s, per: all }\n"
    "  unused: { script: gcra, limit: 7, period: 1s }\n"
    "clients: { none: { quota: 0 }, few: { quota: 2 } }\n"
    "rules: [ { limits: [ single, list, all ] } ]\n";

static struct policy *policy;
static struct identity identity;
static struct client_query *query;
static int argc;
static const char **argv;
static const size_t *sizes;

static void set_up(void)
{
    const char *lua_dir = getenv("WEIR_LUA_DIR");
    FILE *report = fopen("/dev/null", "w");
    policy = policy_load_text("test.yaml", SLICE(yaml), lua_dir ? lua_dir : "lua", report);
    fclose(report);
    ck_assert_ptr_nonnull(policy);
}

static void tear_down(void)
{
    client_query_free(query);
    query = NULL;
    policy_drop(policy);
}

static bool feed_reply(const char *wire)
{
    static const unsigned unanswered = 1;
    struct redis_reply_reader replies = {.unsolicited = false};
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    redis_reply_reader_install(&replies, reader, &unanswered);
    ck_assert_int_eq(redisReaderFeed(reader, wire, strlen(wire)), REDIS_OK);
    ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    ck_assert_ptr_nonnull(reply);
    bool taken = client_query_take(query, reply);
    redis_reply_free(reply);
    return taken;
}

static void expect_argument(int i, const char *text)
{
    ck_assert_int_lt(i, argc);
    struct slice found = {argv[i], sizes[i]};
    ck_assert_msg(slice_equal(found, slice_of(text)), "%.*s is not %s", SLICE_ARG(found), text);
}

static void expect_next(void)
{
    ck_assert(client_query_next(query, &argc, &argv, &sizes));
}

static void expect_end(void)
{
    ck_assert(!client_query_next(query, &argc, &argv, &sizes));
}

/* The grants reply that precedes each inspection. */
static const char nothing_granted[] = "*2\r\n:1000\r\n$0\r\n\r\n", *granted = nothing_granted;

static void start_query(const char *client, enum client_query_kind kind, uint64_t timeout_us)
{
    const char *why;
    ck_assert(client_query_identity(policy, slice_of(client), &identity, &why));
    query = client_query_new(policy, &identity, NULL,
                             &(struct client_order){.kind = kind, .timeout_us = timeout_us});
    ck_assert_ptr_nonnull(query);
    if (kind != CLIENT_QUERY_INSPECT)
        return;
    expect_next();
    expect_argument(0, "1");
    expect_argument(1, "p*:grants");
    expect_argument(2, "granted");
    expect_argument(3, identity.text);
    ck_assert(feed_reply(granted));
    granted = nothing_granted;
}

START_TEST(an_inspection_scans_for_keys_and_reads_all_at_once)
{
    start_query("few", CLIENT_QUERY_INSPECT, 1000000);
    expect_next();
    expect_argument(1, "scan");
    expect_argument(2, "0");
    expect_argument(3, "p\\*:{id:few}:l:*");
    ck_assert(feed_reply("*2\r\n$2\r\n77\r\n*0\r\n"));
    expect_next();
    expect_argument(2, "77");
    ck_assert(feed_reply("*2\r\n$1\r\n0\r\n*3\r\n"
                         "$28\r\np*:{id:few}:l:list:{route:b}\r\n"
                         "$28\r\np*:{id:few}:l:list:{route:b}\r\n"
                         "$28\r\np*:{id:few}:l:list:{route:a}\r\n"));
    expect_next();
    expect_argument(0, "3");
    expect_argument(1, "p*:{id:few}:l:single");
    expect_argument(2, "p*:{id:few}:l:list:{route:b}");
    expect_argument(5, "11"); /* one request has one limit: */
    expect_argument(6, "1");  /* number 1 */
    expect_argument(7, "1");  /* of key 1 */
    expect_argument(8, "0");  /* for nothing */
    expect_argument(10, "2"); /* of 2 */
    ck_assert_int_eq(argc, 5 + 3 * 7);
    ck_assert(
        feed_reply("*16\r\n:1\r\n:2\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n:7\r\n:9\r\n:0\r\n:1\r\n:"
                   "1\r\n:0\r\n:8\r\n:0\r\n"
                   ":1790000000000000\r\n"));
    expect_end();
    const struct limit_status *rows = client_query_result(query)->status;
    ck_assert_uint_eq(client_query_result(query)->status_count, 3);
    ck_assert(rows[0].admits && rows[0].quota == 2 && rows[0].remaining == 2);
    ck_assert_str_eq(rows[1].key.p, "p*:{id:few}:l:list:{route:a}");
    ck_assert(rows[1].remaining == 1 && rows[1].reset_us == 8);
    ck_assert(!rows[2].admits && rows[2].retry_after_us == 7 && rows[2].reset_us == 9);
    ck_assert(!client_query_result(query)->cut);
}
END_TEST

START_TEST(an_inspection_of_an_unlimited_client_needs_no_calls)
{
    start_query("none", CLIENT_QUERY_INSPECT, 1000000);
    expect_end();
    client_query_free(query);
    start_query("ip:2001:db8:1:2::3", CLIENT_QUERY_INSPECT, 1000000);
    ck_assert(slice_equal(identity_text(&identity), SLICE("ip:2001:db8:1::/56")));
}
END_TEST

START_TEST(a_scan_ends_at_the_timeout)
{
    start_query("a", CLIENT_QUERY_INSPECT, 0);
    expect_next();
    ck_assert(feed_reply("*2\r\n$2\r\n77\r\n*0\r\n"));
    expect_next();
    expect_argument(0, "1");
    ck_assert(feed_reply("*6\r\n:1\r\n:5\r\n:0\r\n:0\r\n:0\r\n:1\r\n"));
    expect_end();
    ck_assert(client_query_result(query)->cut);
    const struct limit_status *rows = client_query_result(query)->status;
    ck_assert_uint_eq(client_query_result(query)->status_count, 2);
    ck_assert(rows[1].remaining == 6 && rows[1].key.p == NULL);
}
END_TEST

START_TEST(an_inspection_reads_the_grant_first)
{
    granted = "*2\r\n:1000\r\n$6\r\n9:1500\r\n";
    start_query("none", CLIENT_QUERY_INSPECT, 0);
    const struct client_result *result = client_query_result(query);
    ck_assert(result->granted && result->quota == 9 && result->us == 500);
    ck_assert_int_eq(client_query_limits(query)->each, 9);
    expect_next();
    expect_argument(1, "scan"); /* a client without quota is counted while it has a grant */
    client_query_free(query);
    static const char *const none[] = {"*2\r\n:1500\r\n$6\r\n9:1500\r\n", "*2\r\n:1\r\n$1\r\n9\r\n",
                                       "*2\r\n:1\r\n$7\r\n9:1500x\r\n", "*2\r\n:1\r\n:9\r\n"};
    for (unsigned i = 0; i < COUNT_OF(none); i++) {
        granted = none[i];
        start_query("none", CLIENT_QUERY_INSPECT, 0);
        ck_assert(!client_query_result(query)->granted &&
                  client_query_limits(query)->quota == QUOTA_PROHIBITED);
        client_query_free(query);
    }
    query = NULL;
}
END_TEST

START_TEST(a_grant_is_one_call)
{
    const char *why;

    ck_assert(client_query_identity(policy, SLICE("few"), &identity, &why));
    query = client_query_new(
        policy, &identity, NULL,
        &(struct client_order){.kind = CLIENT_QUERY_GRANT, .quota = 7, .us = 60000000});
    expect_next();
    static const char *const arguments[] = {"1", "p*:grants", "grant",     "id:few",
                                            "7", "60000000",  "p*:resets", "2048"};
    ck_assert_int_eq(argc, COUNT_OF(arguments));
    for (int i = 0; i < argc; i++)
        expect_argument(i, arguments[i]);
    ck_assert(feed_reply("*2\r\n:1\r\n:1\r\n"));
    expect_end();
    ck_assert(client_query_result(query)->granted && client_query_result(query)->notified);
    client_query_free(query);
    query = client_query_new(
        policy, &identity, NULL,
        &(struct client_order){.kind = CLIENT_QUERY_GRANT, .quota = GRANT_NONE, .us = 0});
    expect_next();
    expect_argument(4, "none");
    ck_assert(feed_reply("*2\r\n:0\r\n:0\r\n"));
    ck_assert(!client_query_result(query)->granted && !client_query_result(query)->notified);
    client_query_free(query);
    query =
        client_query_new(policy, &identity, NULL,
                         &(struct client_order){.kind = CLIENT_QUERY_GRANT, .quota = 1, .us = 1});
    expect_next();
    ck_assert(!feed_reply("*1\r\n:1\r\n"));
    expect_end();
    ck_assert(!client_query_identity(policy, SLICE("ip:10.0.0.0/8"), &identity, &why) &&
              strstr(why, "range"));
}
END_TEST

/* A SCAN reply with this many keys of client a, in pages as Redis sends them. */
static char *scan_reply(const char *cursor, unsigned count)
{
    char *wire;
    size_t size;
    FILE *out = open_memstream(&wire, &size);
    fprintf(out, "*2\r\n$%zu\r\n%s\r\n*%u\r\n", strlen(cursor), cursor, count);
    for (unsigned i = 0; i < count; i++)
        fprintf(out, "$30\r\np*:{id:a}:l:list:{route:%05u}\r\n", i);
    fclose(out);
    return wire;
}

START_TEST(a_reset_of_many_keys_runs_in_several_steps)
{
    start_query("a", CLIENT_QUERY_RESET, 1000000);
    expect_next();
    char *wire = scan_reply("0", CLIENT_QUERY_FOUND_MAX + 1);
    ck_assert(feed_reply(wire));
    free(wire);
    expect_next();
    expect_argument(0, "256");
    expect_argument(argc - 1, "forget");
    ck_assert(feed_reply("*2\r\n:256\r\n:0\r\n"));
    expect_next();
    expect_argument(1, "scan"); /* the same page again */
    expect_argument(2, "0");
    wire = scan_reply("0", 1);
    ck_assert(feed_reply(wire));
    free(wire);
    expect_next();
    expect_argument(0, "3"); /* unused limits are reset as well */
    expect_argument(1, "p*:{id:a}:l:single");
    expect_argument(3, "p*:{id:a}:l:list:{route:00000}");
    expect_argument(4, "forget");
    expect_argument(5, "p*:resets");
    expect_argument(6, "id:a");
    ck_assert(feed_reply("*2\r\n:3\r\n:1\r\n"));
    expect_end();
    ck_assert_uint_eq(client_query_result(query)->removed, 259);
    ck_assert(!client_query_result(query)->cut && client_query_result(query)->notified);
}
END_TEST

/* Otherwise the client could use the limit once before this and once more afterwards. */
START_TEST(a_reset_deletes_each_key_once)
{
    start_query("a", CLIENT_QUERY_RESET, 1000000);
    expect_next();
    ck_assert(
        feed_reply("*2\r\n$1\r\n5\r\n*2\r\n$18\r\np*:{id:a}:l:single\r\n$30\r\np*:{id:a}:l:list:{"
                   "route:00001}\r\n"));
    expect_next();
    expect_argument(1, "scan");
    expect_argument(2, "5");
    ck_assert(feed_reply("*2\r\n$1\r\n0\r\n*1\r\n$30\r\np*:{id:a}:l:list:{route:00001}\r\n"));
    expect_next();
    expect_argument(0, "3");
    expect_argument(1, "p*:{id:a}:l:single");
    expect_argument(3, "p*:{id:a}:l:list:{route:00001}");
    expect_argument(4, "forget");
    expect_argument(5, "p*:resets");
    ck_assert(feed_reply("*2\r\n:2\r\n:1\r\n"));
    expect_end();
}
END_TEST

START_TEST(an_inspection_shows_at_most_as_many_keys_as_fit)
{
    start_query("a", CLIENT_QUERY_INSPECT, 1000000);
    expect_next();
    char *wire = scan_reply("5", CLIENT_QUERY_FOUND_MAX + 1);
    ck_assert(feed_reply(wire));
    free(wire);
    expect_next();
    expect_argument(0, "257");
    ck_assert(client_query_result(query)->cut);
}
END_TEST

static const char *const misshapen[] = {
    "+OK\r\n",
    "*0\r\n",
    "*2\r\n:0\r\n*0\r\n",
    "*2\r\n$1\r\n0\r\n:0\r\n",
    "*2\r\n$30\r\n012345678901234567890123456789\r\n*0\r\n",
    "$-1\r\n",
    "*3\r\n$1\r\n0\r\n*0\r\n:0\r\n",
};

START_TEST(malformed_replies_end_the_query)
{
    start_query("a", _i % 2 ? CLIENT_QUERY_INSPECT : CLIENT_QUERY_RESET, 1000000);
    expect_next();
    ck_assert(!feed_reply(misshapen[_i]));
    expect_end();
    client_query_free(query);
    start_query("a", _i % 2 ? CLIENT_QUERY_INSPECT : CLIENT_QUERY_RESET, 1000000);
    expect_next();
    ck_assert(feed_reply("*2\r\n$1\r\n0\r\n*0\r\n"));
    expect_next();
    ck_assert(!feed_reply(misshapen[_i]));
    expect_end();
}
END_TEST

START_TEST(client_names_are_parsed)
{
    static const char *const bad[] = {
        "", "id:", "a\tb", "ip:", "ip:x", "ip:10.0.0.0/8", "ip:2001:db8::/48", "ip:2001:db8::1/56"};
    const char *why = NULL;

    for (unsigned i = 0; i < COUNT_OF(bad); i++) {
        ck_assert_msg(!client_query_identity(policy, slice_of(bad[i]), &identity, &why), "%s",
                      bad[i]);
        ck_assert_ptr_nonnull(why);
    }
    ck_assert(client_query_identity(policy, SLICE("id:id:x"), &identity, &why) && identity.is_id);
    ck_assert(slice_equal(identity_text(&identity), SLICE("id:id:x")));
    ck_assert(client_query_identity(policy, SLICE("ip:unix"), &identity, &why) && !identity.has_ip);
    ck_assert(slice_equal(identity_text(&identity), SLICE("ip:unix")));
    ck_assert(client_query_identity(policy, SLICE("ip:::ffff:1.2.3.4"), &identity, &why));
    ck_assert(slice_equal(identity_text(&identity), SLICE("ip:1.2.3.4")));
    ck_assert(client_query_identity(policy, SLICE("id:\uFFFDffx\uFFFDef\uFFFDbf\uFFFDbdff"),
                                    &identity, &why));
    ck_assert(slice_equal(identity_text(&identity), SLICE("id:\xffx\uFFFDff")));
    ck_assert(client_query_identity(policy, SLICE("\uFFFDf"), &identity, &why));
    ck_assert(slice_equal(identity_text(&identity), SLICE("id:\uFFFDf")));
    ck_assert(!client_query_identity(policy, SLICE("\uFFFD0a"), &identity, &why));
}
END_TEST

static const char service_yaml[] =
    "redis: { address: 127.0.0.1:1, timeout: 10ms }\n"
    "limits: { each: { script: gcra, limit: 5, period: 1s, per: [ ip, route ] } }\n"
    "rate_limit_service:\n"
    "  listen: [ 127.0.0.1:1 ]\n"
    "  domains:\n"
    "    d:\n"
    "      descriptors:\n"
    "        - { key: a, limits: [ each ] }\n"
    "        - { key: b, value: 'x*', share_threshold: true,\n"
    "            rate_limit: { unit: day, requests_per_unit: 7 } }\n"
    "        - { key: c, rate_limit: { unlimited: true } }\n"
    "        - { key: e }\n";

static void set_up_service(void)
{
    const char *lua_dir = getenv("WEIR_LUA_DIR");
    policy = policy_load_text("test.yaml", SLICE(service_yaml), lua_dir ? lua_dir : "lua", stderr);
    ck_assert_ptr_nonnull(policy);
}

START_TEST(names_of_descriptors_are_parsed)
{
    static const struct {
        const char *name, *text, *unlimited;
    } good[] = {
        {"descriptor:d/a=1", "descriptor:d/a=1", NULL},
        {"descriptor:d/a= %2fx=y", "descriptor:d/a=%20%2Fx=y", NULL},
        {"descriptor:d/b=xyz", "descriptor:d/b=x*", NULL},
        {"descriptor:d/b=x*", "descriptor:d/b=x*", NULL},
        {"descriptor:d/c=1", "descriptor:d/c=1", "is unlimited"},
        {"descriptor:d/e=", "descriptor:d/e=", "no limit"},
        {"descriptor:d/f=1", "descriptor:d/f=1", "no entry"},
        {"descriptor:x/a=1", "descriptor:x/a=1", "no such domain"},
        {"descriptor:d/h:00112233445566778899aabbccddeeff",
         "descriptor:d/h:00112233445566778899aabbccddeeff", "hash"},
    };
    static const char *const bad[] = {"descriptor:", "descriptor:d", "descriptor:d/a",
                                      "descriptor:d/=1", "descriptor:/a=1"};
    struct query_descriptor descriptor;
    const char *why = NULL;

    for (unsigned i = 0; i < COUNT_OF(good); i++) {
        ck_assert_msg(
            client_query_named(policy, slice_of(good[i].name), &identity, &descriptor, &why) &&
                descriptor.is_one && !identity.is_id,
            "%s", good[i].name);
        ck_assert_msg(slice_equal(identity_text(&identity), slice_of(good[i].text)), "%s: %.*s",
                      good[i].name, SLICE_ARG(identity_text(&identity)));
        ck_assert_msg(good[i].unlimited
                          ? descriptor.unlimited && strstr(descriptor.unlimited, good[i].unlimited)
                          : !descriptor.unlimited,
                      "%s: %s", good[i].name, descriptor.unlimited);
    }
    for (unsigned i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(!client_query_named(policy, slice_of(bad[i]), &identity, &descriptor, &why) &&
                          why,
                      "%s", bad[i]);
    ck_assert(client_query_named(policy, SLICE("ip:1.2.3.4"), &identity, &descriptor, &why) &&
              !descriptor.is_one && identity.has_ip);
}
END_TEST

START_TEST(an_inspection_of_a_descriptor_reads_its_limits_alone)
{
    struct query_descriptor descriptor;
    const struct limit_status *rows;
    const char *why;

    ck_assert(client_query_named(policy, SLICE("descriptor:d/b=xy"), &identity, &descriptor, &why));
    query = client_query_new(
        policy, &identity, &descriptor,
        &(struct client_order){.kind = CLIENT_QUERY_INSPECT, .timeout_us = 1000000});
    expect_next();
    expect_argument(3, "descriptor:d/b=x*");
    ck_assert(feed_reply("*2\r\n:1000\r\n$10\r\n9:99999999\r\n"));
    expect_next();
    expect_argument(0, "1");
    expect_argument(1, "weir:{descriptor:d/b=x*}:l:unit:day");
    ck_assert_uint_eq(client_query_result(query)->status_count, 1);
    rows = client_query_result(query)->status;
    ck_assert(rows->is_of_descriptor && rows->quota == 9 && rows->enforced);
    client_query_free(query);
    ck_assert(client_query_named(policy, SLICE("descriptor:d/a=1"), &identity, &descriptor, &why));
    query =
        client_query_new(policy, &identity, &descriptor,
                         &(struct client_order){.kind = CLIENT_QUERY_RESET, .timeout_us = 1000000});
    expect_next();
    expect_argument(3, "weir:{descriptor:d/a=1}:l:*");
    ck_assert(feed_reply("*2\r\n$1\r\n0\r\n*0\r\n"));
    expect_next();
    expect_argument(0, "1");
    expect_argument(1, "weir:{descriptor:d/a=1}:l:each");
    expect_argument(2, "forget");
    expect_argument(4, "descriptor:d/a=1");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client query");
    TCase *tests = tcase_create("client query");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, an_inspection_scans_for_keys_and_reads_all_at_once);
    tcase_add_test(tests, an_inspection_of_an_unlimited_client_needs_no_calls);
    tcase_add_test(tests, a_scan_ends_at_the_timeout);
    tcase_add_test(tests, an_inspection_reads_the_grant_first);
    tcase_add_test(tests, a_grant_is_one_call);
    tcase_add_test(tests, a_reset_of_many_keys_runs_in_several_steps);
    tcase_add_test(tests, a_reset_deletes_each_key_once);
    tcase_add_test(tests, an_inspection_shows_at_most_as_many_keys_as_fit);
    tcase_add_loop_test(tests, malformed_replies_end_the_query, 0, (int)COUNT_OF(misshapen));
    tcase_add_test(tests, client_names_are_parsed);
    suite_add_tcase(suite, tests);
    tests = tcase_create("descriptors");
    tcase_add_checked_fixture(tests, set_up_service, tear_down);
    tcase_add_test(tests, names_of_descriptors_are_parsed);
    tcase_add_test(tests, an_inspection_of_a_descriptor_reads_its_limits_alone);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
