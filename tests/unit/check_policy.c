/* check_policy.c - loading of policy files: the resulting policy, or its errors. */
#include <check.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "config/policy_file.h"
#include "headers_named.h"
#include "http2/session.h"
#include "jwks/https_get.h"
#include "net/tls.h"
#include "policy/identity.h"
#include "policy/identity_source.h"
#include "policy/jwt.h"
#include "policy/rule_match.h"
#include "quota/postgres_link.h"
#include "run_suite.h"

static const char *top(void)
{
    const char *srcdir = getenv("srcdir");
    return srcdir ? srcdir : ".";
}

/* Absolute: one test changes the working directory. */
static const char *lua_dir(void)
{
    static char path[4096 + 8], whole[4096];
    const char *directory = getenv("WEIR_LUA_DIR");
    if (whole[0])
        return whole;
    snprintf(path, sizeof path, "%s/lua", top());
    ck_assert_ptr_nonnull(realpath(directory ? directory : path, whole));
    return whole;
}

/* Output of the last load. */
static char messages[1 << 16];

static struct policy *load(struct slice yaml)
{
    FILE *report = fmemopen(messages, sizeof messages, "w+");
    struct policy *policy = policy_load_text("test.yaml", yaml, lua_dir(), report);
    fclose(report);
    return policy;
}

static struct policy *load_good(const char *yaml)
{
    struct policy *policy = load(slice_of(yaml));
    ck_assert_msg(policy && !messages[0], "%s", messages);
    return policy;
}

/* Same, with warnings allowed. */
static struct policy *load_warned(const char *yaml)
{
    struct policy *policy = load(slice_of(yaml));
    ck_assert_msg(policy != NULL, "%s", messages);
    return policy;
}

static void load_bad(const char *yaml, const char *words)
{
    ck_assert_ptr_null(load(slice_of(yaml)));
    ck_assert_msg(strstr(messages, words) != NULL, "%s", messages);
}

static void assert_fixed_point(const char *yaml);

static char *printed(const struct policy *policy)
{
    char *bytes = NULL;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    policy_print(policy, out);
    fclose(out);
    return bytes;
}

#define UPSTREAMS                                                                                  \
    "upstreams: { api: { servers: [ 127.0.0.1:3000, 'unix:/run/api.sock' ] }, other: { servers: "  \
    "127.0.0.1:4 } }\n"
/* Clients have ids; the header is accepted from any peer. */
#define IDS "identity: { from: 'header:X', headers_from: anyone }\n"

/* The policy of the manual, in every form that is supported. */
static const char sample[] =
    "workers: 3\n"
    "listen: [ '127.0.0.1:8080', { address: '[::1]:8080' }, 'unix:/run/weir/weir.sock' ]\n"
    "admin: 127.0.0.1:9180\n"
    "redis: { address: 127.0.0.1:6379, key_prefix: 'production:shop', timeout: 20ms, on_failure: "
    "deny "
    "}\n" UPSTREAMS "identity:\n"
    "  from: [ 'header:X-Client-Id', ip ]\n"
    "  trusted_proxies: [ 127.0.0.1, 10.0.0.0/8, '2001:db8::/32', 'unix:' ]\n"
    "  ipv6_prefix: 56\n"
    "limits:\n"
    "  per-client: { script: token_bucket, limit: 100, period: 1m, burst: 20 }\n"
    "  writes:     { script: sliding_window_log, limit: 10, period: 1s, per: [ route, client ], "
    "cost: 2 }\n"
    "  everyone:   { script: gcra, limit: 5000, period: 1s, per: all, on_failure: allow, "
    "best_effort: true "
    "}\n"
    "  quota:      { script: fixed_window, limit: 60, period: 1m, align: clock, offset: 5s, label: "
    "Window }\n"
    "  rolling:    { script: rolling_window, limit: 60, period: 1m, buckets: 20, per: [ "
    "'header:X-Tenant', "
    "ip ], headers: false, enforce: 12.5%, count: [ 401, 403, 5xx ] }\n"
    "plans:\n"
    "  silver: { limits: { per-client: { limit: 300 }, everyone: { limit: 6000 } } }\n"
    "  same: { limits: { writes: { limit: 10 } } }\n"
    "  none:\n"
    "clients:\n"
    "  client-0: { quota: 0 }\n"
    "  client-1: { quota: unlimited }\n"
    "  client-2: { quota: 3 }\n"
    "  gold: { limits: { per-client: { limit: 1000, burst: 500 }, quota: { limit: 61 } } }\n"
    "  silver-1: { plan: silver }\n"
    "  silver-2: { plan: silver, limits: { per-client: { burst: 9 } } }\n"
    "  silver-3: { plan: silver, quota: 7 }\n"
    "  silver-4: { plan: silver, quota: 0 }\n"
    "  plain: { plan: none }\n"
    "  mixed: { quota: 7, limits: { writes: { limit: 2 } } }\n"
    "  'ip:203.0.113.7': { quota: 0 }\n"
    "  'ip:203.0.113.0/24': { quota: 5 }\n"
    "  'ip:2001:db8::/32': { quota: -1 }\n"
    "  'ip:unix': { quota: unlimited }\n"
    "  'ip:::/0': { quota: 9 }\n"
    "rules:\n"
    "  - { match: { path: /healthz } }\n"
    "  - { match: { path: '/v1/**', methods: [ POST, PUT ] }, limits: [ writes, everyone ], cost: "
    "5, "
    "upstream: other }\n"
    "  - { match: { host: '*.example.com' }, limits: [ quota ], name: 'by host', rejection: { "
    "status: 403 } "
    "}\n"
    "  - { match: { path: /healthz, host: a.example }, limits: [ rolling ] }\n"
    "  - { match: { path: /said }, limits: [ per-client ], cost: { request_header: X-Cost, max: 10 "
    "} }\n"
    "  - { match: { path: /learnt }, limits: [ per-client ], cost: { reserve: 5, response_header: "
    "X-Used } "
    "}\n"
    "  - { limits: [ per-client ] }\n"
    "headers: [ x-ratelimit-epoch, ietf ]\n"
    "rejection: { status: 503, content_type: text/plain, jitter: 10% }\n"
    "timeouts: { request_header: 5s, body_min_rate: 0 }\n"
    "size_limits: { request_body: 1m, connections: 0 }\n"
    "log: { level: warn, access: off, file: /var/log/weir.log }\n";

/* --- parsing --- */

static const char *matched(const struct policy *policy, const char *method, const char *path,
                           const char *host)
{
    size_t steps = 0;
    struct rule_request request = {.method = slice_of(method),
                                   .criteria.steps = &steps,
                                   .path = rule_path(&policy->paths, slice_of(path)),
                                   .host = slice_of(host)};
    return policy_match(policy, &request)->name;
}

START_TEST(a_policy_is_loaded)
{
    struct policy *policy = load(slice_of(sample));
    char text[ADDRESS_TEXT_MAX];

    ck_assert_msg(policy != NULL, "%s", messages);
    ck_assert_uint_eq(policy->workers, 3);
    ck_assert_uint_eq(policy->listen_count, 3);
    ck_assert_str_eq(address_format(&policy->listen[1].address, text), "[::1]:8080");
    ck_assert_str_eq(address_format(&policy->admin[0].address, text), "127.0.0.1:9180");
    ck_assert_str_eq(address_format(&policy->redis.address, text), "127.0.0.1:6379");
    ck_assert_str_eq(policy->redis.key_prefix, "production:shop");
    ck_assert_uint_eq(policy->redis.timeout_us, 20000);
    ck_assert_int_eq(policy->redis.on_failure, ON_FAILURE_DENY);
    ck_assert_uint_eq(policy->upstreams[0].server_count, 2);
    ck_assert_str_eq(policy->upstreams[0].servers[1].text, "unix:/run/api.sock");
    ck_assert_str_eq(policy->upstreams[1].name, "other");
    ck_assert_uint_eq(policy->identity.trusted_count, 3);
    ck_assert(policy->identity.trust_unix);
    ck_assert_uint_eq(policy->identity.ipv6_prefix, 56);
    ck_assert_int_eq(policy->identity.from[0].field, FIELD_X_CLIENT_ID);
    ck_assert_uint_eq(policy->headers, headers_named("x-ratelimit-epoch ietf"));
    ck_assert_uint_eq(policy->rejection.status, 503);
    ck_assert_int_eq(policy->rejection.jitter, 1000);
    ck_assert_ptr_null(policy->rejection.body);
    ck_assert_uint_eq(policy->timeouts.request_header_us, 5000000);
    ck_assert_uint_eq(policy->timeouts.keepalive_us, 75000000);
    ck_assert_uint_eq(policy->timeouts.tunnel_us, 3600000000);
    ck_assert_uint_eq(policy->timeouts.send_us, 60000000);
    ck_assert_str_eq(policy->keep_alive.p, "Connection: keep-alive\r\nKeep-Alive: timeout=74\r\n");
    ck_assert_uint_eq(policy->size_limits.connections_per_ip, 0); /* a quarter of any number */
    ck_assert_uint_eq(policy->size_limits.request_body, 1 << 20);
    ck_assert_int_eq(policy->log.level, LEVEL_WARN);
    ck_assert_int_eq(policy->log.access, ACCESS_OFF);
    policy_drop(policy);
}
END_TEST

START_TEST(limits_are_loaded)
{
    struct policy *policy = load(slice_of(sample));
    const struct limit *limits = policy->limits;

    ck_assert_uint_eq(policy->limit_count, 5);
    ck_assert_str_eq(limits[0].label, "per-client");
    ck_assert_int_eq(limits[0].kind, LIMIT_BUCKET);
    ck_assert_int_eq(limits[0].burst, 20);
    ck_assert_int_eq(limits[0].cost, 1);
    ck_assert_int_eq(limits[0].on_failure, ON_FAILURE_DENY); /* as in redis */
    ck_assert_uint_eq(limits[0].option_count, 0);
    ck_assert_ptr_nonnull(strstr(limits[0].script_text, "return function"));
    ck_assert_uint_eq(limits[1].per_count, 2);
    ck_assert_int_eq(limits[1].per[0].per, PER_CLIENT); /* before the others */
    ck_assert_int_eq(limits[1].per[1].per, PER_ROUTE);
    ck_assert_int_eq(limits[2].burst, 5000); /* the limit */
    ck_assert_int_eq(limits[2].on_failure, ON_FAILURE_ALLOW);
    ck_assert(limits[2].best_effort);
    ck_assert(limits[3].align == ALIGN_CLOCK);
    ck_assert_int_eq(limits[3].offset_us, 5000000);
    ck_assert_str_eq(limits[3].label, "Window");
    ck_assert_uint_eq(limits[3].position.line, 14);
    ck_assert_uint_eq(limits[3].position.column, 3);
    ck_assert_uint_eq(limits[4].option_count, 1);
    ck_assert_str_eq(limits[4].options[0].name, "buckets");
    ck_assert_int_eq(limits[4].options[0].number, 20);
    ck_assert_str_eq(limits[4].per[0].name, "X-Tenant");
    ck_assert(limits[3].headers && !limits[4].headers);
    ck_assert_int_eq(limits[3].enforce, 10000);
    ck_assert_int_eq(limits[4].enforce, 1250);
    ck_assert(statuses_hold(limits[4].counted, 401) && statuses_hold(limits[4].counted, 500) &&
              statuses_hold(limits[4].counted, 599));
    ck_assert(!statuses_hold(limits[4].counted, 200) && !statuses_hold(limits[4].counted, 402) &&
              !statuses_hold(limits[4].counted, 600));
    ck_assert(statuses_hold(limits[3].counted, 200) && !limits[3].counted);
    policy_drop(policy);
}
END_TEST

START_TEST(shadow_applies_to_limits_without_a_setting_of_their_own)
{
    static const char yaml[] =
        UPSTREAMS "shadow: true\nlimits:\n  a: { script: gcra, limit: 1, period: 1s }\n"
                  "  b: { script: gcra, limit: 1, period: 1s, shadow: false }\n"
                  "  c: { script: gcra, limit: 1, period: 1s, enforce: 10% }\nrules: [ { limits: [ "
                  "a, b, c ] } ]\n";
    struct policy *policy = load_good(yaml);
    ck_assert(policy->limits[0].shadow && !policy->limits[1].shadow && policy->limits[2].shadow);
    ck_assert_int_eq(policy->limits[0].enforce, 0);
    ck_assert_int_eq(policy->limits[1].enforce, 10000);
    ck_assert_int_eq(policy->limits[2].enforce, 0);
    policy_drop(policy);
    assert_fixed_point(yaml);
}
END_TEST

/* Other weir instances and versions select the same clients. */
START_TEST(the_selected_share_of_clients_is_stable)
{
    static const char chosen[] = "...............................x...x......................x.x...";
    struct limit limit = {.name = (char *)"per-client"}, other = {.name = (char *)"other"};
    unsigned count = 0, both = 0;
    char first[65] = "";

    for (unsigned i = 0; i < 10000; i++) {
        struct identity identity = {.is_id = true};
        identity.size = (size_t)snprintf(identity.text, sizeof identity.text, "id:client-%u", i);
        limit.enforce = other.enforce = 1000;
        bool now = limit_enforces(&limit, &identity);
        count += now;
        both += now && limit_enforces(&other, &identity);
        if (i < 64)
            first[i] = now ? 'x' : '.';
        limit.enforce = 2000;
        ck_assert(!now || limit_enforces(&limit, &identity));
        limit.enforce = 0;
        ck_assert(!limit_enforces(&limit, &identity));
        limit.enforce = 10000;
        ck_assert(limit_enforces(&limit, &identity));
    }
    ck_assert_uint_ge(count, 900);
    ck_assert_uint_le(count, 1100);
    ck_assert_uint_ge(both, 60); /* limits select independently */
    ck_assert_uint_le(both, 140);
    ck_assert_str_eq(first, chosen);
}
END_TEST

START_TEST(rules_are_loaded)
{
    struct policy *policy = load(slice_of(sample));
    const struct rule *rules = policy->rules;

    ck_assert_uint_eq(policy->rule_count, 8);
    ck_assert_str_eq(rules[0].name, "/healthz");
    ck_assert_uint_eq(rules[0].limit_count, 0);
    ck_assert_ptr_eq(rules[0].upstream, &policy->upstreams[0]);
    ck_assert_str_eq(rules[1].name, "/v1/**");
    ck_assert_ptr_eq(rules[1].limits[1], &policy->limits[2]);
    ck_assert_int_eq(rules[1].cost, 5);
    ck_assert_ptr_eq(rules[1].upstream, &policy->upstreams[1]);
    ck_assert_uint_eq(rules[1].method_count, 2);
    ck_assert_str_eq(rules[2].name, "by host");
    ck_assert_uint_eq(rules[2].rejection.status, 403);
    ck_assert_str_eq(rules[2].rejection.content_type, "text/plain");
    ck_assert_uint_eq(rules[1].rejection.status, 503);
    ck_assert_int_eq(rules[2].cost, 0);
    ck_assert_str_eq(rules[3].name, "/healthz#2");
    ck_assert(rules[3].adjusts && !rules[2].adjusts && !rules[4].adjusts && rules[5].adjusts);
    ck_assert_str_eq(rules[4].cost_request, "X-Cost");
    ck_assert_int_eq(rules[4].cost, 1);
    ck_assert_int_eq(rules[4].cost_max, 10);
    ck_assert_str_eq(rules[5].cost_response, "X-Used");
    ck_assert_int_eq(rules[5].cost, 5);
    ck_assert_str_eq(rules[6].name, "*");
    ck_assert_str_eq(rules[7].name, "(none)");
    ck_assert_ptr_eq(rules[7].upstream, &policy->upstreams[0]);
    policy_drop(policy);
}
END_TEST

START_TEST(missing_options_have_their_defaults)
{
    struct policy *policy =
        load_good("upstreams: { api: { servers: 127.0.0.1:3000 } }\nredis:\nrules:\n");
    char text[ADDRESS_TEXT_MAX];

    ck_assert_uint_ge(policy->workers, 1);
    ck_assert_str_eq(address_format(&policy->listen[0].address, text), "0.0.0.0:8080");
    ck_assert_uint_eq(policy->admin_count, 0);
    ck_assert_str_eq(policy->redis.address_text, "127.0.0.1:6379");
    ck_assert_int_eq(policy->redis.on_failure, ON_FAILURE_LOCAL);
    ck_assert_ptr_null(policy->redis.password);
    ck_assert_uint_eq(policy->upstreams[0].connect_timeout_us, 1000000);
    ck_assert_uint_eq(policy->identity.from_count, 1);
    ck_assert_str_eq(policy->identity.from[0].source->word, "ip");
    ck_assert_uint_eq(policy->headers, headers_named("x-ratelimit x-rate-limit ietf"));
    ck_assert_uint_eq(policy->rule_count, 1);
    ck_assert_str_eq(policy->log.file, "stderr");
    policy_drop(policy);
}
END_TEST

START_TEST(leases_are_enabled_by_default_where_possible)
{
    struct policy *policy =
        load_good("upstreams: { api: { servers: 127.0.0.1:3000 } }\n"
                  "limits:\n"
                  "  bucket: { script: gcra, limit: 5, period: 1s }\n"
                  "  window: { script: fixed_window, limit: 5, period: 1s, lease: off }\n"
                  "  some: { script: fixed_window, limit: 5, period: 1s, lease: 7 }\n"
                  "  log: { script: sliding_window_log, limit: 5, period: 1s }\n"
                  "  queue: { script: leaky_bucket, limit: 5, period: 1s, max_delay: 1s }\n"
                  "  all: { script: gcra, limit: 5, period: 1s, per: all }\n"
                  "plans: { gold: { limits: { all: { limit: 6 } } } }\n"
                  "rules: [ { limits: [ bucket, window, some, log, queue, all ] } ]\n");
    static const int64_t units[] = {LEASE_AUTO, 0, 7,
                                    0,          0, 0}; /* the last: its bucket fills at two rates */

    for (unsigned i = 0; i < COUNT_OF(units); i++)
        ck_assert_int_eq(policy->limits[i].lease_units, units[i]);
    policy_drop(policy);
}
END_TEST

START_TEST(the_address_of_redis_can_be_a_url)
{
    static const struct {
        const char *url, *text, *username, *password;
        unsigned database;
    } good[] = {
        {"redis://127.0.0.1", "127.0.0.1:6379", NULL, NULL, 0},
        {"redis://127.0.0.1:7000/", "127.0.0.1:7000", NULL, NULL, 0},
        {"redis://redis.internal:7000/12", "redis.internal:7000", NULL, NULL, 12},
        {"redis://weir:s3cret@[::1]:7000/1", "[::1]:7000", "weir", "s3cret", 1},
        {"redis://weir:s3cret@[::1]", "[::1]:6379", "weir", "s3cret", 0},
        {"redis://:a%40b%2fc%25@127.0.0.1/0", "127.0.0.1:6379", NULL, "a@b/c%", 0},
        {"redis://a:b:c/d@e@127.0.0.1:1", "127.0.0.1:1", "a", "b:c/d@e", 0},
    };
    char yaml[256];

    for (size_t i = 0; i < COUNT_OF(good); i++) {
        snprintf(yaml, sizeof yaml, UPSTREAMS "redis: { address: '%s' }\n", good[i].url);
        struct policy *policy = load_good(yaml);
        ck_assert_str_eq(policy->redis.address_text, good[i].text);
        ck_assert_pstr_eq(policy->redis.username, good[i].username);
        ck_assert_pstr_eq(policy->redis.password, good[i].password);
        ck_assert_uint_eq(policy->redis.database, good[i].database);
        ck_assert((policy->redis.host != NULL) == (strstr(good[i].url, "internal") != NULL));
        char *text = printed(policy);
        ck_assert_msg(!strstr(text, "s3cret") && !strstr(text, "a@b"), "%s", text);
        free(text);
        policy_drop(policy);
    }
    struct policy *policy =
        load_good(UPSTREAMS "redis: { address: 'redis://127.0.0.1', username: a, password: b, "
                            "database: 3 }\n");
    ck_assert_str_eq(policy->redis.username, "a");
    ck_assert_uint_eq(policy->redis.database, 3);
    policy_drop(policy);
    load_bad(UPSTREAMS "redis: { address: 'redis://weir:s3cret@' }\n", "redis.address");
    ck_assert_msg(!strstr(messages, "s3cret"), "%s", messages);
}
END_TEST

START_TEST(a_byte_order_mark_is_ignored)
{
    policy_drop(load_good("\xef\xbb\xbf" UPSTREAMS "rules: [ { limits: none } ]\n"));
    load_bad("\xef\xbb\xbfupstream: {}\n", "test.yaml:1:1: unknown key \"upstream\"");
}
END_TEST

START_TEST(a_rule_without_limits_is_declared_with_none)
{
    struct policy *policy =
        load_good(UPSTREAMS "limits: { a: { script: gcra, limit: 1, period: 1s } }\n"
                            "rules:\n  - { match: { path: /healthz }, limits: none }\n"
                            "  - { match: { path: /** }, limits: a }\n");
    ck_assert_uint_eq(policy->rules[0].limit_count, 0);
    ck_assert_str_eq(matched(policy, "OPTIONS", "*", ""), "/**");
    char *text = printed(policy);
    ck_assert_msg(strstr(text, "limits: none") != NULL, "%s", text);
    free(text);
    policy_drop(policy);
}
END_TEST

START_TEST(an_embedded_redis_has_no_address)
{
    struct policy *policy = load_good("redis: { address: embedded }\n" UPSTREAMS);
    ck_assert(policy->redis.embedded);
    ck_assert_uint_eq(policy->redis.address.length, 0);
    ck_assert_str_eq(policy->redis.address_text, "embedded");
    policy_drop(policy);
}
END_TEST

START_TEST(environment_variables_are_substituted)
{
    setenv("WEIR_TEST_PASSWORD", "s3cr\"t", 1);
    setenv("WEIR_TEST_PORT", "7000", 1);
    setenv("WEIR_TEST_EMPTY", "", 1);
    struct policy *policy = load_good(
        "redis: { address: '127.0.0.1:${WEIR_TEST_PORT}', password: '${WEIR_TEST_PASSWORD}',\n"
        "         key_prefix: 'a${WEIR_TEST_EMPTY}b' }\n"
        "log: { file: '/tmp/$${x}$y' }\n" UPSTREAMS);
    ck_assert_str_eq(policy->redis.address_text, "127.0.0.1:7000");
    ck_assert_str_eq(policy->redis.password, "s3cr\"t");
    ck_assert_str_eq(policy->redis.key_prefix, "ab");
    ck_assert_str_eq(policy->log.file, "/tmp/${x}$y");
    char *text = printed(policy);
    ck_assert_ptr_nonnull(strstr(text, "password: \"***\"\n"));
    ck_assert_ptr_nonnull(strstr(text, "file: \"/tmp/$${x}$y\"\n"));
    ck_assert_ptr_null(strstr(text, "s3cr"));
    free(text);
    policy_drop(policy);
}
END_TEST

START_TEST(file_names_are_relative_to_the_policy)
{
    char directory[] = "/tmp/weir-check-policy-XXXXXX", path[128];

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/my.lua", directory);
    FILE *file = fopen(path, "w");
    fputs("return function() return 1 end\n", file);
    fclose(file);
    snprintf(path, sizeof path, "%s/weir.yaml", directory);
    file = fopen(path, "w");
    fputs(
        UPSTREAMS
        "limits: { own: { script: my.lua, limit: 5, period: 1s, burst: 7, align: clock } }\n"
        "rules: [ { limits: own } ]\nrejection: { body_file: my.lua, content_type: text/x-lua }\n",
        file);
    fclose(file);
    struct policy *policy = policy_load(path, lua_dir(), stderr);
    ck_assert_ptr_nonnull(policy);
    ck_assert_int_eq(policy->limits[0].kind, LIMIT_CUSTOM);
    ck_assert_str_eq(policy->limits[0].script, "my.lua");
    ck_assert_str_eq(policy->limits[0].script_text, "return function() return 1 end\n");
    ck_assert_str_eq(policy->rejection.body, policy->limits[0].script_text);
    ck_assert_uint_eq(policy->rejection.body_size, 31);
    policy_drop(policy);
    unlink(path);
    snprintf(path, sizeof path, "%s/my.lua", directory);
    unlink(path);
    rmdir(directory);
}
END_TEST

/* --- output --- */

/* A path of two-byte characters that is longer than the escape buffer. */
static char *long_log_file(void)
{
    char *yaml = NULL;
    size_t size;
    FILE *out = open_memstream(&yaml, &size);
    fputs(UPSTREAMS "log: { file: '/", out);
    for (unsigned i = 0; i < 1500; i++)
        fputs(i == 700 ? "$${" : "\xc3\xa9", out);
    fputs("' }\n", out);
    fclose(out);
    return yaml;
}

static void assert_fixed_point(const char *yaml)
{
    struct policy *policy = load(slice_of(yaml));
    ck_assert_msg(policy != NULL, "%s", messages);
    char *first = printed(policy);
    policy_drop(policy);
    policy = load(slice_of(first));
    ck_assert_msg(policy != NULL, "%s%s", first, messages);
    char *second = printed(policy);
    policy_drop(policy);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
}

START_TEST(a_printed_policy_loads_as_the_same_policy)
{
    assert_fixed_point(sample);
    assert_fixed_point(UPSTREAMS);
    assert_fixed_point(UPSTREAMS "listen: { address: '127.0.0.1:1', http2: false }\n");
    assert_fixed_point(UPSTREAMS "headers: []\nidentity: { trusted_proxies: 'unix:' }\n"
                                 "redis: { address: embedded }\n");
    assert_fixed_point(
        UPSTREAMS
        "clients:\n  'null': { quota: 0 }\n  'a: b': { quota: 0 }\n  '\"\\': { quota: 1 }\n"
        "  'über': { quota: 2 }\n  '{x}': { quota: 2 }\n  '${HOME}': {}\n  '- ': {}\n");
    /* a client returns to the limit's own period, which its plan has changed */
    assert_fixed_point(UPSTREAMS
                       "limits: { x: { script: gcra, limit: 9, period: 1m } }\n"
                       "plans: { gold: { limits: { x: { limit: 5, period: 1h } } } }\n"
                       "clients:\n  a: { plan: gold, limits: { x: { limit: 5, period: 1m } } }\n"
                       "  b: { plan: gold, limits: { x: { limit: 4 } } }\n");
    /* rules of a policy without upstreams */
    assert_fixed_point("rate_limit_service: { listen: { address: '127.0.0.1:1' }, domains: {} }\n"
                       "limits: { x: { script: gcra, limit: 9, period: 1m, cost: "
                       "{ reserve: 1, usage: openai } } }\n"
                       "rules: [ { limits: [ x ] } ]\n");
    /* characters that YAML does not read as they are */
    assert_fixed_point(UPSTREAMS "rules:\n  - { match: { header: { A: \"a \\u2028 b\" } } }\n"
                                 "  - { match: { header: { A: \"\\uffff\\u2029\\ufffdef\" } } }\n");
    assert_fixed_point(UPSTREAMS "rejection: { dialect: openai }\nrules:\n"
                                 "  - { limits: none, rejection: { body_file: /etc/passwd } }\n");
}
END_TEST

START_TEST(long_text_is_printed_completely)
{
    char *yaml = long_log_file();
    assert_fixed_point(yaml);
    struct policy *policy = load_good(yaml);
    char *text = printed(policy), *first = strdup(policy->log.file);
    policy_drop(policy);
    policy = load_good(text);
    ck_assert_str_eq(policy->log.file, first);
    policy_drop(policy);
    free(first);
    free(text);
    free(yaml);
}
END_TEST

START_TEST(the_printed_policy_contains_the_effective_values)
{
    struct policy *policy = load(slice_of(sample));
    char *text = printed(policy);

    ck_assert_ptr_nonnull(
        strstr(text, "  quota:\n    script: fixed_window\n    limit: 60\n    period: 1m\n"
                     "    per: [ client ]\n    cost: 1\n    best_effort: false\n"
                     "    label: Window\n    align: clock\n    offset: 5s\n"
                     "    headers: true\n    near: 20%\n    shadow: false\n    enforce: 100%\n"
                     "    count: all\n    dedup: null\n    on_failure: deny\n"));
    ck_assert_ptr_nonnull(strstr(text, "    count: [ 401, 403, 5xx ]\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "    cost:\n      reserve: 1\n      request_header: X-Cost\n      max: 10\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "    cost:\n      reserve: 5\n      response_header: X-Used\n"));
    ck_assert_ptr_nonnull(strstr(
        text, "  mixed:\n    quota: 7\n    limits:\n      writes:\n        limit: 2\n  ip:"));
    ck_assert_ptr_nonnull(
        strstr(text, "plans:\n  silver:\n    limits:\n      per-client:\n        limit: 300\n"
                     "        burst: 20\n      everyone:\n        limit: 6000\n"
                     "        burst: 6000\n  same:\n  none:\nclients:\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "  silver-2:\n    plan: silver\n    limits:\n      per-client:\n"
                     "        limit: 300\n        burst: 9\n  silver-3:\n    plan: silver\n"
                     "    quota: 7\n  silver-4:\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "  - name: by host\n") ? text : strstr(text, "  - name: \"by host\"\n"));
    /* booleans in YAML 1.1 */
    ck_assert_ptr_nonnull(strstr(text, "      \"on\": [ connect, reset ]\n"));
    ck_assert_ptr_nonnull(strstr(text, "  access: \"off\"\n"));
    free(text);
    policy_drop(policy);
}
END_TEST

/* --- clients --- */

static const struct client_limits *client_limits_of(const struct policy *policy, const char *text)
{
    struct identity identity = {.is_id = strncmp(text, "id:", 3) == 0, .size = strlen(text)};
    memcpy(identity.text, text, identity.size);
    identity.has_ip = !identity.is_id && ip_parse(slice_of(text + 3), &identity.ip);
    return policy_client(policy, &identity);
}

START_TEST(clients_are_found_by_id_and_address)
{
    struct policy *policy = load(slice_of(sample));

    ck_assert_int_eq(client_limits_of(policy, "id:client-0")->quota, QUOTA_PROHIBITED);
    ck_assert_int_eq(client_limits_of(policy, "id:client-1")->quota, QUOTA_UNLIMITED);
    ck_assert_int_eq(client_limits_of(policy, "id:client-2")->quota, QUOTA_AS_WRITTEN);
    ck_assert_ptr_null(client_limits_of(policy, "id:client-3"));
    ck_assert_ptr_null(client_limits_of(policy, "id:"));
    ck_assert_ptr_null(client_limits_of(policy, "id:ip:203.0.113.7")); /* an id is no address */
    ck_assert_ptr_null(client_limits_of(policy, "id:203.0.113.7"));
    ck_assert_str_eq(client_limits_of(policy, "ip:203.0.113.7")->name, "ip:203.0.113.7");
    ck_assert_str_eq(client_limits_of(policy, "ip:203.0.113.8")->name, "ip:203.0.113.0/24");
    ck_assert_ptr_null(client_limits_of(policy, "ip:203.0.114.8"));
    ck_assert_str_eq(client_limits_of(policy, "ip:2001:db8:1::2")->name, "ip:2001:db8::/32");
    ck_assert_str_eq(client_limits_of(policy, "ip:2001:db9::")->name,
                     "ip:::/0"); /* without IPv4: see above */
    ck_assert_str_eq(client_limits_of(policy, "ip:unix")->name, "ip:unix");
    policy_drop(policy);
}
END_TEST

START_TEST(clients_have_their_own_limits)
{
    struct policy *policy = load(slice_of(sample));
    const struct limit_numbers *numbers = client_limits_of(policy, "id:client-2")->numbers;

    ck_assert_ptr_null(client_limits_of(policy, "id:client-0")->numbers);
    ck_assert_int_eq(numbers[0].limit, 3);
    ck_assert_int_eq(numbers[0].burst, 3);
    ck_assert_int_eq(numbers[1].limit, 3);    /* per client and route */
    ck_assert_int_eq(numbers[2].limit, 5000); /* per all */
    ck_assert_int_eq(numbers[4].limit, 60);   /* per header and ip */
    numbers = client_limits_of(policy, "id:gold")->numbers;
    ck_assert_int_eq(numbers[0].limit, 1000);
    ck_assert_int_eq(numbers[0].burst, 500);
    ck_assert_int_eq(numbers[3].limit, 61);
    ck_assert_int_eq(numbers[3].burst, 61);
    ck_assert_int_eq(numbers[1].limit, 10);
    numbers = client_limits_of(policy, "id:mixed")->numbers;
    ck_assert_int_eq(numbers[0].limit, 7);
    ck_assert_int_eq(numbers[1].limit, 2);
    policy_drop(policy);
}
END_TEST

START_TEST(a_plan_is_shared_and_settings_of_the_client_override_it)
{
    struct policy *policy = load(slice_of(sample));
    const struct limit_numbers *numbers = client_limits_of(policy, "id:silver-1")->numbers;

    ck_assert_uint_eq(policy->plan_count, 3);
    ck_assert_ptr_eq(numbers, policy->plans[0].numbers);
    ck_assert_int_eq(numbers[0].limit, 300);
    ck_assert_int_eq(numbers[0].burst, 20); /* was written, and not as the limit */
    ck_assert_int_eq(numbers[1].limit, 10);
    ck_assert_int_eq(numbers[2].limit, 6000);
    numbers = client_limits_of(policy, "id:silver-2")->numbers;
    ck_assert_int_eq(numbers[0].limit, 300);
    ck_assert_int_eq(numbers[0].burst, 9);
    ck_assert_int_eq(numbers[2].limit, 6000);
    numbers = client_limits_of(policy, "id:silver-3")->numbers;
    ck_assert_int_eq(numbers[0].limit, 7);
    ck_assert_int_eq(numbers[1].limit, 7);
    ck_assert_int_eq(numbers[2].limit, 6000); /* per all: the plan's */
    ck_assert_int_eq(client_limits_of(policy, "id:silver-4")->quota, QUOTA_PROHIBITED);
    ck_assert_ptr_null(client_limits_of(policy, "id:plain")->numbers);
    policy_drop(policy);
}
END_TEST

START_TEST(a_raised_limit_raises_a_default_burst)
{
    struct policy *policy =
        load_warned(UPSTREAMS IDS "limits:\n  a: { script: gcra, limit: 10, period: 1s }\n"
                                  "  b: { script: gcra, limit: 10, period: 1s, burst: 2 }\n"
                                  "clients: { c: { limits: { a: { limit: 50 }, b: { limit: 50 "
                                  "} } } }\nrules: [ { limits: [ a, b ] } ]\n");
    const struct limit_numbers *numbers = client_limits_of(policy, "id:c")->numbers;
    ck_assert_int_eq(numbers[0].burst, 50);
    ck_assert_int_eq(numbers[1].burst, 2);
    policy_drop(policy);
}
END_TEST

START_TEST(lookups_among_thousands_of_clients)
{
    char *yaml = NULL, id[32];
    size_t size;
    FILE *out = open_memstream(&yaml, &size);

    fputs(UPSTREAMS IDS "clients:\n", out);
    for (unsigned i = 0; i < 20000; i++)
        fprintf(out, "  c%u: { quota: %u }\n  'ip:10.%u.%u.0/24': { quota: 0 }\n", i, i % 3, i >> 8,
                i & 255);
    fclose(out);
    struct policy *policy = load_warned(yaml);
    for (unsigned i = 0; i < 20000; i += 997) {
        snprintf(id, sizeof id, "id:c%u", i);
        ck_assert_str_eq(client_limits_of(policy, id)->name, id + 3);
        snprintf(id, sizeof id, "ip:10.%u.%u.9", i >> 8, i & 255);
        ck_assert_int_eq(client_limits_of(policy, id)->quota, QUOTA_PROHIBITED);
    }
    ck_assert_ptr_null(client_limits_of(policy, "id:c20000"));
    policy_drop(policy);
    free(yaml);
}
END_TEST

/* --- rules --- */

START_TEST(the_first_matching_rule_applies)
{
    struct policy *policy = load(slice_of(sample));

    ck_assert_str_eq(matched(policy, "GET", "/healthz", "a.example"), "/healthz");
    ck_assert_str_eq(matched(policy, "POST", "/v1/x", "a.example"), "/v1/**");
    ck_assert_str_eq(matched(policy, "PUT", "/v1", "www.example.com"), "/v1/**");
    ck_assert_str_eq(matched(policy, "GET", "/v1/x", "www.example.com:80"), "by host");
    ck_assert_str_eq(matched(policy, "GET", "/v1/x", "example.com"), "*");
    ck_assert_str_eq(matched(policy, "post", "/v1/x", ""), "*"); /* methods are case-sensitive */
    policy_drop(policy);
    policy = load_warned(UPSTREAMS "rules: [ { match: { path: /a } } ]\n");
    ck_assert_str_eq(matched(policy, "GET", "/b", ""), "(none)");
    policy_drop(policy);
}
END_TEST

START_TEST(rules_have_unique_names)
{
    struct policy *policy =
        load(SLICE(UPSTREAMS "rules:\n  - { name: '(none)', match: { path: /a } }\n"
                             "  - { match: { path: /a, methods: GET } }\n"
                             "  - { match: { path: /a, methods: PUT } }\n"
                             "  - { name: '/a#2', match: { path: /b } }\n"));
    ck_assert_str_eq(policy->rules[0].name, "(none)#2");
    ck_assert_str_eq(policy->rules[1].name, "/a");
    ck_assert_str_eq(policy->rules[2].name, "/a#2");
    ck_assert_str_eq(policy->rules[3].name, "/a#2#2");
    policy_drop(policy);
}
END_TEST

START_TEST(long_names_are_truncated_for_their_number)
{
    char yaml[2048], name[RULE_NAME_MAX + 1];

    memset(name, 'n', sizeof name - 1);
    memcpy(name + RULE_NAME_MAX - 3, "\xc3\xa9x", 4); /* the cut would fall inside it */
    snprintf(yaml, sizeof yaml,
             UPSTREAMS "rules:\n  - { name: '%s', match: { path: /a } }\n  - { name: '%s' }\n",
             name, name);
    struct policy *policy = load_warned(yaml);
    ck_assert_str_eq(policy->rules[0].name, name);
    memcpy(name + RULE_NAME_MAX - 3, "#2", 3);
    ck_assert_str_eq(policy->rules[1].name, name);
    policy_drop(policy);
}
END_TEST

/* Returns whether there is a warning that the second of two rules is unreachable. */
static bool is_unreachable(const char *first, const char *second)
{
    char yaml[1024];
    snprintf(yaml, sizeof yaml, UPSTREAMS "rules:\n  - { match: { %s } }\n  - { match: { %s } }\n",
             first, second);
    struct policy *policy = load(slice_of(yaml));
    ck_assert_msg(policy != NULL, "%s", messages);
    policy_drop(policy);
    return strstr(messages, "no request reaches this rule") != NULL;
}

START_TEST(unreachable_rules_are_reported)
{
    ck_assert(is_unreachable("", "path: /a"));
    ck_assert(is_unreachable("path: /a", "path: /a, methods: GET"));
    ck_assert(is_unreachable("path: '/a/**'", "path: /a"));
    ck_assert(is_unreachable("path: '/a/**'", "path: '/a/*/c'"));
    ck_assert(is_unreachable("path: '/*/b'", "path: /a/b"));
    ck_assert(is_unreachable("path: '/**'", "path: '/a/**'"));
    ck_assert(is_unreachable("host: '*.b.example'", "host: a.B.example"));
    ck_assert(is_unreachable("methods: [ GET, PUT ]", "methods: PUT, path: /a"));
    ck_assert(!is_unreachable("path: '/a/**'", "path: '/ab'"));
    ck_assert(!is_unreachable("path: '/a/**'", "path: '/**'"));
    ck_assert(!is_unreachable("path: '/a/*'", "path: '/a/**'"));
    ck_assert(!is_unreachable("methods: GET", "path: /a"));
    ck_assert(!is_unreachable("methods: [ GET ]", "methods: [ GET, PUT ]"));
    ck_assert(!is_unreachable("host: a.example", "path: /a"));
    ck_assert(!is_unreachable("host: '*.b.example'", "host: b.example"));
    ck_assert(is_unreachable("json: { n: '*5' }", "json: { n: '15' }"));
    ck_assert(is_unreachable("json: { n: '*' }", "json: { n: [ 5, true ] }"));
    ck_assert(is_unreachable("json: { n: [ 5, 6 ] }", "json: { n: 5 }"));
    ck_assert(!is_unreachable("json: { n: '*5' }", "json: { n: 5 }"));
    ck_assert(!is_unreachable("json: { n: '*e' }", "json: { n: true }"));
    ck_assert(!is_unreachable("json: { n: '**' }", "json: { n: '*' }"));
}
END_TEST

/* --- errors --- */

static char *file_text(const char *path)
{
    struct arena arena = {NULL};
    struct slice bytes = SLICE_NONE;
    const char *why = "";
    ck_assert_msg(file_read(&arena, path, 1 << 20, &bytes, &why), "%s: %s", path, why);
    char *copy = strndup(bytes.p, bytes.n);
    arena_free(&arena);
    return copy;
}

/* tests/conf-bad/x.yaml must produce exactly x.err; differences are written to `wrong`. */
static void assert_expected_errors(const char *name, FILE *wrong)
{
    char expected_name[256];
    size_t stem = strlen(name) - 5;

    snprintf(expected_name, sizeof expected_name, "%.*s.err", (int)stem, name);
    char *expected = file_text(expected_name);
    FILE *report = fmemopen(messages, sizeof messages, "w+");
    struct policy *policy = policy_load(name, lua_dir(), report);
    fclose(report);
    if (strcmp(messages, expected) != 0)
        fprintf(wrong, "%s reports\n%sinstead of\n%s", name, messages, expected);
    if ((policy != NULL) != (strncmp(name, "warning", 7) == 0))
        fprintf(wrong, "%s is %s\n", name, policy ? "taken" : "refused");
    policy_drop(policy);
    free(expected);
}

START_TEST(errors_are_reported_with_their_location)
{
    char path[4096], *mistakes = NULL;
    size_t size = 0;
    unsigned count = 0;
    FILE *wrong = open_memstream(&mistakes, &size);

    (void)lua_dir(); /* while the working directory is the one that it is relative to */
    snprintf(path, sizeof path, "%s/tests/conf-bad", top());
    ck_assert_int_eq(chdir(path), 0);
    DIR *directory = opendir(".");
    for (const struct dirent *entry; (entry = readdir(directory));) {
        size_t n = strlen(entry->d_name);
        if (n <= 5 || strcmp(entry->d_name + n - 5, ".yaml") != 0)
            continue;
        if (!https_is_there() && strstr(entry->d_name, "key-url-"))
            continue;
        if (!postgres_is_there() && strstr(entry->d_name, "quotas-"))
            continue; /* the only error then is that libpq is missing */
        assert_expected_errors(entry->d_name, wrong);
        count++;
    }
    closedir(directory);
    fclose(wrong);
    ck_assert_msg(size == 0, "%s", mistakes);
    free(mistakes);
    ck_assert_uint_ge(count, 100);
}
END_TEST

START_TEST(an_unreadable_file_is_reported)
{
    FILE *report = fmemopen(messages, sizeof messages, "w+");
    ck_assert_ptr_null(policy_load("/nowhere/weir.yaml", lua_dir(), report));
    ck_assert_ptr_null(policy_load("/", lua_dir(), report));
    fclose(report);
    ck_assert_str_eq(messages, "/nowhere/weir.yaml: cannot be read: No such file or directory\n"
                               "/: cannot be read: Is a directory\n");
}
END_TEST

START_TEST(a_huge_file_is_refused)
{
    char path[] = "/tmp/weir-check-policy-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(ftruncate(fd, (16 << 20) + 1), 0);
    close(fd);
    FILE *report = fmemopen(messages, sizeof messages, "w+");
    ck_assert_ptr_null(policy_load(path, lua_dir(), report));
    fclose(report);
    unlink(path);
    ck_assert_ptr_nonnull(
        strstr(messages, ": cannot be read: File too large; a policy has at most 16 MiB\n"));
}
END_TEST

START_TEST(a_missing_limiter_is_reported)
{
    FILE *report = fmemopen(messages, sizeof messages, "w+");
    ck_assert_ptr_null(policy_load_text("test.yaml", slice_of(sample), "/nowhere", report));
    fclose(report);
    ck_assert_ptr_nonnull(
        strstr(messages, "test.yaml:11:25: limits.per-client.script: /nowhere/token_bucket.lua "
                         "cannot be read: No such file or directory; install weir, or name "
                         "the directory of its limiters in WEIR_LUA_DIR\n"));
}
END_TEST

/* Writes `head`, then `item` this many times, each with its number, then `tail`. */
static char *many(const char *head, const char *item, unsigned count, const char *tail)
{
    char *yaml = NULL;
    size_t size;
    FILE *out = open_memstream(&yaml, &size);

    fputs(head, out);
    for (unsigned i = 0; i < count; i++) {
        const char *number = strchr(item, '#');
        fprintf(out, "%.*s%u%s", (int)(number - item), item, i, number + 1);
    }
    fputs(tail, out);
    fclose(out);
    return yaml;
}

static void assert_too_many(const char *head, const char *item, unsigned count, const char *tail,
                            const char *words)
{
    char *yaml = many(head, item, count, tail);
    load_bad(yaml, words);
    free(yaml);
}

START_TEST(every_list_has_a_maximum_size)
{
    char *text = many("log: { file: '", "#", 20000, "' }\n" UPSTREAMS);
    load_bad(text, "test.yaml:1:14: longer than 65536 bytes\n");
    free(text);
    assert_too_many(UPSTREAMS "limits:\n", "  l#: { script: gcra, limit: 1, period: 1s }\n",
                    LIMITS_MAX + 1, "", "limits: has 257 limits; expected at most 256");
    assert_too_many(UPSTREAMS "rules:\n", " - { name: r# }\n", RULES_MAX + 1, "",
                    "rules: has 1025 rules; expected at most 1024");
    assert_too_many(UPSTREAMS "clients:\n", "  c#: {}\n", 100001, "",
                    "clients: has 100001 clients; expected at most 100000");
    assert_too_many(UPSTREAMS "identity: { trusted_proxies: [ ", "'::#', ", 1025, "] }",
                    "expected a list of at most 1024 addresses and ranges");
    assert_too_many("upstreams: {", "u#: { servers: 127.0.0.1:1 }, ", 257, "}",
                    "upstreams: has 257 upstreams; expected 1 to 256");
    assert_too_many(UPSTREAMS
                    "limits: { a: { script: gcra, limit: 1, period: 1s } }\nrules: [ { limits: [ ",
                    "a#, ", 9, "] } ]", "expected a list of at most 8 limits");
    assert_too_many(UPSTREAMS "listen: [ ", "127.0.0.1:#, ", 65, "]",
                    "listen: has 65 addresses; expected 1 to 64");
}
END_TEST

START_TEST(the_number_of_values_is_limited)
{
    char *text = many(UPSTREAMS "rules: [ ", "#,", 1000001, "]\n");
    load_bad(text, "the policy has more than 1000000 values");
    free(text);
}
END_TEST

START_TEST(further_errors_are_counted)
{
    char *text = many(UPSTREAMS "rules:\n- { match: { methods: [ ", "x#,", 31, "] } }\n");
    load_bad(text, "test.yaml: 31 errors; the first 20 are shown\n");
    free(text);
    text = many(UPSTREAMS "clients:\n", "  c#: 1\n", 20000, "");
    load_bad(text, "test.yaml: 20000 errors; the first 20 are shown\n");
    ck_assert_ptr_nonnull(strstr(messages, "test.yaml:3:7: clients.c0: expected a map"));
    free(text);
}
END_TEST

START_TEST(numbers_must_be_exact_in_lua)
{
    policy_drop(load_good(UPSTREAMS
                          "limits: { a: { script: fixed_window, limit: 1000000000, period: 1d } }\n"
                          "rules: [ { limits: a } ]\n"));
    policy_drop(load_good(UPSTREAMS
                          "limits: { a: { script: token_bucket, limit: 10000000, period: 30d } }\n"
                          "rules: [ { limits: a } ]\n"));
    load_bad(UPSTREAMS
             "limits: { a: { script: token_bucket, limit: 1, period: 1d, burst: 100000 } }\n"
             "rules: [ { limits: a } ]\n",
             "which scripts cannot count exactly");
    load_bad(UPSTREAMS "limits: { a: { script: gcra, limit: 100, period: 1d, burst: 10000 } }\n"
                       "rules: [ { limits: a } ]\nclients: { c: { limits: { a: { limit: 1, burst: "
                       "1000000 } } } }\n",
             "which scripts cannot count exactly");
}
END_TEST

START_TEST(a_policy_is_freed_with_its_last_reference)
{
    struct policy *policy = load(slice_of(sample));
    ck_assert_ptr_eq(policy_hold(policy), policy);
    policy_drop(policy);
    ck_assert_uint_eq(policy->rule_count, 8);
    policy_drop(policy);
    policy_drop(NULL);
}
END_TEST

static void add_loading(Suite *suite)
{
    TCase *tests = tcase_create("reading");
    tcase_add_test(tests, a_policy_is_loaded);
    tcase_add_test(tests, limits_are_loaded);
    tcase_add_test(tests, rules_are_loaded);
    tcase_add_test(tests, shadow_applies_to_limits_without_a_setting_of_their_own);
    tcase_add_test(tests, the_selected_share_of_clients_is_stable);
    tcase_add_test(tests, missing_options_have_their_defaults);
    tcase_add_test(tests, leases_are_enabled_by_default_where_possible);
    tcase_add_test(tests, the_address_of_redis_can_be_a_url);
    tcase_add_test(tests, a_byte_order_mark_is_ignored);
    tcase_add_test(tests, a_rule_without_limits_is_declared_with_none);
    tcase_add_test(tests, an_embedded_redis_has_no_address);
    tcase_add_test(tests, environment_variables_are_substituted);
    tcase_add_test(tests, file_names_are_relative_to_the_policy);
    tcase_add_test(tests, a_printed_policy_loads_as_the_same_policy);
    tcase_add_test(tests, long_text_is_printed_completely);
    tcase_add_test(tests, the_printed_policy_contains_the_effective_values);
    tcase_add_test(tests, a_policy_is_freed_with_its_last_reference);
    suite_add_tcase(suite, tests);
}

static void add_finding(Suite *suite)
{
    TCase *tests = tcase_create("finding");
    tcase_add_test(tests, clients_are_found_by_id_and_address);
    tcase_add_test(tests, clients_have_their_own_limits);
    tcase_add_test(tests, a_plan_is_shared_and_settings_of_the_client_override_it);
    tcase_add_test(tests, a_raised_limit_raises_a_default_burst);
    tcase_add_test(tests, lookups_among_thousands_of_clients);
    tcase_add_test(tests, the_first_matching_rule_applies);
    tcase_add_test(tests, rules_have_unique_names);
    tcase_add_test(tests, long_names_are_truncated_for_their_number);
    tcase_add_test(tests, unreachable_rules_are_reported);
    suite_add_tcase(suite, tests);
}

static void add_errors(Suite *suite)
{
    TCase *tests = tcase_create("mistakes");
    tcase_set_timeout(tests, 60); /* a million values, under a sanitizer */
    tcase_add_test(tests, errors_are_reported_with_their_location);
    tcase_add_test(tests, an_unreadable_file_is_reported);
    tcase_add_test(tests, a_huge_file_is_refused);
    tcase_add_test(tests, a_missing_limiter_is_reported);
    tcase_add_test(tests, every_list_has_a_maximum_size);
    tcase_add_test(tests, the_number_of_values_is_limited);
    tcase_add_test(tests, further_errors_are_counted);
    tcase_add_test(tests, numbers_must_be_exact_in_lua);
    suite_add_tcase(suite, tests);
}

int main(void)
{
    Suite *suite = suite_create("policy");
    add_loading(suite);
    add_finding(suite);
    add_errors(suite);
    return run_suite_in_processes(suite);
}
