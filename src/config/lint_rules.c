/* lint_rules.c - warns about unmatchable paths, unreachable rules and unlimited requests, and about
 * clients whose own limit is below the cost of a request. */
#include "config/lint.h"

/* ---- rules ----------------------------------------------------------------------------------- */

/* Returns a segment in another router's wildcard syntax; empty: none. Recognizes {id} (OpenAPI),
 * :id (Express), <id> (Flask), and .* and (a|b) (regular expressions). */
static struct slice foreign_segment(struct slice path)
{
    for (size_t i = 1, end; i < path.n; i = end + 1) {
        const char *slash = memchr(path.p + i, '/', path.n - i);
        end = slash ? (size_t)(slash - path.p) : path.n;
        struct slice segment = {path.p + i, end - i};
        char first = segment.n > 1 ? segment.p[0] : 0,
             last = segment.n > 1 ? segment.p[segment.n - 1] : 0;
        if ((first == '{' && last == '}') || first == ':' || (first == '<' && last == '>') ||
            (segment.n > 1 && memmem(segment.p, segment.n, ".*", 2)) ||
            (segment.n > 1 && memchr(segment.p, '|', segment.n)))
            return segment;
    }
    return SLICE_NONE;
}

/* Returns the first character that URIs contain only in encoded form (RFC 3986 section 2), and that
 * the normal form of a path does not decode; 0: none. */
static char encoded_character(struct slice path)
{
    size_t i = 0;

    while (i < path.n && !memchr("\"<>^`{|}", path.p[i], 8))
        i++;
    return i < path.n ? path.p[i] : 0;
}

static void warn_of_path(struct loading *l, const struct node *rule)
{
    const struct node *path = node_find(node_find(rule, "match"), "path");
    struct slice text = path && path->kind == NODE_SCALAR ? path->text : SLICE_NONE;
    struct slice segment = foreign_segment(text);
    char encoded = segment.n ? 0 : encoded_character(text);

    if (segment.n)
        warning(l, path,
                "%s is not a wildcard; * matches any segment, and /** at the end everything below",
                QUOTE(segment));
    if (encoded)
        warning(l, path,
                "most clients send %c as %%%02X, and such requests %s; * in its place matches both",
                encoded, (unsigned)encoded,
                l->policy->paths.ambiguous == AMBIGUOUS_REJECT ? "are refused as ambiguous"
                                                               : "do not match");
}

/* Returns an earlier rule that matches everything that `rule` matches; NULL: none. */
static const struct rule *rule_before(const struct policy *policy, const struct rule *rule)
{
    for (unsigned i = 0; i < rule->index; i++)
        if (rule_covers(&policy->rules[i], rule))
            return &policy->rules[i];
    return NULL;
}

/* Rules without limits should say so explicitly. */
static void warn_of_unlimited(struct loading *l, const struct node *node, const struct rule *rule)
{
    const struct node *limits = node_find(node, "limits");

    if (rule->limit_count || rule->unlimited)
        return;
    if (limits)
        warning(l, limits,
                "is empty, so requests of this rule are not limited; list limits, or write limits: "
                "none");
    else
        warning(l, node,
                "requests of this rule are not limited; list limits, or write limits: none");
}

static bool matches_everything(const struct rule *rule)
{
    return rule->any_method && rule->host.n == 0 && rule->criterion_count == 0 &&
           (rule->path.n == 0 || slice_equal(rule->path, SLICE("/**")));
}

static bool has_limit_for_rules(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (!policy->limits[i].in_descriptors)
            return true;
    return false;
}

/* For a policy without limits, `weir check` reports that instead. */
static void warn_of_unmatched(struct loading *l, const struct node *rules)
{
    const struct policy *policy = l->policy;

    for (unsigned i = 0; i + 1 < policy->rule_count; i++)
        if (matches_everything(&policy->rules[i]))
            return;
    if (policy->rule_count == 1 && has_limit_for_rules(policy))
        warning(l, rules ? rules : node_find(l->root, "limits"),
                "there are no rules, so no request is limited; add rules with limits");
    else if (policy->rule_count > 1)
        warning(l, rules,
                "requests that match no rule are not limited; add a last rule without match, with "
                "limits or limits: none");
}

/* Returns true if a request of the priority, of this cost, is never admitted by the limit. */
static bool never_admits(const struct limit *limit, const struct priority *priority, int64_t cost)
{
    struct limit_numbers numbers = limit_numbers_of(limit);
    int64_t whole = limit_whole(limit, &numbers);

    return cost <= whole && whole - share_reserve(whole, priority->share) < cost;
}

/* A priority that changes nothing, and one whose share of a small limit is less than a request. */
static void warn_of_priority(struct loading *l, const struct node *item, const struct rule *rule)
{
    const struct priority *priority = policy_priority(l->policy, rule, NULL);
    const struct node *written = node_find(item, "priority");
    bool shared = false;

    for (unsigned i = 0; priority && i < rule->limit_count; i++) {
        const struct limit *limit = rule->limits[i];
        int64_t cost = limit->kind == LIMIT_CONCURRENCY ? limit->cost : rule_cost_in(rule, limit);
        shared |= limit->shared;
        if (!limit->shared ||
            !never_admits(limit, priority, rule_best_effort(rule, limit) ? 1 : cost))
            continue;
        warning(l, written ? written : item,
                "requests of priority %s are always rejected: a request costs %lld, more than its "
                "share of limit %s",
                priority->name, (long long)cost, limit->name);
    }
    if (rule->priority && !shared)
        warning(l, written,
                "has no effect: no limit of this rule is shared by several clients, such as one "
                "with per: all");
}

void warn_of_rules(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *list = node_find(l->root, "rules");
    const struct node *item = list ? list->first : NULL;

    warn_of_unmatched(l, list);
    if (policy->priority_count && policy->priorities[0].share < SHARE_WHOLE)
        warning(l, node_at(l, "priorities", policy->priorities[0].name),
                "no priority may use a whole limit; give the highest one 100%%");
    for (unsigned i = 0; item && i + 1 < policy->rule_count; i++, item = item->next) {
        const struct rule *before = rule_before(policy, &policy->rules[i]);
        warn_of_path(l, item);
        warn_of_match(l, item, &policy->rules[i]);
        warn_of_priority(l, item, &policy->rules[i]);
        if (before)
            warning(l, item,
                    "no request reaches this rule: the rule at line %u matches all of its requests",
                    before->position.line);
        else
            warn_of_unlimited(l, item, &policy->rules[i]);
    }
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Returns the highest fixed cost of a request per limit. */
static int64_t *highest_costs(struct loading *l)
{
    const struct policy *policy = l->policy;
    int64_t *highest = arena_zeroed(&l->scratch, policy->limit_count, sizeof *highest);

    for (unsigned i = 0; i < policy->rule_count; i++)
        for (unsigned j = 0; j < policy->rules[i].limit_count; j++) {
            const struct rule *rule = &policy->rules[i];
            const struct limit *limit = rule->limits[j];
            int64_t cost = rule_cost_in(rule, limit);
            if (!rule_best_effort(rule, limit) && limit->kind != LIMIT_CONCURRENCY &&
                cost > highest[limit->index])
                highest[limit->index] = cost;
        }
    return highest;
}

static void warn_of_numbers(struct loading *l, const int64_t *highest,
                            const struct limit_numbers *numbers, const char *section,
                            const char *name, struct position position)
{
    char text[256];

    for (unsigned i = 0; numbers && i < l->policy->limit_count; i++) {
        const struct limit *limit = &l->policy->limits[i];
        int64_t capacity = limit_capacity(limit, &numbers[i]);
        if (highest[i] <= capacity)
            continue;
        snprintf(text, sizeof text,
                 "%s.%s: a request may cost %lld, and limit %s holds %lld: it is always rejected",
                 section, name, (long long)highest[i], limit->name, (long long)capacity);
        report_line_add(l->report, true, position, text);
        return;
    }
}

/* A server with health checks of gRPC sends gRPC messages, which weir does not read. */
static void warn_of_unread_usage(struct loading *l)
{
    const struct node *item = first_in_section(l, "rules");

    for (unsigned i = 0; item && i + 1 < l->policy->rule_count; i++, item = item->next) {
        const struct rule *rule = &l->policy->rules[i];
        if (rule->usage_paths && rule->upstream && rule->upstream->health.grpc)
            warning(l, item,
                    "upstream %s speaks gRPC, whose responses have no usage that weir can read: "
                    "requests cost the reserve of the limit",
                    rule->upstream->name);
    }
}

void warn_of_costs(struct loading *l)
{
    const struct policy *policy = l->policy;
    const int64_t *highest = highest_costs(l);

    warn_of_unread_usage(l);
    for (unsigned i = 0; i < policy->plan_count; i++)
        warn_of_numbers(l, highest, policy->plans[i].numbers, "plans", policy->plans[i].name,
                        policy->plans[i].position);
    for (unsigned i = 0; i < clients_count(policy->clients); i++) {
        const struct client_limits *client_limits = &clients_at(policy->clients, i)->client_limits;
        bool as_in_plan = client_limits->plan && client_limits->plan->numbers &&
                          client_limits->numbers &&
                          memcmp(client_limits->plan->numbers, client_limits->numbers,
                                 policy->limit_count * sizeof *client_limits->numbers) == 0;
        if (client_limits->quota == QUOTA_AS_WRITTEN && !as_in_plan)
            warn_of_numbers(l, highest, client_limits->numbers, "clients", client_limits->name,
                            client_limits->position);
    }
}
