/* check_route.c - rule selection: the matching rule, refused ambiguous paths, the forwarded path. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "http/head.h"
#include "policy/identity.h"
#include "policy/rule_choice.h"
#include "run_suite.h"

#define UPSTREAMS "upstreams: { api: { servers: [ 127.0.0.1:3000 ] } }\n"

static struct route_room room;

static struct policy *load(const char *yaml)
{
    static char output[1 << 16];
    FILE *report = fmemopen(output, sizeof output, "w+");
    struct policy *policy = policy_load_text("test.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_msg(policy != NULL, "%s\n%s", output, yaml);
    return policy;
}

static struct request_head *head_of(const char *method, const char *target, const char *host)
{
    static struct request_head head;
    static char bytes[4096];
    struct refusal refusal;
    int n = snprintf(bytes, sizeof bytes, "%s %s HTTP/1.%d\r\n%s%s\r\n", method, target,
                     host[0] ? 1 : 0, host[0] ? "Host: " : "", host);

    n += snprintf(bytes + n, sizeof bytes - (size_t)n, "%s", host[0] ? "\r\n" : "");
    ck_assert_msg(request_head_parse((struct slice){bytes, (size_t)n}, &head, &refusal), "%s %s",
                  method, target);
    return &head;
}

/* Returns the rule's name, or the reason of a refusal in parentheses. `forwarded` may be NULL. */
static const char *routed(const struct policy *policy, const char *method, const char *target,
                          const char *host, struct slice *forwarded)
{
    static char why[256];
    struct route route;
    struct identity identity = {.has_ip = true};
    struct request_facts request = {.head = head_of(method, target, host), .identity = &identity};
    const char *refused = policy_route(policy, &request, &room, &route);

    if (forwarded)
        *forwarded = refused ? SLICE_NONE : route.path;
    if (!refused)
        return route.rule->name;
    snprintf(why, sizeof why, "(%s)", refused);
    return why;
}

struct expected {
    const char *target, *rule; /* "400": refused */
};

static void assert_routes(const struct policy *policy, const struct expected *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = routed(policy, "GET", cases[i].target, "a", NULL);
        bool refused = name[0] == '(' && strcmp(name, "(none)") != 0;
        ck_assert_msg(strcmp(refused ? "400" : name, cases[i].rule) == 0, "%s: %s, not %s",
                      cases[i].target, name, cases[i].rule);
    }
}

static const char two_rules[] =
    UPSTREAMS "rules:\n  - { match: { path: /v1/** } }\n  - { match: { path: /login } }\n"
              "  - { match: { path: /café } }\n  - { name: rest }\n";

START_TEST(readings_that_select_another_rule_are_refused)
{
    static const struct expected cases[] = {
        {"/login", "/login"},
        {"/%6cogin", "/login"},
        {"/login/", "/login"},
        {"/login?a=/../v1", "/login"},
        {"/Login", "rest"},
        {"/caf%C3%A9", "/café"},
        {"/caf%c3%a9/", "/café"},
        {"/v1/group%2Fproject", "/v1/**"},
        {"/v1/a;b=c/d", "/v1/**"},
        {"/v1//a", "/v1/**"},
        {"/v1/%252e", "/v1/**"},
        {"/v1/a|b[c]^{d}\"<e>`", "/v1/**"},
        {"/v1/a\\b", "/v1/**"},
        {"/v1/%3A%40%21%20", "/v1/**"},
        {"/x%2Fy", "rest"},
        {"/a//b;c", "rest"},
        {"/v1/a/..%2f..%2fhealthz", "400"},
        {"/v1/a/..%2f..%2fhealthz?x=1", "400"},
        {"/v1/a/..%5c..%5chealthz", "400"},
        {"/v1/..\\..\\healthz", "400"},
        {"/v1/a/..;/..;/healthz", "400"},
        {"/v1/a/%252e%252e/%252e%252e/healthz", "400"},
        {"//login", "400"},
        {"/login//", "400"},
        {"/login;a", "400"},
        {"/login%3Ba", "400"},
        {"/login;a/", "400"},
        {"/login%3Fa", "400"},
        {"/login%2F", "400"},
        {"/login\\", "400"},
        {"/%256cogin", "400"},
        {"/login.", "400"},
        {"/login%20", "400"},
        {"/login%0a", "400"},
        {"/login%23", "400"},
        {"/x/%2e%2e%2flogin", "400"},
        {"//host/login", "400"},
        {"/.;/login", "400"},
        {"/x%2f..%2flogin", "400"},
        {"/%c0%afv1/a", "400"},
        {"/v1%c0%af..%c0%aflogin", "400"},
        {"/%ef%bd%8cogin", "400"},
        {"/%4", "400"},
        {"/%u002flogin", "400"},
        {"/login%00", "400"},
        {"/v1/a/../../healthz", "400"}, /* dot segments are refused under any rules */
        {"/v1/./a", "400"},
        {"/v1/%2e%2e/v1/a", "400"},
        {"/v1/a/.%2E", "400"},
        {"/.well-known/...", "rest"},
        {"/v1/...", "/v1/**"},
        {"/v1/a/..../b", "/v1/**"},
        {"/v1/a/.%2e./b", "/v1/**"},
        {"/x/.../login", "rest"},
        {"/.../login", "400"}, /* Windows removes the dots; then slashes are merged */
        {"/v1/..%20./login", "400"},
        {"/v1/..%20", "400"},
    };
    struct policy *policy = load(two_rules);
    assert_routes(policy, cases, COUNT_OF(cases));
    policy_drop(policy);
}
END_TEST

START_TEST(ambiguous_paths_can_be_allowed)
{
    static const struct expected cases[] = {
        {"/login;a", "rest"},
        {"//login", "rest"},
        {"/v1/a/..%2f..%2fhealthz", "/v1/**"},
        {"/v1/../login", "400"},
    };
    char yaml[1024];
    snprintf(yaml, sizeof yaml, "paths: { ambiguous: allow }\n%s", two_rules);
    struct policy *policy = load(yaml);
    assert_routes(policy, cases, COUNT_OF(cases));
    policy_drop(policy);
}
END_TEST

START_TEST(dot_segments_can_be_removed)
{
    static const struct {
        const char *target, *rule, *forwarded;
    } cases[] = {
        {"/v1/a/../../login", "/login", "/login"},
        {"/v1/./%61?b=..", "/v1/**", "/v1/%61"},
        {"/x/%2e%2E/login/.", "/login", "/login/"},
        {"/v1/a|b/..", "/v1/**", "/v1/"},
        {"/v1/%61", "/v1/**", ""},
        {"/.well-known/a", "rest", ""},
        {"/x/..//login", "400", ""},
        {"/x/../v1/a%2f..%2f..%2flogin", "400", ""},
        {"/./login;a", "400", ""},
    };
    char yaml[1024];
    snprintf(yaml, sizeof yaml, "paths: { dot_segments: normalize }\n%s", two_rules);
    struct policy *policy = load(yaml);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct slice forwarded;
        const char *name = routed(policy, "GET", cases[i].target, "a", &forwarded);
        ck_assert_msg(strcmp(name[0] == '(' ? "400" : name, cases[i].rule) == 0, "%s: %s",
                      cases[i].target, name);
        ck_assert_msg(slice_equal(forwarded, slice_of(cases[i].forwarded)), "%s: %.*s",
                      cases[i].target, SLICE_ARG(forwarded));
    }
    policy_drop(policy);
}
END_TEST

START_TEST(slash_and_case_options_apply)
{
    static const struct expected loose[] = {
        {"/LOGIN/", "/Login/"}, {"/login", "/Login/"},
        {"/V1/a/", "/v1/*"},    {"/v1/", "rest"},
        {"/v1", "rest"},        {"/%4cogin", "/Login/"},
        {"/LOGIN%2F", "400"},   {"/x%2f..%2fLOGIN", "400"},
    };
    static const struct expected exact[] = {
        {"/login", "/login"}, {"/login/", "rest"}, {"/Login", "rest"},
        {"/a/", "/a/"},       {"/a", "rest"},      {"/login%2F", "rest"},
    };
    struct policy *policy = load(
        "paths: { ignore_case: true }\n" UPSTREAMS
        "rules: [ { match: { path: /Login/ } }, { match: { path: '/v1/*' } }, { name: rest } ]\n");
    assert_routes(policy, loose, COUNT_OF(loose));
    policy_drop(policy);
    policy =
        load("paths: { trailing_slash: exact }\n" UPSTREAMS
             "rules: [ { match: { path: /login } }, { match: { path: /a/ } }, { name: rest } ]\n");
    assert_routes(policy, exact, COUNT_OF(exact));
    policy_drop(policy);
}
END_TEST

/* If no rule has a path, no reading selects another rule. */
START_TEST(without_path_rules_all_paths_are_accepted)
{
    struct policy *policy =
        load(UPSTREAMS "rules: [ { match: { methods: [ GET ] } }, { name: rest } ]\n");
    ck_assert_str_eq(
        routed(policy, "GET", "//a%252F\\;b/..%5C%3Bc%3F.%09d.%20/%c0%af//%25252e", "a", NULL),
        "*");
    policy_drop(policy);
    policy = load(two_rules);
    /* a path without readings that select another rule, but with too many readings */
    ck_assert_ptr_nonnull(strstr(
        routed(policy, "GET", "/v1/a%252F\\;b/c%3Bc%3F.%09d.%20/%ef%bd%8c//%25252e", "a", NULL),
        "too many"));
    policy_drop(policy);
}
END_TEST

START_TEST(methods_in_another_case_are_refused)
{
    static const char *const refused[] = {"post",  "Post",     "get",   "PuT",
                                          "trace", "propfind", "query", "Purge"};
    static const char *const passed[] = {"POST",     "GET",   "PURGE", "FOO", "foo",
                                         "PROPFIND", "QUERY", "POSTS", "pos"};
    struct policy *policy = load(UPSTREAMS "rules: [ { match: { methods: [ PURGE ] } } ]\n");

    for (size_t i = 0; i < COUNT_OF(refused); i++)
        ck_assert_msg(strstr(routed(policy, refused[i], "/", "a", NULL), "case"), "%s", refused[i]);
    for (size_t i = 0; i < COUNT_OF(passed); i++)
        ck_assert_msg(!strstr(routed(policy, passed[i], "/", "a", NULL), "case"), "%s", passed[i]);
    policy_drop(policy);
}
END_TEST

/* It is forwarded with the server's address as Host. */
START_TEST(a_request_without_host_matches_the_rule_of_the_upstreams_host)
{
    struct policy *policy =
        load(UPSTREAMS "rules: [ { match: { host: 127.0.0.1 } }, { match: { host: b } } ]\n");
    ck_assert_ptr_nonnull(strstr(routed(policy, "GET", "/", "", NULL), "Host"));
    ck_assert_str_eq(routed(policy, "GET", "/", "a", NULL), "(none)");
    policy_drop(policy);
    policy = load(UPSTREAMS "rules: [ { match: { host: b } } ]\n");
    ck_assert_str_eq(routed(policy, "GET", "/", "", NULL), "(none)");
    policy_drop(policy);
}
END_TEST

/* Some servers read a leading "//name" of a target as a host. */
START_TEST(an_authority_in_a_path_is_read_as_a_host)
{
    static const struct expected cases[] = {
        {"//b/x", "400"},  {"/\\b:80", "400"}, {"//me@B/x", "400"}, {"/x%2f..%2f..%2f/b", "400"},
        {"//c/x", "rest"}, {"/b//b", "rest"},  {"//b@c", "rest"},
    };
    struct policy *policy = load(UPSTREAMS "rules: [ { match: { host: b } }, { name: rest } ]\n");
    assert_routes(policy, cases, COUNT_OF(cases));
    policy_drop(policy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("route");
    TCase *tests = tcase_create("route");
    tcase_add_test(tests, readings_that_select_another_rule_are_refused);
    tcase_add_test(tests, ambiguous_paths_can_be_allowed);
    tcase_add_test(tests, dot_segments_can_be_removed);
    tcase_add_test(tests, slash_and_case_options_apply);
    tcase_add_test(tests, without_path_rules_all_paths_are_accepted);
    tcase_add_test(tests, methods_in_another_case_are_refused);
    tcase_add_test(tests, an_authority_in_a_path_is_read_as_a_host);
    tcase_add_test(tests, a_request_without_host_matches_the_rule_of_the_upstreams_host);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
