/* lint_rules.c - warns about unmatchable paths, unreachable rules and unlimited requests. */
#include "config/lint.h"

/* Returns a segment in another router's wildcard syntax; empty: none. Recognizes {id} (OpenAPI),
 * :id (Express), <id> (Flask) and .* (regular expressions). */
static struct slice foreign_segment(struct slice path)
{
    for (size_t i = 1, end; i < path.n; i = end + 1) {
        const char *slash = memchr(path.p + i, '/', path.n - i);
        end = slash ? (size_t)(slash - path.p) : path.n;
        struct slice segment = {path.p + i, end - i};
        char first = segment.n > 1 ? segment.p[0] : 0,
             last = segment.n > 1 ? segment.p[segment.n - 1] : 0;
        if ((first == '{' && last == '}') || first == ':' || (first == '<' && last == '>') ||
            (segment.n > 1 && memmem(segment.p, segment.n, ".*", 2)))
            return segment;
    }
    return SLICE_NONE;
}

static void warn_of_path(struct loading *l, const struct node *rule)
{
    const struct node *match = node_find(rule, "match"),
                      *path = match ? node_find(match, "path") : NULL;
    struct slice segment =
        path && path->kind == NODE_SCALAR ? foreign_segment(path->text) : SLICE_NONE;

    if (segment.n)
        warning(l, path,
                "%s is not a wildcard; * matches any segment, and /** at the end everything below",
                QUOTE(segment));
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

/* For a policy without limits, `weir check` reports that instead. */
static void warn_of_unmatched(struct loading *l, const struct node *rules)
{
    const struct policy *policy = l->policy;

    for (unsigned i = 0; i + 1 < policy->rule_count; i++)
        if (matches_everything(&policy->rules[i]))
            return;
    if (policy->rule_count == 1 && policy->limit_count)
        warning(l, rules ? rules : node_find(l->root, "limits"),
                "there are no rules, so no request is limited; add rules with limits");
    else if (policy->rule_count > 1)
        warning(l, rules,
                "requests that match no rule are not limited; add a last rule without match, with "
                "limits or limits: none");
}

void warn_of_rules(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *list = node_find(l->root, "rules");
    const struct node *item = list ? list->first : NULL;

    warn_of_unmatched(l, list);
    for (unsigned i = 0; item && i + 1 < policy->rule_count; i++, item = item->next) {
        const struct rule *before = rule_before(policy, &policy->rules[i]);
        warn_of_path(l, item);
        warn_of_match(l, item, &policy->rules[i]);
        if (before)
            warning(l, item,
                    "no request reaches this rule: the rule at line %u matches all of its requests",
                    before->position.line);
        else
            warn_of_unlimited(l, item, &policy->rules[i]);
    }
}
