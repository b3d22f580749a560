/* check_rule_index.c - the index of rules selects the rule that a search one by one selects, for
 * random rules on host, path and method, and random requests.
 *
 *   STEPS=1000000 SEED=7 check_rule_index   number of requests (default 20000) and seed (default 1) */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "http/path.h"
#include "policy/rule_match.h"
#include "run_suite.h"

enum { RULES_MOST = 60, SEGMENTS_MOST = 5, TEXT = 256 };

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 20) % n);
}

#define ONE_OF(list) ((list)[below(COUNT_OF(list))])

static const char *const labels[] = {"a", "b", "A", "aa", "a-b"};
static const char *const segments[] = {"a", "b", "ab", "aa", "v1", "", "A"};
static const char *const wildcards[] = {"*", "a*", "*b", "a*b"};
static const char *const methods[] = {"GET", "POST", "PUT"};

/* One to four labels; of a request perhaps with a port, a dot at the end or empty labels. */
static void random_host(char out[static TEXT], bool pattern)
{
    int n = 0;

    if (pattern ? below(2) : below(20) == 0)
        n += snprintf(out, TEXT, pattern ? "*." : ".");
    for (unsigned i = 0, count = 1 + below(4); i < count; i++)
        n += snprintf(out + n, TEXT - (size_t)n, "%s%s", i ? "." : "", ONE_OF(labels));
    if (below(6) == 0)
        n += snprintf(out + n, TEXT - (size_t)n, ".");
    if (!pattern && below(4) == 0)
        snprintf(out + n, TEXT - (size_t)n, ":8080");
    if (below(12) == 0)
        snprintf(out, TEXT, "[::1]%s", !pattern && below(2) ? ":80" : "");
    if (!pattern && below(20) == 0)
        out[0] = 0;
}

static void random_path(char out[static TEXT], bool pattern)
{
    int n = 0;

    if (below(12) == 0) {
        snprintf(out, TEXT, "*"); /* the target of OPTIONS */
        return;
    }
    for (unsigned i = 0, count = 1 + below(SEGMENTS_MOST); i < count; i++) {
        const char *segment = pattern && below(3) == 0 ? ONE_OF(wildcards) : ONE_OF(segments);
        if (pattern && !*segment)
            segment = "b"; /* patterns have no empty segments */
        n += snprintf(out + n, TEXT - (size_t)n, "/%s", segment);
    }
    if (pattern && below(2))
        snprintf(out + n, TEXT - (size_t)n, "/**");
    else if (below(4) == 0)
        snprintf(out + n, TEXT - (size_t)n, "/");
}

static struct policy *random_policy(void)
{
    static char yaml[1 << 16], output[1 << 16];
    char path[TEXT], host[TEXT];
    unsigned count = 12 + below(RULES_MOST - 12);
    int n = snprintf(yaml, sizeof yaml,
                     "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\n"
                     "paths: { trailing_slash: %s, ignore_case: %s }\nrules:\n",
                     below(2) ? "exact" : "ignore", below(2) ? "true" : "false");

    for (unsigned i = 0; i < count; i++) {
        random_path(path, true);
        random_host(host, true);
        n += snprintf(yaml + n, sizeof yaml - (size_t)n, "  - match: { path: \"%s\"", path);
        if (below(3))
            n += snprintf(yaml + n, sizeof yaml - (size_t)n, ", host: \"%s\"", host);
        if (below(2))
            n += snprintf(yaml + n, sizeof yaml - (size_t)n, ", methods: [ %s ]", ONE_OF(methods));
        n += snprintf(yaml + n, sizeof yaml - (size_t)n, " }\n");
    }
    FILE *report = fmemopen(output, sizeof output, "w+");
    struct policy *policy = policy_load_text("index.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_msg(policy != NULL, "%s%s", output, yaml);
    ck_assert_ptr_nonnull(policy->rule_index);
    return policy;
}

static unsigned matched;

static void compare(struct policy *policy)
{
    char path[TEXT], host[TEXT];
    size_t steps = 0;
    struct rule_request request = {.method = slice_of(ONE_OF(methods)), .criteria.steps = &steps};
    struct rule_index *index = policy->rule_index;

    random_path(path, false);
    random_host(host, false);
    request.path = rule_path(&policy->paths, slice_of(path));
    request.host = slice_of(host);
    const struct rule *found = policy_match(policy, &request);
    policy->rule_index = NULL;
    const struct rule *searched = policy_match(policy, &request);
    policy->rule_index = index;
    ck_assert_msg(found == searched, "%s%s: the index selects rule %u, a search rule %u", host,
                  path, found->index, searched->index);
    matched += found->index + 1 < policy->rule_count;
}

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

START_TEST(the_index_and_a_linear_search_agree)
{
    uint64_t steps = setting("STEPS", 20000);

    seed = setting("SEED", 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t step = 0; step < steps;) {
        struct policy *policy = random_policy();
        for (unsigned i = 0; i < 200; i++, step++)
            compare(policy);
        policy_drop(policy);
    }
    ck_assert_uint_gt(matched, steps / 4);
}
END_TEST

START_TEST(a_trailing_dot_is_ignored_in_wildcard_hosts)
{
    ck_assert(host_matches(SLICE("*.a.example."), SLICE("b.a.example")));
    ck_assert(host_matches(SLICE("*.a.example"), SLICE("b.a.example.")));
    ck_assert(!host_matches(SLICE("*.a.example."), SLICE("a.example")));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rule index");
    TCase *tests = tcase_create("rule index");
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, the_index_and_a_linear_search_agree);
    tcase_add_test(tests, a_trailing_dot_is_ignored_in_wildcard_hosts);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
