/* read_match.c - path, host and methods of rules[].match. */
#include "config/sections.h"
#include "http/path.h"

bool rule_has_path(const void *rule)
{
    return ((const struct rule *)rule)->path.n > 0;
}

bool rule_has_host(const void *rule)
{
    return ((const struct rule *)rule)->host.n > 0;
}

bool rule_has_methods(const void *rule)
{
    return ((const struct rule *)rule)->method_count > 0;
}

bool rule_has_match(const void *rule)
{
    return rule_has_path(rule) || rule_has_host(rule) || rule_has_methods(rule) ||
           ((const struct rule *)rule)->criterion_count > 0;
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
    if (memchr(path.p, '?', path.n) || memchr(path.p, '#', path.n))
        return "may hold no query; write match: { query: { NAME: VALUE } }";
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

static void read_path(struct loading *l, const struct option *option, const struct node *node,
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

const struct option_type type_path_pattern = {"path", read_path, print_slice, false,
                                              sizeof(struct slice)};

static bool host_byte(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~:[]", c));
}

static bool host_is_good(struct slice host)
{
    struct slice name =
        slice_starts_with(host, SLICE("*.")) ? (struct slice){host.p + 2, host.n - 2} : host;
    for (size_t i = 0; i < name.n; i++)
        if (!host_byte(name.p[i]))
            return false;
    /* A colon is allowed only in an IPv6 literal; ports are not matched. */
    return name.n > 0 && (name.p[0] == '[' || !memchr(name.p, ':', name.n)) &&
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
    if (item->broken || !expect_scalar(l, item, "a method such as POST"))
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
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        rule->method_count += read_method(l, item, &methods[rule->method_count]);
    rule->methods = methods;
}

static void print_method(FILE *out, const void *rule, unsigned index)
{
    print_scalar(out, ((const struct rule *)rule)->methods[index]);
}

static void print_methods(const struct printer *printer, const struct option *option,
                          const void *field)
{
    (void)option;
    print_items(printer, ((const struct rule *)field)->method_count, print_method, field);
}

const struct option_type type_methods = {"list of methods", read_methods, print_methods, false, 0};
