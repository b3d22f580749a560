/* read_criteria.c - the conditions of rules[].match that have a row in policy/criteria.c. */
#include "config/sections.h"
#include "policy/criteria.h"
#include "policy/identity.h"

static const struct criterion *criterion_of(const struct rule *rule,
                                            const struct criterion_kind *kind)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (rule->criteria[i]->kind == kind)
            return rule->criteria[i];
    return NULL;
}

bool rule_has_criterion(const void *rule, const char *key)
{
    return criterion_of(rule, criterion_kind(key)) != NULL;
}

/* --- collection --- */

/* Returns the policy's criterion equal to `made`, adding it if there is none. */
static const struct criterion *shared(struct policy *policy, struct criterion *made)
{
    for (unsigned i = 0; i < policy->criterion_count; i++)
        if (criterion_equal(policy->criteria[i], made))
            return policy->criteria[i];
    made->index = policy->criterion_count;
    policy->criteria[policy->criterion_count++] = made;
    return made;
}

static void add_criterion(struct loading *l, struct rule *rule, struct criterion *made)
{
    if (!rule->criteria)
        rule->criteria =
            arena_zeroed(l->arena, CRITERIA_PER_RULE_MAX, sizeof(const struct criterion *));
    rule->criteria[rule->criterion_count++] = shared(l->policy, made);
}

static struct criterion *new_criterion(struct loading *l, const struct criterion_kind *kind)
{
    struct criterion *made = arena_zeroed(l->arena, 1, sizeof *made);

    made->kind = kind;
    return made;
}

/* --- values --- */

static bool client_is_good(struct loading *l, const struct node *item)
{
    struct identity identity;
    struct ip_range range;
    const char *why;
    struct slice text = item->text, address = {text.p + 3, text.n - 3};
    bool is_address = slice_starts_with(text, SLICE("ip:"));

    if (is_address ? slice_equal(address, SLICE("unix")) || ip_range_parse(address, &range, &why)
                   : identity_parse(&l->policy->identity, text, &identity, &why))
        return true;
    mistake(l, item, "%s is not a client: %s", QUOTE(text), why);
    return false;
}

static bool value_is_good(struct loading *l, const struct node *item,
                          const struct criterion_kind *kind)
{
    if (item->broken || !expect_scalar(l, item, kind->value))
        return false;
    if (kind->is_client)
        return client_is_good(l, item);
    if (!text_fits(l, item, 0, CRITERION_VALUE_MAX))
        return false;
    const char *fault = kind->value_fault(item->text);
    if (fault)
        mistake(l, item, "%s %s", QUOTE(item->text), fault);
    return !fault;
}

/* Reads a scalar or a list of them into criterion->patterns. */
static void read_patterns(struct loading *l, const struct node *node, unsigned max,
                          struct criterion *criterion)
{
    unsigned count = list_count(node);

    if (node->kind == NODE_MAP || count < 1 || count > max) {
        mistake(l, node, "expected %s, or a list of 1 to %u", criterion->kind->value, max);
        return;
    }
    criterion->patterns = arena_zeroed(l->arena, count, sizeof *criterion->patterns);
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        if (value_is_good(l, item, criterion->kind))
            criterion->patterns[criterion->count++] =
                (struct slice){keep_text(l, item), item->text.n};
}

static void print_pattern(FILE *out, const void *criterion, unsigned index)
{
    print_scalar(out, ((const struct criterion *)criterion)->patterns[index]);
}

static void print_patterns(const struct printer *printer, const struct criterion *criterion)
{
    print_items(printer, criterion->count, print_pattern, criterion);
}

static void read_values(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct criterion *made = new_criterion(l, criterion_kind(option_key(option)));

    read_patterns(l, node, (unsigned)option->high, made);
    add_criterion(l, field, made);
}

static void print_values(const struct printer *printer, const struct option *option,
                         const void *field)
{
    print_patterns(printer, criterion_of(field, criterion_kind(option_key(option))));
}

const struct option_type type_match_values = {"value or list", read_values, print_values, false, 0};

/* --- clients --- */

/* `*name` has passed client_is_good(); it becomes a name without secrets. */
static struct client_pattern client_pattern(struct loading *l, struct slice *name)
{
    struct client_pattern pattern = {.identity = SLICE_NONE};
    struct slice address = {name->p + 3, name->n - 3};
    struct identity identity;
    const char *why;

    if (slice_starts_with(*name, SLICE("ip:"))) {
        pattern.unix_peers = !ip_range_parse(address, &pattern.range, &why);
    } else if (identity_parse(&l->policy->identity, *name, &identity, &why)) {
        pattern.identity =
            (struct slice){arena_text(l->arena, identity_text(&identity)), identity.size};
        *name = slice_of(client_printed_name(l, pattern.identity));
    }
    return pattern;
}

static void read_clients(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct criterion *made = new_criterion(l, criterion_kind(option_key(option)));

    read_patterns(l, node, (unsigned)option->high, made);
    made->clients = arena_zeroed(l->arena, made->count, sizeof *made->clients);
    for (unsigned i = 0; i < made->count; i++)
        made->clients[i] = client_pattern(l, &made->patterns[i]);
    l->policy->rules_have_clients = true;
    add_criterion(l, field, made);
}

const struct option_type type_match_clients = {"client or list", read_clients, print_values, false,
                                               0};

/* --- values by name --- */

static bool is_named_before(const struct rule *rule, const struct criterion *made)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (rule->criteria[i]->kind == made->kind &&
            slice_equal_nocase(rule->criteria[i]->name, made->name))
            return true;
    return false;
}

static void read_one(struct loading *l, const struct node *node, const struct criterion_kind *kind,
                     struct rule *rule)
{
    const char *fault = kind->name_fault(node->key);
    struct criterion *made = new_criterion(l, kind);

    made->name = (struct slice){arena_text(l->arena, node->key), node->key.n};
    if (fault)
        mistake_of_key(l, node, "%s %s", QUOTE(node->key), fault);
    else if (is_named_before(rule, made))
        mistake_of_key(l, node, "%s is listed twice", QUOTE(node->key));
    else if (!node->broken) {
        read_patterns(l, node, CRITERION_VALUES_MAX, made);
        add_criterion(l, rule, made);
    }
}

static void read_named(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    const struct criterion_kind *kind = criterion_kind(option_key(option));

    if (node->kind != NODE_MAP || node->count > (unsigned)option->high) {
        mistake(l, node, "expected %s; at most %d", kind->map, (int)option->high);
        return;
    }
    for (const struct node *child = node->first; child; child = child->next)
        read_one(l, child, kind, field);
}

static void print_named(const struct printer *printer, const struct option *option,
                        const void *field)
{
    const struct criterion_kind *kind = criterion_kind(option_key(option));
    const struct rule *rule = field;

    fputc('\n', printer->out);
    for (unsigned i = 0; i < rule->criterion_count; i++) {
        struct printer below = printer_below(printer);
        if (rule->criteria[i]->kind != kind)
            continue;
        print_key(&below, rule->criteria[i]->name);
        print_patterns(&below, rule->criteria[i]);
    }
}

const struct option_type type_match_named = {"map by name", read_named, print_named, false, 0};
