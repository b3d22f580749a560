/* read_script.c - limits.NAME.script: a built-in limiter or a Lua file, and the options of both. */
#include <errno.h>
#include <unistd.h>

#include "base/values.h"
#include "config/sections.h"
#include "policy/shipped_limiter.h"

/* ---- the script ------------------------------------------------------------------------------ */

static void unknown_script(struct loading *l, const struct node *node)
{
    struct script_names names;
    struct suggestion meant = suggestion_for(node->text);

    for (unsigned i = 0; shipped_limiter_at(i); i++)
        suggestion_consider(&meant, slice_of(shipped_limiter_at(i)->name));
    (void)script_names(node->text, &names);
    mistake(l, node, "there is no script %s; use one of %s, or a path such as ./my.lua%s",
            QUOTE(node->text), names.text, DID_YOU_MEAN(&meant));
}

/* Returns true if a built-in script is readable; otherwise reports an error. */
static bool is_installed(struct loading *l, const struct node *node, const char *path)
{
    if (access(path, R_OK) == 0)
        return true;
    mistake(l, node,
            "%s cannot be read: %s; install weir, or name the directory of its limiters in "
            "WEIR_LUA_DIR",
            path, strerror(errno));
    return false;
}

/* Returns the path of the script; NULL after reporting an error. */
static const char *script_path(struct loading *l, const struct node *node, struct limit *limit)
{
    struct slice text = node->text;
    bool is_path =
        memchr(text.p, '/', text.n) || (text.n > 4 && !strcmp(text.p + text.n - 4, ".lua"));

    limit->kind = LIMIT_CUSTOM;
    if (is_path)
        return neighbour_path(l, text);
    limit->shipped = shipped_limiter(text);
    if (limit->shipped) {
        size_t room = strlen(l->lua_dir) + text.n + 6;
        char *path = arena_zeroed(&l->scratch, room, 1);
        snprintf(path, room, "%s/%s.lua", l->lua_dir, text.p);
        limit->kind = limit->shipped->kind;
        return path;
    }
    unknown_script(l, node);
    return NULL;
}

/* Returns the text that an earlier limit has read from the same file, or NULL. */
static char *text_known(const struct policy *policy, const struct limit *limit)
{
    for (unsigned i = 0; i < policy->limit_count && &policy->limits[i] != limit; i++)
        if (policy->limits[i].script && strcmp(policy->limits[i].script, limit->script) == 0)
            return policy->limits[i].script_text;
    return NULL;
}

/* Sets the options of a shipped limiter to their defaults, before the other options are read. */
static void options_begin(struct loading *l, struct limit *limit)
{
    if (!limit->shipped)
        return;
    limit->option_count = limiter_option_count(limit->shipped);
    limit->options = arena_zeroed(l->arena, limit->option_count, sizeof *limit->options);
    for (unsigned i = 0; i < limit->option_count; i++) {
        const struct limiter_option *row = &limit->shipped->options[i];
        limit->options[i] =
            (struct script_option){.name = arena_text(l->arena, slice_of(row->name)),
                                   .kind = row->fallback ? row->kind : OPTION_NONE,
                                   .number = row->fallback};
    }
}

static void read_script(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct limit *limit = field;
    struct slice bytes;

    (void)option;
    if (!expect_scalar(l, node, "a script's name or path") || !text_fits(l, node, 1, 4096))
        return;
    const char *path = script_path(l, node, limit);
    if (!path)
        return;
    limit->script = keep_text(l, node);
    limit->script_position = node->position;
    options_begin(l, limit);
    limit->script_text = text_known(l->policy, limit);
    if (limit->script_text)
        return;
    if (limit->kind != LIMIT_CUSTOM && !is_installed(l, node, path))
        return;
    if (!named_file_read(l, node, &l->scratch, path, LUA_FILE_MAX, &bytes))
        return;
    if (memchr(bytes.p, 0, bytes.n))
        mistake(l, node, "%s is not Lua text: it contains a NUL byte", path);
    else
        limit->script_text = arena_text(l->arena, bytes);
}

const struct option_type type_script = {"name or path", read_script, print_text, false, 0};

/* ---- options: of limits.NAME.options, which an operator's own scripts name freely, and those in
 * policy/shipped_limiter.c */

/* Largest integer that Lua doubles hold exactly. */
#define EXACT_MAX (INT64_C(1) << 53)

static const char expected[] = "a whole number, a duration such as 25ms, true, false, or a text";

/* --- values for an operator's own script --- */

/* Returns true if the text looks like a number. */
static bool starts_as_number(struct slice text)
{
    return text.n && (strchr("+-.", text.p[0]) || (text.p[0] >= '0' && text.p[0] <= '9'));
}

static bool read_option_number(struct loading *l, const struct node *item,
                               struct script_option *option)
{
    enum value_result result = number_read(item->text, &option->number);

    option->kind = OPTION_NUMBER;
    if (result == VALUE_NO_NUMBER &&
        (result = duration_read(item->text, &option->number)) == VALUE_GOOD)
        option->kind = OPTION_DURATION;
    if (result == VALUE_GOOD && option->number >= -EXACT_MAX && option->number <= EXACT_MAX)
        return true;
    if (result == VALUE_NO_NUMBER)
        mistake(l, item,
                "%s is neither a whole number nor a duration; write fractions as e.g. 500 of 1000, "
                "and text in quotes",
                QUOTE(item->text));
    else
        mistake(l, item, "%s is out of range; expected -2^53 to 2^53, which scripts store exactly",
                QUOTE(item->text));
    return false;
}

static bool read_option_value(struct loading *l, const struct node *item,
                              struct script_option *option)
{
    if (!expect_scalar(l, item, expected) || !text_fits(l, item, 0, SCRIPT_TEXT_MAX))
        return false;
    bool is_true = slice_equal(item->text, SLICE("true"));
    if (!item->quoted && (is_true || slice_equal(item->text, SLICE("false")))) {
        option->kind = OPTION_BOOL;
        option->number = is_true;
        return true;
    }
    if (!item->quoted && starts_as_number(item->text))
        return read_option_number(l, item, option);
    option->kind = OPTION_TEXT;
    option->text = keep_text(l, item);
    return true;
}

/* --- options of shipped limiters --- */

static const struct option_type *type_of(enum script_option_kind kind)
{
    return kind == OPTION_DURATION ? &type_duration : &type_number;
}

/* Reads the option if the limit's script takes it; script_options_refuse() reports others. */
static void read_shipped(struct loading *l, struct slice name, const struct node *node,
                         struct limit *limit)
{
    const struct limiter_option *row = limit->shipped ? limiter_option(limit->shipped, name) : NULL;

    if (!row)
        return;
    struct script_option *option = &limit->options[row - limit->shipped->options];
    const struct option bounds = {.low = row->low, .high = row->high};
    type_of(row->kind)->read(l, &bounds, node, &option->number);
    option->kind = option->number ? row->kind : OPTION_NONE;
}

static void read_script_option(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    read_shipped(l, slice_of(option_key(option)), node, field);
}

static void print_script_option(const struct printer *printer, const void *field)
{
    const struct limit *limit = field;
    const struct limiter_option *row =
        limiter_option(limit->shipped, slice_of(option_key(printer->option)));

    type_of(row->kind)->print(printer, &limit->options[row - limit->shipped->options].number);
}

/* They differ in their names for the manual. The row of the limiter has type and range. */
const struct option_type type_script_number = {"number", read_script_option, print_script_option,
                                               false, 0};
const struct option_type type_script_duration = {"duration", read_script_option,
                                                 print_script_option, false, 0};

/* Returns the first limiter that has the option at this level, or NULL. */
static const struct shipped_limiter *limiter_with(struct slice name)
{
    const struct shipped_limiter *limiter;

    for (unsigned i = 0; (limiter = shipped_limiter_at(i)); i++) {
        const struct limiter_option *row = limiter_option(limiter, name);
        if (row && !row->nested)
            return limiter;
    }
    return NULL;
}

void script_options_refuse(struct loading *l, const struct node *node, const struct limit *limit)
{
    for (const struct node *key = node->first; key; key = key->next) {
        const struct shipped_limiter *other = limiter_with(key->key);
        if (other && !(limit->shipped && limiter_option(limit->shipped, key->key)))
            mistake_of_key(l, key, "%s does not support %.*s; remove it, or use %s", limit->script,
                           SLICE_ARG(key->key), other->name);
    }
}

/* Returns true if the option of the limit is printed and read below `options`. */
static bool is_nested(const struct limit *limit, unsigned index)
{
    return !limit->shipped || limit->shipped->options[index].nested;
}

bool limit_has_own_options(const void *limit)
{
    const struct limit *l = limit;

    for (unsigned i = 0; l->shipped && i < l->option_count; i++)
        if (is_nested(l, i))
            return true;
    return l->kind == LIMIT_CUSTOM;
}

/* Reports a name that is not one of the limiter's options below `options`. */
static void unknown_option(struct loading *l, const struct node *item, const struct limit *limit)
{
    char room[128];
    struct text names = text_over(room, sizeof room - 1);

    for (unsigned i = 0; i < limit->option_count; i++)
        if (is_nested(limit, i))
            text_printf(&names, "%s%s", names.n ? ", " : "", limit->options[i].name);
    room[names.n] = 0;
    mistake_of_key(l, item, "%s has no option %s; expected %s", limit->script, QUOTE(item->key),
                   room);
}

/* The options of a shipped limiter below `options`. */
static void read_nested(struct loading *l, const struct node *node, struct limit *limit)
{
    if (node->kind != NODE_MAP && node->count) {
        mistake(l, node, "expected a map of options");
        return;
    }
    for (const struct node *item = node->first; item; item = item->next) {
        const struct limiter_option *row = limiter_option(limit->shipped, item->key);
        if (!row || !row->nested)
            unknown_option(l, item, limit);
        else if (!item->broken)
            read_shipped(l, item->key, item, limit);
    }
}

/* --- limits.NAME.options --- */

static void read_own_options(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct limit *limit = field;

    if (!limit_has_own_options(limit))
        return; /* reported by finish_limit() */
    if (node->kind == NODE_SCALAR || node->count > (unsigned)option->high) {
        mistake(l, node, "expected a map of at most %d names and values, or a list of values",
                (int)option->high);
        return;
    }
    if (limit->shipped) {
        read_nested(l, node, limit);
        return;
    }
    limit->options = arena_zeroed(l->arena, node->count, sizeof *limit->options);
    for (const struct node *item = node->first; item; item = item->next) {
        struct script_option *own = &limit->options[limit->option_count];
        if (node->kind == NODE_MAP)
            own->name = arena_text(l->arena, item->key);
        if (!item->broken && read_option_value(l, item, own))
            limit->option_count++;
    }
}

static void print_value(FILE *out, const struct script_option *own)
{
    char room[32];
    struct text text = text_over(room, sizeof room);

    switch (own->kind) {
    case OPTION_NONE: break; /* not printed */
    case OPTION_NUMBER: fprintf(out, "%lld", (long long)own->number); break;
    case OPTION_BOOL: fputs(own->number ? "true" : "false", out); break;
    case OPTION_TEXT:
        fputc('"', out);
        print_quoted(out, slice_of(own->text));
        fputc('"', out);
        break;
    case OPTION_DURATION:
        duration_write(&text, own->number);
        fwrite(room, 1, text.n, out);
        break;
    }
}

static void print_own_options(const struct printer *printer, const void *field)
{
    const struct limit *limit = field;
    struct printer below = printer_below(printer);
    bool any = false, named = false;

    for (unsigned i = 0; i < limit->option_count; i++) {
        const struct script_option *own = &limit->options[i];
        if (own->kind == OPTION_NONE || !is_nested(limit, i))
            continue;
        named = own->name != NULL;
        if (named) {
            fputc('\n', printer->out);
            print_key(&below, slice_of(own->name));
            fputc(' ', printer->out);
        } else
            fputs(any ? ", " : " [ ", printer->out);
        print_value(printer->out, own);
        any = true;
    }
    fputs(!any ? " []\n" : named ? "\n" : " ]\n", printer->out);
}

const struct option_type type_own_options = {"map or list", read_own_options, print_own_options,
                                             true, 0};
