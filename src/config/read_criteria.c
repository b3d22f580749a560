/* read_criteria.c - header, query, client and scheme of rules[].match. */
#include "config/sections.h"
#include "http/chars.h"
#include "policy/criteria.h"
#include "policy/identity.h"

static const struct criterion *criterion_of(const struct rule *rule, enum criterion_kind kind)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (rule->criteria[i]->kind == kind)
            return rule->criteria[i];
    return NULL;
}

bool rule_has_header(const void *rule)
{
    return criterion_of(rule, CRITERION_HEADER) != NULL;
}

bool rule_has_query(const void *rule)
{
    return criterion_of(rule, CRITERION_QUERY) != NULL;
}

bool rule_has_client(const void *rule)
{
    return criterion_of(rule, CRITERION_CLIENT) != NULL;
}

bool rule_has_scheme(const void *rule)
{
    return criterion_of(rule, CRITERION_SCHEME) != NULL;
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

static bool value_is_good(struct loading *l, const struct node *item)
{
    bool good = !item->broken && expect_scalar(l, item, "a value such as gold or gold-*") &&
                text_fits(l, item, 0, CRITERION_VALUE_MAX);

    if (good && slice_has_control_bytes(item->text)) {
        mistake(l, item, "%s contains control bytes", QUOTE(item->text));
        return false;
    }
    return good;
}

/* Reads a scalar or a list of them into criterion->patterns. */
static void read_patterns(struct loading *l, const struct node *node, unsigned max,
                          const char *what,
                          bool (*is_good)(struct loading *l, const struct node *item),
                          struct criterion *criterion)
{
    unsigned count = list_count(node);

    if (node->kind == NODE_MAP || count < 1 || count > max) {
        mistake(l, node, "expected %s, or a list of 1 to %u", what, max);
        return;
    }
    criterion->patterns = arena_zeroed(l->arena, count, sizeof *criterion->patterns);
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        if (is_good(l, item))
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

static void print_unnamed(const struct printer *printer, const struct rule *rule,
                          enum criterion_kind kind)
{
    print_patterns(printer, criterion_of(rule, kind));
}

/* --- header and query --- */

/* Returns why rules cannot match on the field, or NULL. */
static const char *header_fault(struct slice name)
{
    if (!slice_is_token(name) || name.n > 128)
        return "is not a header name";
    switch (field_id_of(name)) {
    case FIELD_HOST: return "is matched by host";
    case FIELD_X_FORWARDED_PROTO: return "is matched by scheme";
    case FIELD_X_FORWARDED_FOR:
    case FIELD_PROXY_CLAIM:
    case FIELD_FORWARDED:
        return "is a proxy's, and anyone can send it; for addresses use client: ip:...";
    case FIELD_OTHER:
    case FIELD_CONTENT_TYPE:
    case FIELD_METHOD_OVERRIDE:
    case FIELD_REFERER:
    case FIELD_USER_AGENT:
    case FIELD_X_CLIENT_ID: return NULL;
    default: return "is set, changed or dropped by weir, so rules cannot match on it";
    }
}

/* Characters that servers decode or split names at are excluded, so that names are compared
 * alike. */
static const char *parameter_fault(struct slice name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] <= ' ' || name.p[i] > '~' || strchr("%&+;=#\"<>", name.p[i]))
            return "is not a parameter name; use printable ASCII without %, &, +, ; and =";
    return name.n == 0 || name.n > 128 ? "is not a parameter name; use 1 to 128 bytes" : NULL;
}

static const struct named_kind {
    const char *expected, *item;
    const char *(*fault)(struct slice name);
} named_kinds[] = {
    [CRITERION_HEADER] = {"a map of headers and values, such as { X-Plan: gold }", "a value",
                          header_fault},
    [CRITERION_QUERY] = {"a map of parameters and values, such as { format: csv }", "a value",
                         parameter_fault},
};

static bool is_named_before(const struct rule *rule, const struct criterion *made)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (rule->criteria[i]->kind == made->kind &&
            slice_equal_nocase(rule->criteria[i]->name, made->name))
            return true;
    return false;
}

static void read_one(struct loading *l, const struct node *node, enum criterion_kind kind,
                     struct rule *rule)
{
    const char *fault = named_kinds[kind].fault(node->key);
    struct criterion *made = arena_zeroed(l->arena, 1, sizeof *made);

    made->kind = kind;
    made->name = (struct slice){arena_text(l->arena, node->key), node->key.n};
    if (fault)
        mistake_of_key(l, node, "%s %s", QUOTE(node->key), fault);
    else if (is_named_before(rule, made))
        mistake_of_key(l, node, "%s is listed twice", QUOTE(node->key));
    else if (!node->broken) {
        read_patterns(l, node, CRITERION_VALUES_MAX, named_kinds[kind].item, value_is_good, made);
        add_criterion(l, rule, made);
    }
}

static void read_named(struct loading *l, const struct option *option, const struct node *node,
                       enum criterion_kind kind, struct rule *rule)
{
    if (node->kind != NODE_MAP || node->count > (unsigned)option->high) {
        mistake(l, node, "expected %s; at most %d", named_kinds[kind].expected, (int)option->high);
        return;
    }
    for (const struct node *child = node->first; child; child = child->next)
        read_one(l, child, kind, rule);
}

static void print_named(const struct printer *printer, const struct rule *rule,
                        enum criterion_kind kind)
{
    fputc('\n', printer->out);
    for (unsigned i = 0; i < rule->criterion_count; i++) {
        struct printer below = printer_below(printer);
        if (rule->criteria[i]->kind != kind)
            continue;
        print_key(&below, rule->criteria[i]->name);
        print_patterns(&below, rule->criteria[i]);
    }
}

static void read_header(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    read_named(l, option, node, CRITERION_HEADER, field);
}

static void print_header(const struct printer *printer, const struct option *option,
                         const void *field)
{
    (void)option;
    print_named(printer, field, CRITERION_HEADER);
}

const struct option_type type_match_header = {"map by name", read_header, print_header, false, 0};

static void read_query(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    read_named(l, option, node, CRITERION_QUERY, field);
}

static void print_query(const struct printer *printer, const struct option *option,
                        const void *field)
{
    (void)option;
    print_named(printer, field, CRITERION_QUERY);
}

const struct option_type type_match_query = {"map by name", read_query, print_query, false, 0};

/* --- client --- */

static bool client_is_good(struct loading *l, const struct node *item)
{
    struct identity identity;
    struct ip_range range;
    const char *why;

    if (item->broken || !expect_scalar(l, item, "a client such as partner or \"ip:10.0.0.0/8\""))
        return false;
    struct slice text = item->text, address = {text.p + 3, text.n - 3};
    bool is_address = slice_starts_with(text, SLICE("ip:"));
    if (is_address ? slice_equal(address, SLICE("unix")) || ip_range_parse(address, &range, &why)
                   : identity_parse(&l->policy->identity, text, &identity, &why))
        return true;
    mistake(l, item, "%s is not a client: %s", QUOTE(text), why);
    return false;
}

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

static void read_client(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct criterion *made = arena_zeroed(l->arena, 1, sizeof *made);

    made->kind = CRITERION_CLIENT;
    read_patterns(l, node, (unsigned)option->high, "a client such as partner or \"ip:10.0.0.0/8\"",
                  client_is_good, made);
    made->clients = arena_zeroed(l->arena, made->count, sizeof *made->clients);
    for (unsigned i = 0; i < made->count; i++)
        made->clients[i] = client_pattern(l, &made->patterns[i]);
    l->policy->rules_have_clients = true;
    add_criterion(l, field, made);
}

static void print_client(const struct printer *printer, const struct option *option,
                         const void *field)
{
    (void)option;
    print_unnamed(printer, field, CRITERION_CLIENT);
}

const struct option_type type_match_client = {"client or list", read_client, print_client, false,
                                              0};

/* --- scheme --- */

static bool scheme_is_good(struct loading *l, const struct node *item)
{
    if (item->broken || !expect_scalar(l, item, "http or https"))
        return false;
    if (slice_equal(item->text, SLICE("http")) || slice_equal(item->text, SLICE("https")))
        return true;
    mistake(l, item, "%s is unknown; expected http or https", QUOTE(item->text));
    return false;
}

static void read_scheme(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct criterion *made = arena_zeroed(l->arena, 1, sizeof *made);

    made->kind = CRITERION_SCHEME;
    read_patterns(l, node, (unsigned)option->high, "http or https", scheme_is_good, made);
    add_criterion(l, field, made);
}

static void print_scheme(const struct printer *printer, const struct option *option,
                         const void *field)
{
    (void)option;
    print_unnamed(printer, field, CRITERION_SCHEME);
}

const struct option_type type_match_scheme = {"http or https", read_scheme, print_scheme, false, 0};
