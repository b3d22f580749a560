/* options.c - reads and prints sections according to the option table. */
#include "config/options.h"

#include <string.h>

#include "policy/shipped_limiter.h"

const struct option_group *const option_groups[] = {
    &options_server, &options_upstreams,          &options_identity, &options_limits,
    &options_rules,  &options_rate_limit_service, &options_process,  NULL};

const char *option_key(const struct option *option)
{
    const char *dot = strrchr(option->path, '.');
    return dot ? dot + 1 : option->path;
}

static bool is_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i])
            return false;
    return true;
}

bool option_applies(const struct option *option, const void *base)
{
    const struct option_condition *when = &option->when;

    return (!when->size || is_zero((const char *)base + when->offset, when->size) == when->zero) &&
           (!option->applies || option->applies(base)) &&
           (!option->has || option->has(base, option_key(option)));
}

/* Returns true if the option is directly in the section; "" is the top level. */
static bool option_is_in(const struct option *option, const char *section)
{
    size_t n = strlen(section);
    if (n == 0)
        return !strchr(option->path, '.');
    return strncmp(option->path, section, n) == 0 && option->path[n] == '.' &&
           !strchr(option->path + n + 1, '.');
}

static const struct option *option_of(const struct loading *l, const char *section,
                                      struct slice key)
{
    EACH_OPTION_OF (option, l->options)
        if (option_is_in(option, section) && slice_equal(slice_of(option_key(option)), key))
            return option;
    return NULL;
}

const char *option_keys(const struct loading *l, const char *section, struct option_keys *keys)
{
    struct text out = text_over(keys->text, sizeof keys->text - 1);
    bool first = true;

    EACH_OPTION_OF (option, l->options)
        if (option_is_in(option, section)) {
            text_printf(&out, "%s%s", first ? "" : ", ", option_key(option));
            first = false;
        }
    keys->text[out.n] = 0;
    return first || out.failed ? "" : keys->text;
}

/* "key:value" without a space is one word in YAML. Returns the length of a known key before the
 * colon, or 0. */
static size_t key_before_colon(const struct loading *l, const char *section, struct slice key)
{
    const char *colon = key.n ? memchr(key.p, ':', key.n) : NULL;
    struct slice before = {key.p, colon ? (size_t)(colon - key.p) : 0};

    return colon && option_of(l, section, before) ? before.n : 0;
}

/* Returns whether `key` is an option that the limit's limiter reads in its map `options`. */
static bool is_script_option(const struct node *limit, struct slice key)
{
    const struct node *script = node_find(limit, "script");
    const struct shipped_limiter *limiter = script ? shipped_limiter(script->text) : NULL;
    const struct limiter_option *option = limiter ? limiter_option(limiter, key) : NULL;

    return option && option->nested;
}

static void unknown_key(struct loading *l, const char *section, const struct node *node)
{
    struct suggestion meant = suggestion_for(node->key);
    struct option_keys known;
    size_t before_colon = key_before_colon(l, section, node->key);

    if (slice_equal(node->key, SLICE("<<"))) {
        mistake_of_key(l, node, "YAML merge keys are not supported; write the keys themselves");
        return;
    }
    EACH_OPTION_OF (option, l->options)
        if (option_is_in(option, section))
            suggestion_consider(&meant, slice_of(option_key(option)));
    if (strcmp(section, "limits.NAME") == 0 && is_script_option(node->parent, node->key))
        mistake_of_key(l, node, "%s is an option of the limiter; write options: { %.*s: %.*s }",
                       QUOTE(node->key), SLICE_ARG(node->key), SLICE_ARG(node->text));
    else if (before_colon)
        mistake_of_key(l, node, "unknown key %s; write a space after \"%.*s:\"", QUOTE(node->key),
                       (int)before_colon, node->key.p);
    else if (meant.best.n)
        mistake_of_key(l, node, "unknown key %s%s", QUOTE(node->key), DID_YOU_MEAN(&meant));
    else if (node->kind == NODE_SCALAR && node->null)
        mistake_of_key(l, node, "unknown key %s; write a list of values as [ A, B ]",
                       QUOTE(node->key));
    else if (*option_keys(l, section, &known))
        mistake_of_key(l, node, "unknown key %s; expected %s%s", QUOTE(node->key),
                       strchr(known.text, ',') ? "one of " : "", known.text);
    else
        mistake_of_key(l, node, "unknown key %s", QUOTE(node->key));
}

static void refuse_other_keys(struct loading *l, const char *section, const struct node *map)
{
    for (const struct node *child = map->first; child; child = child->next)
        if (!option_of(l, section, child->key))
            unknown_key(l, section, child);
}

/* Returns the default as a node, so that it is read like a written value. */
static const struct node *default_node(struct loading *l, const struct option *option)
{
    struct slice text = slice_of(option->fallback);
    if (text.n && text.p[0] == '[')
        return tree_read(&l->scratch, text, l->report);
    struct node *node = arena_zeroed(&l->scratch, 1, sizeof *node);
    node->kind = NODE_SCALAR;
    node->text = text;
    node->null = text.n == 0;
    return node;
}

/* `key:` without a value means none, and is allowed only if the option has no other default. */
static bool may_be_null(const struct option *option)
{
    const char *fallback = option->fallback;
    bool has_default =
        fallback && *fallback && *fallback != '[' && !(option->flags & OPTION_DERIVED);
    return option->type->takes_null && !has_default;
}

static void read_one_option(struct loading *l, const struct option *option, const struct node *map,
                            void *base)
{
    void *field = (char *)base + option->offset;
    const struct node *node = node_find(map, option_key(option));

    if (node && node->broken)
        return;
    if (node && node->null && !may_be_null(option))
        mistake(l, node, "has no value; remove the key%s, or give one",
                option->fallback ? " for its default" : "");
    else if (node)
        option->type->read(l, option, node, field);
    else if (option->flags & OPTION_REQUIRED && option_applies(option, base))
        mistake(l, map, "%s is missing: %s", option_key(option), option->help);
    else if (option->fallback && !(option->flags & OPTION_DERIVED))
        option->type->read(l, option, default_node(l, option), field);
}

void options_read(struct loading *l, const struct node *map, const char *section, void *base)
{
    refuse_other_keys(l, section, map);
    EACH_OPTION_OF (option, l->options)
        if (option_is_in(option, section) && option->type)
            read_one_option(l, option, map, base);
}

void options_print(struct printer *printer, const char *section, const void *base)
{
    EACH_OPTION (option) {
        if (!option_is_in(option, section) || !option->type || !option_applies(option, base))
            continue;
        print_key(printer, slice_of(option_key(option)));
        printer->option = option;
        option->type->print(printer,
                            (const char *)base + (option->shown ? option->shown : option->offset));
    }
}

void print_entry(const struct printer *names, struct slice name, const char *section,
                 const void *base)
{
    struct printer key = *names, below = printer_below(names);

    print_key(&key, name);
    fputc('\n', names->out);
    options_print(&below, section, base);
}

void print_entries(const struct printer *printer, const void *first, unsigned count, size_t stride,
                   int name, const char *section)
{
    bool is_list = name == NO_NAME;

    fputs(count ? "\n" : is_list ? " []\n" : " {}\n", printer->out);
    for (const char *entry = first; count; count--, entry += stride) {
        struct printer item = {printer->out, printer->indent + 4, true, NULL};
        struct printer names = printer_below(printer);
        if (is_list)
            options_print(&item, section, entry);
        else
            print_entry(&names, slice_of(*(char *const *)(entry + name)), section, entry);
    }
}
