/* rule_match.c - matches requests to rules, and computes request costs. */
#include "http/path.h"
#include "policy/policy.h"

static struct slice path_without_slash(struct slice path)
{
    return path.n > 1 && path.p[path.n - 1] == '/' ? (struct slice){path.p, path.n - 1} : path;
}

void rule_set_pattern(struct rule *rule, const struct path_settings *paths, char *room)
{
    for (size_t i = 0; i < rule->path.n; i++)
        room[i] = paths->ignore_case ? ascii_lower(rule->path.p[i]) : rule->path.p[i];
    rule->pattern = (struct slice){room, rule->path.n};
    if (paths->trailing_slash == TRAILING_SLASH_IGNORE)
        rule->pattern = path_without_slash(rule->pattern);
}

static bool has_method(const struct rule *rule, struct slice method)
{
    if (rule->any_method)
        return true;
    for (unsigned i = 0; i < rule->method_count; i++)
        if (slice_equal(rule->methods[i], method))
            return true;
    return false;
}

const struct rule *policy_match(const struct policy *policy, struct slice method, struct slice path,
                                struct slice host)
{
    const struct rule *rule = policy->rules, *built_in = rule + policy->rule_count - 1;

    if (policy->paths.trailing_slash == TRAILING_SLASH_IGNORE)
        path = path_without_slash(path);
    for (; rule < built_in; rule++)
        if (has_method(rule, method) && (rule->path.n == 0 || path_matches(rule->pattern, path)) &&
            (rule->host.n == 0 || host_matches(rule->host, host)))
            return rule;
    return built_in;
}

static bool covers_methods(const struct rule *a, const struct rule *b)
{
    if (a->any_method)
        return true;
    for (unsigned i = 0; i < b->method_count; i++)
        if (!has_method(a, b->methods[i]))
            return false;
    return !b->any_method;
}

static bool has_star(struct slice pattern)
{
    return memchr(pattern.p, '*', pattern.n) != NULL;
}

/* A pattern for /v1 and its subtree covers "/v1" and every pattern that starts with "/v1/". */
static bool covers_tree(struct slice a, struct slice b)
{
    if (a.n < 3 || memcmp(a.p + a.n - 3, "/**", 3) != 0)
        return false;
    struct slice top = {a.p, a.n - 3};
    return !has_star(top) && slice_starts_with(b, top) && (b.n == top.n || b.p[top.n] == '/');
}

static bool covers_path(struct slice a, struct slice b)
{
    if (a.n == 0 || slice_equal(a, b))
        return true;
    return b.n > 0 && (covers_tree(a, b) || (!has_star(b) && path_matches(a, b)));
}

static bool covers_host(struct slice a, struct slice b)
{
    if (a.n == 0 || slice_equal_nocase(a, b))
        return true;
    /* host_matches() treats "*.a.example" as a name below "*.example". */
    return b.n > 0 && host_matches(a, b);
}

bool rule_covers(const struct rule *a, const struct rule *b)
{
    return covers_methods(a, b) && covers_path(a->pattern, b->pattern) && covers_host(a->host, b->host);
}

/* --- cost --- */

bool rule_cost_of(const struct rule *rule, bool peer_trusted, const struct fields *fields, int64_t *cost,
                  const char **why)
{
    const struct field *field;
    uint64_t value;

    *cost = 0;
    if (!rule->cost_request || !peer_trusted ||
        !(field = fields_next_named(fields, slice_of(rule->cost_request), NULL)))
        return true;
    if (fields_next_named(fields, slice_of(rule->cost_request), field)) {
        *why = "the cost header comes twice";
        return false;
    }
    if (!slice_to_u64(field->value, INT64_MAX, &value) || value == 0) {
        *why = "the cost header is not a whole number of 1 or more";
        return false;
    }
    *cost = (int64_t)value < rule->cost_max ? (int64_t)value : rule->cost_max;
    return true;
}

int64_t rule_cost_learnt(const struct rule *rule, const struct fields *fields)
{
    const struct field *field =
        rule->cost_response ? fields_next_named(fields, slice_of(rule->cost_response), NULL) : NULL;
    uint64_t value;

    if (!field || fields_next_named(fields, slice_of(rule->cost_response), field) ||
        !slice_to_u64(field->value, INT64_MAX, &value))
        return -1;
    return value < COST_LEARNT_MAX ? (int64_t)value : COST_LEARNT_MAX;
}
