/* check_rule_speed.c - the time to select one of 10 and of 1,000 rules.
 *
 * check_rule_speed prints the times; docs/performance.md contains them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "config/policy_file.h"
#include "policy/identity.h"
#include "policy/rule_choice.h"
#include "run_suite.h"

enum { FEW = 10, MANY = 1000, ROUNDS = 200, TRIES = 50 };
static const double MORE_MOST_NS = 2000;

static const struct kind {
    const char *name, *rule, *target, *host;
} kinds[] = {
    {"paths", "{ path: /v1/service-%1$u/** }", "/v1/service-%u/items/42", "api.example.com"},
    {"exact paths", "{ path: /v1/service-%1$u }", "/v1/service-%u", "api.example.com"},
    {"hosts", "{ host: tenant-%1$u.example.com }", "/v1/items/42", "tenant-%u.example.com"},
    {"hosts and paths", "{ host: '*.tenant-%1$u.example.com', path: /v1/** }", "/v1/items/42",
     "www.tenant-%u.example.com"},
    {"paths and queries", "{ path: /v1/service-%1$u/**, query: { format: csv } }",
     "/v1/service-%u/items?page=7&format=csv", "api.example.com"},
};

static struct policy *policy_of(const struct kind *kind, unsigned count)
{
    static char yaml[1 << 18];
    size_t n = (size_t)snprintf(yaml, sizeof yaml,
                                "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\nrules:\n");
    FILE *report = tmpfile();

    for (unsigned i = 0; i < count; i++) {
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, "  - match: ");
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, kind->rule, i);
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, "\n");
    }
    struct policy *policy = policy_load_text("speed.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_ptr_nonnull(policy);
    return policy;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns the shortest mean time of a selection that ends at the last rule. */
static double time_of(const struct kind *kind, unsigned count)
{
    static struct route_room room;
    static struct request_head head;
    char target[128], host[128], bytes[512];
    struct policy *policy = policy_of(kind, count);
    struct identity identity = {.has_ip = true};
    struct request_facts request = {.head = &head, .identity = &identity};
    struct refusal refusal;
    struct route route;
    bool refused = false;
    double best = 1e9;

    snprintf(target, sizeof target, kind->target, count - 1);
    snprintf(host, sizeof host, kind->host, count - 1);
    int n = snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, host);
    ck_assert(request_head_parse((struct slice){bytes, (size_t)n}, &head, &refusal));
    for (unsigned try = 0; try < TRIES; try++) {
        double start = now_ns();
        for (unsigned i = 0; i < ROUNDS; i++)
            refused |= policy_route(policy, &request, &room, &route) != NULL;
        double taken = (now_ns() - start) / (double)ROUNDS;
        best = taken < best ? taken : best;
        ck_assert(!refused && route.rule->index == count - 1);
    }
    policy_drop(policy);
    return best;
}

START_TEST(many_rules_cost_little_more_than_few)
{
    const struct kind *kind = &kinds[_i];
    double few = 0, many = MORE_MOST_NS + 1;

    for (unsigned try = 0; try < 10 && many - few > MORE_MOST_NS; try++) {
        few = time_of(kind, FEW);
        many = time_of(kind, MANY);
    }
    printf("%-20s %4d rules: %5.0f ns   %4d rules: %5.0f ns\n", kind->name, FEW, few, MANY, many);
    ck_assert_double_le(many - few, MORE_MOST_NS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rule speed");
    TCase *tests = tcase_create("rule speed");
    tcase_add_loop_test(tests, many_rules_cost_little_more_than_few, 0, COUNT_OF(kinds));
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
