/* read_match.c - section rules[].match. */
#include "config/sections.h"
#include "http/path.h"
#include "policy/criteria.h"

/* ---- path, host, methods --------------------------------------------------------------------- */

bool rule_has_match(const void *rule)
{
    const struct rule *r = rule;
    return r->path.n || r->host.n || r->method_count || r->criterion_count;
}

/* "**" matches a subtree only as the last segment (http/path.h); elsewhere it acts like "*". */
static const char *path_fault(struct slice path)
{
    const char *stars = memmem(path.p, path.n, "**", 2);

    if (path.n == 1 && path.p[0] == '*')
        return NULL;
    if (path.p[0] == '^' || path.p[0] == '~')
        return "is not a path; a pattern has * and /**, and is no regular expression";
    if (path.p[0] != '/')
        return "must start with \"/\"";
    if (stars && !(stars == path.p + path.n - 2 && stars[-1] == '/'))
        return "may hold \"**\" only as its last segment, as in /v1/**";
    if (memchr(path.p, '?', path.n))
        return "may hold no query; write match: { query: { NAME: VALUE } }";
    if (memchr(path.p, '#', path.n))
        return "may hold no fragment: clients do not send what follows \"#\"";
    if (slice_has_control_bytes(path))
        return "contains control bytes";
    if (path_has_dot_segments(path))
        return "holds a segment \".\" or \"..\": paths are matched without them";
    if (memmem(path.p, path.n, "//", 2))
        return "holds an empty segment: servers read repeated slashes as one";
    return NULL;
}

/* Rejects a pattern that is not in normal form, since it would silently match nothing. */
static bool path_is_normal(struct loading *l, const struct node *node)
{
    char room[RULE_NAME_MAX];
    struct text out = text_over(room, sizeof room);
    if (!path_normalise(node->text, &out))
        mistake(l, node, "%s has an invalid percent code; write %%25 for a percent sign",
                QUOTE(node->text));
    else if (!slice_equal(node->text, text_slice(&out)))
        mistake(l, node, "%s is not in normal form; write \"%.*s\"", QUOTE(node->text),
                SLICE_ARG(text_slice(&out)));
    else
        return true;
    return false;
}

static void read_match_path(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    if (!expect_text(l, option, node, "a path such as /v1/**"))
        return;
    const char *fault = path_fault(node->text);
    if (fault)
        mistake(l, node, "%s %s", QUOTE(node->text), fault);
    else if (path_is_normal(l, node))
        *(struct slice *)field = (struct slice){keep_text(l, node), node->text.n};
}

const struct option_type type_path_pattern = {"path", read_match_path, print_slice, false,
                                              sizeof(struct slice)};

static bool host_is_good(struct slice host)
{
    struct slice name =
        slice_starts_with(host, SLICE("*.")) ? (struct slice){host.p + 2, host.n - 2} : host;
    /* A colon is allowed only in an IPv6 literal; ports are not matched. */
    return name.n > 0 && slice_is_alnum_or(name, "-._~:[]") &&
           (name.p[0] == '[' || !memchr(name.p, ':', name.n)) &&
           (name.p[0] != '[' || name.p[name.n - 1] == ']');
}

static void read_host(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    if (!expect_text(l, option, node, "a host such as api.example.com or *.example.com"))
        return;
    if (!host_is_good(node->text))
        mistake(
            l, node,
            "%s is not a host pattern; expected api.example.com or *.example.com, without a port",
            QUOTE(node->text));
    else
        *(struct slice *)field = (struct slice){keep_text(l, node), node->text.n};
}

const struct option_type type_host_pattern = {"host", read_host, print_slice, false,
                                              sizeof(struct slice)};

/* Methods are case-sensitive (RFC 9110 section 9.1); all registered methods are in upper case. */
static bool read_method(struct loading *l, const struct node *item, struct slice *method)
{
    if (!expect_scalar(l, item, "a method such as POST"))
        return false;
    bool good = slice_is_token(item->text) && item->text.n <= 32;
    for (size_t i = 0; i < item->text.n; i++)
        good &= !(item->text.p[i] >= 'a' && item->text.p[i] <= 'z');
    if (!good)
        mistake(l, item, "%s is not a method; expected capital letters, such as POST",
                QUOTE(item->text));
    *method = (struct slice){keep_text(l, item), item->text.n};
    return good;
}

static void read_methods(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct rule *rule = field;
    unsigned count = list_count(node);

    if (!expect_items(l, option, node, "methods"))
        return;
    struct slice *methods = arena_zeroed(l->arena, count, sizeof *methods);
    EACH_ITEM (item, node)
        rule->method_count += read_method(l, item, &methods[rule->method_count]);
    rule->methods = methods;
}

static void print_method(FILE *out, const void *rule, unsigned index)
{
    print_scalar(out, ((const struct rule *)rule)->methods[index]);
}

PRINT_ITEMS(print_methods, rule, method_count, print_method)

const struct option_type type_methods = {"list of methods", read_methods, print_methods, false, 0};

/* ---- conditions that have a row in policy/criteria.c ----------------------------------------- */

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

/* Those that need the content are last: it is not read for a rule that others exclude. */
static void add_criterion(struct loading *l, struct rule *rule, struct criterion *made)
{
    unsigned at = rule->criterion_count++;

    if (!rule->criteria)
        rule->criteria =
            arena_zeroed(l->arena, CRITERIA_PER_RULE_MAX, sizeof(const struct criterion *));
    for (; !made->kind->is_json && at > 0 && rule->criteria[at - 1]->kind->is_json; at--)
        rule->criteria[at] = rule->criteria[at - 1];
    rule->criteria[at] = shared(l->policy, made);
}

static struct criterion *new_criterion(struct loading *l, const struct criterion_kind *kind)
{
    struct criterion *made = arena_zeroed(l->arena, 1, sizeof *made);

    made->kind = kind;
    return made;
}

/* --- values --- */

static bool value_is_good(struct loading *l, const struct node *item,
                          const struct criterion_kind *kind)
{
    if (!expect_scalar(l, item, kind->value))
        return false;
    if (kind->is_client)
        return true;
    if (!text_fits(l, item, 0, CRITERION_VALUE_MAX))
        return false;
    const char *fault = kind->value_fault(item->text);
    if (fault)
        mistake(l, item, "%s %s", QUOTE(item->text), fault);
    return !fault;
}

static bool is_json_word(struct slice text)
{
    uint64_t integer;

    return slice_equal(text, SLICE("true")) || slice_equal(text, SLICE("false")) ||
           (slice_to_u64(text, JSON_INTEGER_MAX, &integer) && (text.n == 1 || text.p[0] != '0'));
}

/* Returns the pattern in the form of json_values_text(). */
static struct slice json_pattern(struct loading *l, const struct node *item)
{
    bool marked = item->quoted
                      ? item->text.n && item->text.p[0] == '='
                      : is_json_word(item->text) || (item->text.n && item->text.p[0] == '=');
    char *room = arena_zeroed(l->arena, item->text.n + 2, 1);
    struct text out = text_over(room, item->text.n + 1);

    if (marked)
        text_char(&out, '=');
    text_put(&out, item->text);
    return text_slice(&out);
}

static void print_json_pattern(FILE *out, struct slice pattern)
{
    bool typed;
    struct slice text = criterion_json_pattern(pattern, &typed);

    if (typed)
        fprintf(out, "%.*s", SLICE_ARG(text));
    else
        print_scalar(out, text); /* with quotes if it looks like another type */
}

/* Reads a value at an index of criterion->patterns. Returns false after reporting an error. */
static bool read_pattern(struct loading *l, const struct node *item, struct criterion *criterion,
                         unsigned index)
{
    struct slice *pattern = &criterion->patterns[index];

    if (!value_is_good(l, item, criterion->kind))
        return false;
    if (criterion->kind->is_json)
        *pattern = json_pattern(l, item);
    else if (!criterion->kind->is_client)
        *pattern = (struct slice){keep_text(l, item), item->text.n};
    else if (client_name_read(l, item, false, &criterion->clients[index]))
        *pattern = slice_of(client_printed_name(l, item->text, &criterion->clients[index]));
    return pattern->p != NULL;
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
    if (criterion->kind->is_client)
        criterion->clients = arena_zeroed(l->arena, count, sizeof *criterion->clients);
    EACH_ITEM (item, node)
        criterion->count += read_pattern(l, item, criterion, criterion->count);
}

static void print_pattern(FILE *out, const void *criterion, unsigned index)
{
    const struct criterion *printed = criterion;

    if (printed->kind->is_json)
        print_json_pattern(out, printed->patterns[index]);
    else
        print_scalar(out, printed->patterns[index]);
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
    l->policy->rules_have_clients |= made->kind->is_client;
    add_criterion(l, field, made);
}

static void print_values(const struct printer *printer, const void *field)
{
    print_patterns(printer, criterion_of(field, criterion_kind(option_key(printer->option))));
}

const struct option_type type_match_values = {"value or list", read_values, print_values, false, 0};

/* The same for clients; they differ in their names for the manual. */
const struct option_type type_match_clients = {"client or list", read_values, print_values, false,
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

/* Adds the path of the criterion to those that are read before a rule is chosen. */
static void add_match_path(struct loading *l, const struct node *node, struct criterion *made)
{
    struct json_path *path = arena_zeroed(l->arena, 1, sizeof *path);
    struct policy *policy = l->policy;

    (void)json_path_parse(made->name, path);
    made->path = path;
    if (!policy->match_paths)
        policy->match_paths = arena_zeroed(l->arena, 1, sizeof *policy->match_paths);
    if (json_paths_add(policy->match_paths, path) < 0)
        mistake_of_key(l, node, "the rules match more than %d paths of JSON", JSON_PATHS_MAX);
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
        if (kind->is_json)
            add_match_path(l, node, made);
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

static void print_named(const struct printer *printer, const void *field)
{
    const struct criterion_kind *kind = criterion_kind(option_key(printer->option));
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
