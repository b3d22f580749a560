/* check_policy_warnings.c - each warning disappears if its remedy is applied, and is never printed
 * for a policy that has applied it. */
#include <check.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "run_suite.h"

static char output[1 << 14];

/* Returns the warnings about a valid policy. */
static const char *warnings_for(const char *yaml)
{
    const char *lua_dir = getenv("WEIR_LUA_DIR");
    FILE *report = fmemopen(output, sizeof output, "w+");
    struct policy *policy =
        policy_load_text("test.yaml", slice_of(yaml), lua_dir ? lua_dir : "lua", report);

    fclose(report);
    ck_assert_msg(policy != NULL, "%s\n%s", yaml, output);
    policy_drop(policy);
    return output;
}

#define API "upstreams: { api: { servers: [ 127.0.0.1:3000 ] } }\n"
#define LIMITS                                                                                     \
    "limits: { a: { script: gcra, limit: 9, period: 1s }, ip: { script: gcra, limit: 99, period: " \
    "1s, per: "                                                                                    \
    "ip } }\n"
#define USED  "rules: [ { limits: [ a, ip ] } ]\n"
#define QUEUE "limits: { a: { script: leaky_bucket, limit: 9, period: 1s, max_delay: 1s, "
#define IDS   "identity: { from: [ 'header:X-Client-Id', ip ], trusted_proxies: [ 10.0.0.1 ]"

#define SERVICE                                                                                    \
    "rate_limit_service: { listen: 127.0.0.1:8081, domains: { d: { descriptors: [ { key: k, "      \
    "rate_limit: { unit: day, requests_per_unit: 1 } } ] } } }\n"
#define LIMIT_OF_CALLS(more)                                                                       \
    "redis: { timeout: 15ms }\nlimits: { a: { script: gcra, limit: 9, period: 1s" more " } }\n"    \
    "rate_limit_service: { listen: 127.0.0.1:8081, domains: { d: { descriptors: [ { key: k, "      \
    "limits: [ a ] } ] } } }\n"
/* A limit that counts by a value of requests, in a rule with this condition. */
#define LIMIT_PER(value, match)                                                                    \
    API "limits: { a: { script: gcra, limit: 9, period: 1s, per: [ client, '" value "' ] } }\n"    \
        "rules: [ { match: { " match " }, limits: a }, { limits: none } ]\n"
#define PRIORITIES                                                                                 \
    "priorities: { high: 100%, low: 50% }\nlimits: { all: { script: gcra, limit: 9, period: 1s, "  \
    "per: all }, "

static const struct {
    const char *policy, *words, *remedied;
} cases[] = {
    {API LIMITS, "there are no rules", API LIMITS USED},
    {API LIMITS USED "log: { format: json, access: combined }\n", "in the combined format are not",
     API LIMITS USED "log: { format: json, access: json }\n"},
    {API LIMITS "rules: [ { match: { path: /a }, limits: [ a, ip ] } ]\n",
     "requests that match no rule",
     API LIMITS "rules: [ { match: { path: /a }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS "rules: [ { match: { path: /a }, limits: [ a, ip ] } ]\n",
     "requests that match no rule",
     API LIMITS
     "rules: [ { match: { path: /a }, limits: [ a ] }, { match: { path: '/**' }, limits: ip } ]\n"},
    {API LIMITS "rules: [ { match: { path: /a } }, { limits: [ a, ip ] } ]\n",
     "requests of this rule are not limited",
     API LIMITS "rules: [ { match: { path: /a }, limits: none }, { limits: [ a, ip ] } ]\n"},
    {API LIMITS "rules: [ { match: { path: /a }, limits: }, { limits: [ a, ip ] } ]\n", "is empty",
     API LIMITS "rules: [ { match: { path: /a }, limits: [ none ] }, { limits: [ a, ip ] } ]\n"},
    {API QUEUE "burst: 1 } }\nrules: [ { limits: a } ]\n", "with this burst",
     API QUEUE "burst: 2 } }\nrules: [ { limits: a } ]\n"},
    {API QUEUE "burst: 5, cost: 5 } }\nrules: [ { limits: a } ]\n", "with this burst",
     API QUEUE "burst: 10, cost: 5 } }\nrules: [ { limits: a } ]\n"},
    {API LIMITS USED "identity: { from: [ 'header:X', ip ] }\n", "accepted from anyone",
     API LIMITS USED "identity: { from: [ 'header:X', ip ], trusted_proxies: [ 10.0.0.1 ] }\n"},
    {API LIMITS USED "identity: { from: [ 'header:X', ip ] }\n", "accepted from anyone",
     API LIMITS USED "identity: { from: [ 'header:X', ip ], headers_from: anyone }\n"},
    {API LIMITS USED
     "identity: { from: [ 'header:authorization', ip ], trusted_proxies: [ 10.0.0.1 ] }\n",
     "stand in clear",
     API LIMITS USED
     "identity: { from: [ 'header:authorization', ip ], trusted_proxies: [ 10.0.0.1 "
     "], hash: true }\n"},
    {API LIMITS USED "identity: { from: [ 'header:Cookie', ip ], trusted_proxies: [ 10.0.0.1 ] }\n",
     "stand in clear",
     API LIMITS USED
     "identity: { from: [ 'cookie:session', ip ], trusted_proxies: [ 10.0.0.1 ] }\n"},
    {API LIMITS USED
     "identity: { from: [ 'header:X-Forwarded-For', ip ], trusted_proxies: [ 10.0.0.1 ] }\n",
     "every list of addresses",
     API LIMITS USED "identity: { from: [ ip ], trusted_proxies: [ 10.0.0.1 ] }\n"},
    {"listen: 0.0.0.0:3000\n" API LIMITS USED, "is a listener of weir itself",
     "listen: 0.0.0.0:3001\n" API LIMITS USED},
    {"listen: 127.0.0.1:3000\n" API LIMITS USED, "is a listener of weir itself",
     "listen: 127.0.0.2:3000\n" API LIMITS USED},
    {API LIMITS
     "rules: [ { match: { path: '/(v1|v2)/**' }, limits: [ a, ip ] }, { limits: none } ]\n",
     "is not a wildcard",
     API LIMITS "rules: [ { match: { path: '/v1/**' }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS USED "identity: { client_ip_header: X-Real-IP }\n", "is never read",
     API LIMITS USED "identity: { client_ip_header: X-Real-IP, trusted_proxies: [ 10.0.0.1 ] }\n"},
    {LIMIT_PER("header:X-Plan", "header: { X-Plan: [ gold, 's*' ] }"), "invent values of X-Plan",
     LIMIT_PER("header:X-Plan", "header: { x-plan: [ gold, silver ] }")},
    {LIMIT_PER("header:X-Plan", "header: { X-Plan: gold }") "paths: { ambiguous: allow }\n",
     "invent values of X-Plan", LIMIT_PER("header:X-Plan", "header: { X-Plan: gold }")},
    {LIMIT_PER("json:model", "json: { Model: a }"), "invent values of json:model",
     LIMIT_PER("json:model", "json: { model: [ a, b ] }")},
    {LIMIT_PER("path:2", "path: '/v1/i*'"), "invent values of path:2",
     LIMIT_PER("path:2", "path: '/*/items/**'")},
    {LIMIT_PER("path:2", "methods: [ POST ]"), "invent values of path:2",
     LIMIT_PER("path:2", "path: /v1")},
    {LIMIT_PER("path:3", "path: '/v1/items/**'"), "invent values of path:3",
     LIMIT_PER("path:3", "path: /v1/items")},
    {API LIMITS "rules: [ { match: { scheme: https }, limits: [ a, ip ] }, { limits: none } ]\n",
     "no request has this scheme",
     "decisions: { listen: 127.0.0.1:8090 }\n" API LIMITS
     "rules: [ { match: { scheme: https }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS "rules: [ { match: { path: '*' }, limits: [ a, ip ] }, { limits: none } ]\n",
     "matches only the target of OPTIONS *",
     API LIMITS "rules: [ { match: { path: '/**' }, limits: [ a, ip ] } ]\n"},
    {API LIMITS "rules: [ { match: { methods: '*' }, limits: [ a, ip ] }, { limits: none } ]\n",
     "* is no wildcard here", API LIMITS USED},
    {API LIMITS
     "rules: [ { match: { host: .example.com }, limits: [ a, ip ] }, { limits: none } ]\n",
     "write \"*.example.com\"",
     API LIMITS
     "rules: [ { match: { host: '*.example.com' }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS "rules: [ { match: { json: { $.a: x } }, limits: [ a, ip ] }, { limits: none } ]\n",
     "\"$.a\" is not read as JSONPath",
     API LIMITS
     "rules: [ { match: { json: { a.$b: x } }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS
     "rules: [ { match: { json: { 'a[0]': x } }, limits: [ a, ip ] }, { limits: none } ]\n",
     "\"a[0]\" is not read as JSONPath",
     API LIMITS
     "rules: [ { match: { json: { '\"a[0]\"': x } }, limits: [ a, ip ] }, { limits: none "
     "} ]\n"},
    {API LIMITS "rules: [ { match: { path: '/a<b>' }, limits: [ a, ip ] }, { limits: none } ]\n",
     "clients send < as %3C, and such requests are refused as ambiguous",
     API LIMITS "rules: [ { match: { path: '/a*b*' }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS "rules: [ { match: { path: '/^v[0-9]+' }, limits: [ a, ip ] }, { limits: none } ]\n"
                "paths: { ambiguous: allow }\n",
     "clients send ^ as %5E, and such requests do not match",
     API LIMITS "rules: [ { match: { path: '/v*' }, limits: [ a, ip ] }, { limits: none } ]\n"},
    {API LIMITS USED "clients: { 'ip:2001:db8::1': { quota: 5 } }\n",
     "all addresses in 2001:db8::/64 share its counts, see identity.ipv6_prefix",
     API LIMITS USED "clients: { 'ip:2001:db8::/64': { quota: 5 } }\n"},
    {API LIMITS USED "clients: { 'ip:192.0.2.1': { quota: 5 } }\nidentity: { ipv4_prefix: 24 }\n",
     "all addresses in 192.0.2.0/24 share its counts, see identity.ipv4_prefix",
     API LIMITS USED
     "clients: { 'ip:192.0.2.1': { quota: 5 }, 'ip:2001:db8::1': { blocked: true } }\n"},
    {API LIMITS USED "identity: { trusted_proxies: [ '::/0' ] }\n", "trust everyone",
     API LIMITS USED "identity: { trusted_proxies: [ '2001:db8::/32' ] }\n"},
    {API LIMITS "rules: [ { limits: a } ]\nidentity: { from: 'header:X', headers_from: anyone }\n",
     "can invent", API LIMITS USED "identity: { from: 'header:X', headers_from: anyone }\n"},
    {API LIMITS "rules: [ { limits: a } ]\nidentity: { from: 'header:X', headers_from: anyone }\n",
     "can invent",
     API LIMITS "rules: [ { match: { path: /a }, limits: a }, { limits: ip } ]\n"
                "identity: { from: 'header:X', trusted_proxies: 10.0.0.1 }\n"},
    {API LIMITS USED IDS " }\nclients: { 'ip:10.0.0.0/8': { quota: 5 } }\n",
     "does not apply to requests with an id",
     API LIMITS USED IDS
     ", known_clients_only: true }\nclients: { 'ip:10.0.0.0/8': { quota: 5 } }\n"},
    {API LIMITS "rules: [ { limits: a } ]\nidentity: { from: 'query:key', headers_from: anyone }\n",
     "can invent", API LIMITS USED "identity: { from: 'query:key', headers_from: anyone }\n"},
    {"upstreams: { api: { servers: [ 127.0.0.1:3000 ], protocol: http2, health: { grpc: '' } } }\n"
     "limits: { a: { script: gcra, limit: 9, period: 1s, cost: { usage: openai } } }\n"
     "rules: [ { limits: a } ]\n",
     "speaks gRPC",
     "upstreams: { api: { servers: [ 127.0.0.1:3000 ], health: { path: / } } }\n"
     "limits: { a: { script: gcra, limit: 9, period: 1s, cost: { usage: openai } } }\n"
     "rules: [ { limits: a } ]\n"},
    {API LIMITS USED SERVICE, "Envoy waits 20 ms",
     API LIMITS USED SERVICE "redis: { timeout: 20ms }\n"},
    {API LIMITS SERVICE "redis: { timeout: 21ms }\nrules: [ { limits: [ a, ip ] } ]\n",
     "Envoy waits 20 ms", "redis: { timeout: 20ms }\n" SERVICE},
    {LIMIT_OF_CALLS(", count: [ 2xx ]"), "while Redis is away, it admits all of them",
     LIMIT_OF_CALLS("")},
    {LIMIT_OF_CALLS(", count: [ 2xx ], on_failure: deny"), "count has no effect on calls",
     LIMIT_OF_CALLS("")},
    {LIMIT_OF_CALLS(", cost: { reserve: 1, response_header: X-Cost }"),
     "its cost, a map, has no effect on calls", LIMIT_OF_CALLS("")},
    {LIMIT_OF_CALLS(", dedup: Idempotency-Key"), "dedup has no effect on calls",
     LIMIT_OF_CALLS("")},
    {LIMIT_OF_CALLS(", best_effort: true, granted_header: X-Granted"),
     "granted_header has no effect on calls", LIMIT_OF_CALLS("")},
    {API PRIORITIES
     "a: { script: gcra, limit: 9, period: 1s } }\n"
     "rules: [ { match: { path: /a }, limits: [ a ], priority: low }, { limits: [ a, all ] } ]\n",
     "has no effect",
     API PRIORITIES "a: { script: gcra, limit: 9, period: 1s } }\n"
                    "rules: [ { limits: [ a, all ], priority: low } ]\n"},
    {API PRIORITIES "}\nrules: [ { limits: all, priority: low, cost: 5 } ]\n",
     "are always rejected",
     API PRIORITIES "}\nrules: [ { limits: all, priority: low, cost: 4 } ]\n"},
    {API "priorities: { high: 90%, low: 50% }\n" LIMITS USED, "may use a whole limit",
     API "priorities: { high: 100%, low: 50% }\n" LIMITS USED},
    {API LIMITS USED "clients: { alice: { quota: 5 } }\n", "this client never occurs",
     API LIMITS USED IDS " }\nclients: { alice: { quota: 5 } }\n"},
};

START_TEST(a_remedy_removes_its_warning)
{
    const char *words = cases[_i].words;

    ck_assert_msg(strstr(warnings_for(cases[_i].policy), words) != NULL, "%s: %s", words, output);
    ck_assert_msg(!*warnings_for(cases[_i].remedied), "%s: %s", words, output);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("warnings");
    Suite *suite = suite_create("policy warnings");

    tcase_add_loop_test(tests, a_remedy_removes_its_warning, 0, (int)COUNT_OF(cases));
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
