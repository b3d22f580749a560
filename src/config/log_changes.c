/* log_changes.c - what a reload changes, for the log. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory_stream.h"
#include "base/text.h"
#include "config/policy_file.h"

enum { NAMES_MAX = 8, NAMES_TEXT_MAX = 4096, INDENT = 2 };

/* A section, or an entry of one: its key, and its text with the key. */
struct change_part {
    struct slice name, text;
};

/* A printed policy, cut into its sections. */
struct printed {
    char *text;
    struct change_part *parts;
    unsigned count;
};

/* The line at `p` begins a part: it is indented by exactly `indent` blanks. */
static bool begins_part(const char *p, const char *end, size_t indent)
{
    for (size_t i = 0; i < indent; i++)
        if (p + i >= end || p[i] != ' ')
            return false;
    return p + indent < end && p[indent] != ' ' && p[indent] != '\n';
}

static const char *next_line(const char *p, const char *end)
{
    const char *newline = memchr(p, '\n', (size_t)(end - p));

    return newline ? newline + 1 : end;
}

/* The key that a line begins with. Keys of sections contain no colon; a line with an entry's key,
 * which may, ends after it. */
static struct slice changed_key(struct slice line, size_t indent)
{
    size_t n = indent ? line.n : 0;

    while (indent && n > indent && line.p[n - 1] != ':')
        n--;
    while (!indent && n < line.n && line.p[n] != ':')
        n++;
    return (struct slice){line.p + indent, indent && n > indent ? n - indent - 1 : n};
}

/* Cuts `text` at lines with this indentation. Returns the number of parts; `parts` NULL: counts. */
static unsigned cut_into_parts(struct slice text, size_t indent, struct change_part *parts)
{
    const char *p = text.p, *end = text.p + text.n;
    unsigned count = 0;

    while (p < end && !begins_part(p, end, indent))
        p = next_line(p, end);
    while (p < end) {
        const char *from = p;
        struct slice line = {from, (size_t)(next_line(from, end) - from)};
        do
            p = next_line(p, end);
        while (p < end && !begins_part(p, end, indent));
        if (parts)
            parts[count] =
                (struct change_part){changed_key(line, indent), {from, (size_t)(p - from)}};
        count++;
    }
    return count;
}

static bool print_and_cut(const struct policy *policy, struct printed *printed)
{
    struct memory_stream stream;

    if (!memory_stream_open(&stream))
        return false;
    policy_print(policy, stream.file);
    if (!(printed->text = memory_stream_close(&stream)))
        return false;
    struct slice all = slice_of(printed->text);
    printed->count = cut_into_parts(all, 0, NULL);
    printed->parts = calloc(printed->count + 1, sizeof *printed->parts);
    return printed->parts && cut_into_parts(all, 0, printed->parts);
}

static void printed_free(struct printed *printed)
{
    free(printed->parts);
    free(printed->text);
}

/* ---- entries of a section -------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct change_part *x = a, *y = b;
    size_t n = x->name.n < y->name.n ? x->name.n : y->name.n;
    int order = n ? memcmp(x->name.p, y->name.p, n) : 0;

    return order ? order : (x->name.n > y->name.n) - (x->name.n < y->name.n);
}

/* Names of one kind of change. */
struct names {
    struct text text;
    unsigned count;
    char bytes[NAMES_TEXT_MAX];
};

static void add_name(struct names *names, struct slice name)
{
    if (names->count == 0)
        names->text = text_over(names->bytes, sizeof names->bytes);
    if (names->count++ >= NAMES_MAX)
        return;
    if (names->count > 1)
        text_literal(&names->text, ", ");
    text_put(&names->text, name);
}

static void put_names(struct text *line, const char *what, const struct names *names)
{
    if (!names->count)
        return;
    text_printf(line, "%s%s %.*s", line->n ? "; " : "", what, SLICE_ARG(text_slice(&names->text)));
    if (names->count > NAMES_MAX)
        text_printf(line, " and %u more", names->count - NAMES_MAX);
}

struct entries {
    struct change_part *parts;
    unsigned count;
};

static bool entries_of(struct slice section, const struct policy *rules_of, struct entries *entries)
{
    entries->count = cut_into_parts(section, INDENT, NULL);
    if (!(entries->parts = calloc(entries->count + 1, sizeof *entries->parts)))
        return false;
    (void)cut_into_parts(section, INDENT, entries->parts);
    for (unsigned i = 0; rules_of && i < entries->count && i < rules_of->rule_count; i++)
        entries->parts[i].name = slice_of(rules_of->rules[i].name);
    qsort(entries->parts, entries->count, sizeof *entries->parts, by_name);
    return true;
}

static void compare(const char *section, const struct entries *before, const struct entries *after)
{
    static struct names changed, added, removed; /* the main thread's */
    char bytes[3 * NAMES_TEXT_MAX];
    struct text line = text_over(bytes, sizeof bytes);
    unsigned i = 0, k = 0;

    changed.count = added.count = removed.count = 0;
    while (i < before->count || k < after->count) {
        int order = i == before->count  ? 1
                    : k == after->count ? -1
                                        : by_name(&before->parts[i], &after->parts[k]);
        if (order < 0)
            add_name(&removed, before->parts[i].name);
        else if (order > 0)
            add_name(&added, after->parts[k].name);
        else if (!slice_equal(before->parts[i].text, after->parts[k].text))
            add_name(&changed, after->parts[k].name);
        i += order <= 0;
        k += order >= 0;
    }
    put_names(&line, "changed", &changed);
    put_names(&line, "added", &added);
    put_names(&line, "removed", &removed);
    if (line.n == 0)
        text_literal(&line, "another order");
    log_info("reload: %s: %.*s", section, SLICE_ARG(text_slice(&line)));
}

/* ---- sections -------------------------------------------------------------------------------- */

static bool has_entries(struct slice section)
{
    static const char *const names[] = {"limits", "rules", "plans", "clients", "upstreams"};

    for (unsigned i = 0; i < COUNT_OF(names); i++)
        if (slice_equal(section, slice_of(names[i])))
            return true;
    return false;
}

static const struct change_part *part_named(const struct printed *printed, struct slice name)
{
    static const struct change_part none;

    for (unsigned i = 0; i < printed->count; i++)
        if (slice_equal(printed->parts[i].name, name))
            return &printed->parts[i];
    return &none;
}

static void log_section(const struct policy *before, const struct policy *after, struct slice name,
                        struct slice old, struct slice new)
{
    struct entries from = {0}, to = {0};
    bool rules = slice_equal(name, SLICE("rules"));
    char section[64];

    snprintf(section, sizeof section, "%.*s", SLICE_ARG(name));
    if (slice_equal(old, new))
        return;
    if (!has_entries(name))
        log_info("reload: %s: changed", section);
    else if (entries_of(old, rules ? before : NULL, &from) &&
             entries_of(new, rules ? after : NULL, &to))
        compare(section, &from, &to);
    free(from.parts);
    free(to.parts);
}

void policy_log_changes(const struct policy *before, const struct policy *after)
{
    struct printed old = {0}, new = {0};

    if (print_and_cut(before, &old) && print_and_cut(after, &new)) {
        for (unsigned i = 0; i < new.count; i++)
            log_section(before, after, new.parts[i].name, part_named(&old, new.parts[i].name)->text,
                        new.parts[i].text);
        for (unsigned i = 0; i < old.count; i++)
            if (!part_named(&new, old.parts[i].name)->text.n)
                log_section(before, after, old.parts[i].name, old.parts[i].text, SLICE_NONE);
    } else
        log_no_memory("the log does not tell what the reload changes");
    printed_free(&old);
    printed_free(&new);
}
