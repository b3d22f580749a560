/* read_rules.c - section rules: the limits of each request. */
#include "config/sections.h"
#include "policy/criteria.h"
#include "policy/rule_index.h"
#include "policy/shipped_limiter.h"

bool rule_has_cost(const void *rule)
{
    return ((const struct rule *)rule)->cost > 0 || ((const struct rule *)rule)->free;
}

/* --- limits, cost, upstream --- */

static void read_limit(struct loading *l, const struct node *item, struct rule *rule)
{
    const struct limit *limit = limit_in_list(l, item, rule->limits, rule->limit_count);

    if (!limit)
        return;
    rule->limits[rule->limit_count++] = limit;
    rule->adjusts |= limit->counted != NULL;
    rule_add_contents(l, item, rule, limit);
}

static void read_rule_limits(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct rule *rule = field;
    unsigned count = list_count(node);

    if (!expect_items(l, option, node, "limits, or none"))
        return;
    const struct node *only = count == 1 ? list_first(node) : NULL;
    if (only && only->kind == NODE_SCALAR && slice_equal(only->text, SLICE("none"))) {
        rule->unlimited = true;
        return;
    }
    rule->limits = arena_zeroed(l->arena, count, sizeof(const struct limit *));
    EACH_ITEM (item, node)
        read_limit(l, item, rule);
}

static void print_rule_limits(const struct printer *printer, const void *field)
{
    const struct rule *rule = field;

    if (rule->limit_count)
        print_items(printer, rule->limit_count, print_limit_name, rule->limits);
    else
        fputs(" none\n", printer->out);
}

const struct option_type type_rule_limits = {"list of limits", read_rule_limits, print_rule_limits,
                                             true, 0};

/* Reads rules[].cost as a map. */
static void read_cost_map(struct loading *l, const struct node *node, struct rule *rule)
{
    options_read(l, node, "rules[].cost", rule);
    bool request = cost_header_is_good(l, node, "request_header", rule->cost_request);
    bool response = cost_header_is_good(l, node, "response_header", rule->cost_response);

    cost_check_max(l, node, request ? rule->cost_request : NULL,
                   "request_header; add request_header");
    if (!request && !response && !node_find(node, "request_header") &&
        !node_find(node, "response_header"))
        mistake(l, node, "expected a number, or a map with request_header or response_header");
    rule->adjusts |= response;
}

static void read_rule_cost(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct rule *rule = CONTAINER_OF(field, struct rule, cost);

    if (node->kind == NODE_MAP)
        read_cost_map(l, node, rule);
    else {
        rule->cost = -1;
        type_number.read(l, option, node, field);
        rule->free = rule->cost == 0;
        rule->cost = rule->cost > 0 ? rule->cost : 0;
    }
}

static void print_rule_cost(const struct printer *printer, const void *field)
{
    const struct rule *rule =
        (const struct rule *)((const char *)field - offsetof(struct rule, cost));
    struct printer below = printer_below(printer);

    if (!rule->cost_request && !rule->cost_response) {
        type_number.print(printer, field);
        return;
    }
    fputc('\n', printer->out);
    options_print(&below, "rules[].cost", rule);
}

const struct option_type type_rule_cost = {"number or map", read_rule_cost, print_rule_cost, false,
                                           sizeof(int64_t)};

static void read_rule_upstream(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    struct rule *rule = field;

    (void)option;
    if (!expect_scalar(l, node, "an upstream's name"))
        return;
    int index = policy_index(l, node, false, upstream_at, "upstream");
    if (index >= 0)
        rule->upstream = &l->policy->upstreams[index];
}

static void print_rule_upstream(const struct printer *printer, const void *field)
{
    const struct rule *rule = field;
    print_scalar_value(printer, slice_of(rule->upstream->name));
}

const struct option_type type_rule_upstream = {"name", read_rule_upstream, print_rule_upstream,
                                               false, 0};

/* --- one rule --- */

static bool name_is_taken(const struct rule *rules, unsigned count, const char *name)
{
    if (strcmp(name, "(none)") == 0)
        return true; /* name of the built-in rule */
    for (unsigned i = 0; i < count; i++)
        if (strcmp(rules[i].name, name) == 0)
            return true;
    return false;
}

/* Counts earlier rules with this name, with or without a number after it. */
static unsigned namesakes(const struct rule *rules, unsigned count, const char *name)
{
    size_t n = strlen(name);
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++)
        found +=
            strncmp(rules[i].name, name, n) == 0 && (!rules[i].name[n] || rules[i].name[n] == '#');
    return found;
}

/* Writes `name`, "#" and the number. Truncates the name, between characters, to RULE_NAME_MAX. */
static void number_name(char out[static RULE_NAME_MAX + 1], const char *name, unsigned number)
{
    char suffix[16];
    size_t room = RULE_NAME_MAX - (size_t)snprintf(suffix, sizeof suffix, "#%u", number),
           n = strlen(name);

    for (n = n < room ? n : room; n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80;)
        n--;
    snprintf(out, RULE_NAME_MAX + 1, "%.*s%s", (int)n, name, suffix);
}

/* Names a rule: its `name`, else its path, else "*". Appends "#2" and so on to duplicates. */
static void name_rule(struct loading *l, struct rule *rule)
{
    const struct rule *earlier = l->policy->rules;
    const char *base = rule->name ? rule->name : rule->path.n ? rule->path.p : "*";
    char name[RULE_NAME_MAX + 1];

    snprintf(name, sizeof name, "%s", base);
    for (unsigned n = 1 + namesakes(earlier, rule->index, base);
         name_is_taken(earlier, rule->index, name); n++)
        number_name(name, base, n < 2 ? 2 : n);
    rule->name = arena_text(l->arena, slice_of(name));
}

static void check_rule_cost(struct loading *l, const struct node *node, const struct rule *rule)
{
    const struct node *cost = node_find(node, "cost");

    for (unsigned i = 0; i < rule->limit_count && cost; i++) {
        const struct limit *limit = rule->limits[i];
        struct limit_numbers numbers = limit_numbers_of(limit);
        int64_t capacity = limit_capacity(limit, &numbers);
        int64_t highest = rule->cost > rule->cost_max ? rule->cost : rule->cost_max;
        if (highest > SMALL_COST_MAX && !limit_counts_large(limit) && limit->script &&
            limit->kind != LIMIT_CONCURRENCY && !limit->own_cost)
            mistake(l, cost, "limit %s takes costs up to 1000000, as %s does", limit->name,
                    limit->script);
        if (capacity > 0 && rule->cost > capacity && !rule_best_effort(rule, limit) &&
            limit->kind != LIMIT_CONCURRENCY && !limit->own_cost)
            mistake(l, cost,
                    "a cost of %lld can never be admitted: limit %s admits at most %lld at once",
                    (long long)rule->cost, limit->name, (long long)capacity);
    }
}

/* Takes missing options of the rule's rejection from the policy. A document of weir instead of the
 * policy's body does not have the body's type. */
static void finish_rejection(struct loading *l, const struct node *node, struct rule *rule)
{
    struct rejection_settings own = rule->rejection;
    const struct node *written = node_find(node, "rejection");

    rule->has_rejection = written && written->count;
    rule->rejection = l->policy->rejection;
    if (own.status)
        rule->rejection.status = own.status;
    if (own.has_dialect) {
        rule->rejection.dialect = own.dialect;
        rule->rejection.body = NULL;
        rule->rejection.body_file = NULL;
    }
    if (own.content_type)
        rule->rejection.content_type = own.content_type;
    if (own.has_headers) {
        rule->rejection.headers = own.headers;
        rule->rejection.header_count = own.header_count;
        rule->rejection.header_lines = own.header_lines;
    }
    if (own.body || node_find(written, "body_file")) {
        if (own.body)
            rule->rejection.dialect = DIALECT_PROBLEM;
        rule->rejection.body_file = own.body_file;
        rule->rejection.body = own.body;
        rule->rejection.body_size = own.body_size;
        rule->rejection.pieces = own.pieces;
        rule->rejection.piece_count = own.piece_count;
    }
    if (l->policy->rejection.body && !rule->rejection.body && !own.content_type)
        rule->rejection.content_type = arena_text(l->arena, SLICE("application/problem+json"));
}

static void read_rule(struct loading *l, const struct node *item, struct rule *rule)
{
    const struct node *best_effort = node_find(item, "best_effort");

    rule->position = item->position;
    rule->has_best_effort = best_effort && !best_effort->null;
    if (!item->broken && item->null)
        mistake(l, item, "is empty; expected a map with limits");
    else if (expect_map(l, item, "a map with match and limits"))
        options_read(l, item, "rules[]", rule);
    rule->any_method = rule->method_count == 0;
    rule_set_pattern(rule, &l->policy->paths, arena_zeroed(l->arena, rule->path.n + 1, 1));
    l->policy->rules_have_paths |= rule->path.n > 0;
    l->policy->rules_have_hosts |= rule->host.n > 0;
    if (!rule->upstream && l->policy->upstream_count)
        rule->upstream = &l->policy->upstreams[0];
    name_rule(l, rule);
    check_rule_cost(l, item, rule);
    finish_rejection(l, item, rule);
}

/* Adds the rule for requests that no other rule matches. */
static void add_built_in(struct policy *policy)
{
    struct rule *rule = &policy->rules[policy->rule_count];
    rule->index = policy->rule_count++;
    rule->name = arena_text(policy->arena, SLICE("(none)"));
    rule->any_method = true;
    rule->upstream = policy->upstreams;
}

/* Fewer rules are searched faster one by one. */
enum { INDEXED_RULES_MIN = 12 };

static void read_rules(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct policy *policy = field;
    bool good = expect_list(l, node, "a list of rules");

    if (good && node->count > (unsigned)option->high) {
        mistake(l, node, "has %u rules; expected at most %d", node->count, (int)option->high);
        good = false;
    }
    unsigned count = good ? node->count : 0;
    policy->rules = arena_zeroed(l->arena, count + 1, sizeof *policy->rules);
    policy->criteria = arena_zeroed(l->arena, (size_t)count * CRITERIA_PER_RULE_MAX,
                                    sizeof(const struct criterion *));
    for (const struct node *item = good ? node->first : NULL; item; item = item->next) {
        struct rule *rule = &policy->rules[policy->rule_count];
        rule->index = policy->rule_count;
        read_rule(l, item, rule);
        policy->rule_count++;
    }
    add_built_in(policy);
    if (policy->rule_count > INDEXED_RULES_MIN)
        policy->rule_index = rule_index_new(l->arena, policy);
}

/* The last rule is the built-in one. */
PRINT_LIST(print_rules, policy, rules, rule_count - 1, "rules[]")

const struct option_type type_rules = {"list of rules", read_rules, print_rules, true, 0};
