/* read_descriptors.c - `descriptors` of a domain of the rate limit service, in the policy or in a
 * file of envoyproxy/ratelimit: entries, their limits and their metadata. */
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "config/sections.h"

#define ENTRY "rate_limit_service.domains.NAME.descriptors[]"

/* ---- key, value ------------------------------------------------------------------------------ */

/* Unquoted values are the text as written: 007, true, null. */
static void read_entry_text(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    if (node->kind != NODE_SCALAR)
        mistake(l, node, "expected a text, not a %s", node->kind == NODE_MAP ? "map" : "list");
    else if (text_fits(l, node, 0, (size_t)option->high))
        *(struct slice *)field = (struct slice){keep_text(l, node), node->text.n};
}

const struct option_type type_entry_text = {"text", read_entry_text, print_slice, true,
                                            sizeof(struct slice)};

/* ---- rate_limit ------------------------------------------------------------------------------ */

static const char *const unit_names[] = {
    [UNIT_SECOND] = "second", [UNIT_MINUTE] = "minute", [UNIT_HOUR] = "hour", [UNIT_DAY] = "day",
    [UNIT_MONTH] = "month",   [UNIT_YEAR] = "year",     [UNIT_WEEK] = "week", [UNIT_COUNT] = NULL};

static void read_unit(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    static const char expected[] = "second, minute, hour, day, week, month or year";
    unsigned unit = UNIT_SECOND;

    (void)option;
    while (unit < UNIT_COUNT && !slice_equal_nocase(node->text, slice_of(unit_names[unit])))
        unit++;
    if (unit < UNIT_COUNT)
        *(enum rate_limit_unit *)field = (enum rate_limit_unit)unit;
    else /* reports it */
        (void)word_read(l, node, &unit_names[UNIT_SECOND], expected, &unit);
}

static void print_unit(const struct printer *printer, const void *field)
{
    fprintf(printer->out, " %s\n", unit_names[*(const enum rate_limit_unit *)field]);
}

const struct option_type type_rate_limit_unit = {"word", read_unit, print_unit, false,
                                                 sizeof(enum rate_limit_unit)};

static void read_replaced(struct loading *l, const struct node *item,
                          struct configured_entry *entry)
{
    const struct node *name = item->kind == NODE_MAP ? node_find(item, "name") : NULL;

    if (!expect_map(l, item, "a map such as { name: NAME }"))
        return;
    options_read(l, item, ENTRY ".rate_limit.replaces[]", &entry->replaces[entry->replaces_count]);
    if (!name || name->broken || name->kind != NODE_SCALAR)
        return;
    if (name->text.n == 0)
        mistake(l, name, "is empty; expected the name of a rate_limit");
    else if (entry->name && slice_equal(name->text, slice_of(entry->name)))
        mistake(l, name, "%s is the name of this rate_limit, which cannot replace itself",
                QUOTE(name->text));
    entry->replaces_count++;
}

static void read_replaces(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    struct configured_entry *entry = field;

    if (!expect_items(l, option, node, "names") || !list_count(node))
        return;
    entry->replaces = arena_zeroed(l->arena, list_count(node), sizeof *entry->replaces);
    EACH_ITEM (item, node)
        if (!item->broken)
            read_replaced(l, item, entry);
}

static void print_replaced(FILE *out, const void *replaces, unsigned index)
{
    fputs("{ name: ", out);
    print_scalar(out, ((const struct replaced_limit *)replaces)[index].name);
    fputs(" }", out);
}

static void print_replaces(const struct printer *printer, const void *field)
{
    const struct configured_entry *entry = field;

    print_items(printer, entry->replaces_count, print_replaced, entry->replaces);
}

const struct option_type type_replaces = {"list of maps", read_replaces, print_replaces, true, 0};

/* Writes the name of the entry's limit, as envoyproxy/ratelimit names its statistics:
 * DOMAIN.KEY_VALUE.KEY. */
static void write_entry_name(struct text *out, const struct rate_limit_domain *domain,
                             const struct configured_entry *entry)
{
    if (entry->parent)
        write_entry_name(out, domain, entry->parent);
    else
        text_put(out, slice_of(domain->name));
    text_char(out, '.');
    text_put(out, entry->key);
    if (entry->value.n)
        text_char(out, '_');
    text_put(out, entry->value);
}

static void make_rate_limit(struct loading *l, const struct rate_limit_domain *domain,
                            struct configured_entry *entry)
{
    const struct limit **only = arena_zeroed(l->arena, 1, sizeof *only);
    char bytes[DESCRIPTOR_ENTRIES_MAX * 2 * (CONFIGURED_ENTRY_TEXT_MAX + 1) + 256];
    struct text name = text_over(bytes, sizeof bytes);

    write_entry_name(&name, domain, entry);
    entry->rate_limit = rate_limit_new(l, text_slice(&name), entry->unit);
    rate_limit_add(l, entry->rate_limit);
    entry->rate_limit->limit = entry->rate_limit->burst = entry->requests_per_unit;
    entry->rate_limit->position = entry->position;
    entry->rate_limit->shadow |= entry->shadow;
    if (entry->shadow)
        entry->rate_limit->enforce = 0;
    *only = entry->rate_limit;
    entry->limits = only;
    entry->limit_count = 1;
}

static void check_rate_limit(struct loading *l, const struct node *node,
                             const struct configured_entry *entry)
{
    const struct node *unit = node_find(node, "unit"),
                      *number = node_find(node, "requests_per_unit");

    if (entry->unlimited && unit)
        mistake_of_key(l, unit, "unlimited: true has no unit; remove one of the two");
    if (entry->unlimited && number)
        warning(l, number, "has no effect, since unlimited is true");
    if (!entry->unlimited && !unit)
        mistake(l, node, "unit is missing: second, minute, hour, day, week, month or year");
    if (!entry->unlimited && !number)
        mistake(l, node, "requests_per_unit is missing: the number of requests per unit, from 0");
}

static void read_rate_limit(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct configured_entry *entry = field;

    if (!expect_map(l, node, "a map with unit and requests_per_unit"))
        return;
    entry->has_rate_limit = true;
    options_read(l, node, option->path, entry);
    check_rate_limit(l, node, entry);
}

const struct option_type type_rate_limit = {"map", read_rate_limit, print_section, false, 0};

/* ---- limits ---------------------------------------------------------------------------------- */

/* A call states its cost, and has neither a header nor a response. */
static void warn_of_unused(struct loading *l, const struct node *item, const struct limit *limit)
{
    const char *option = limit->counted          ? "count"
                         : limit->own_cost       ? "its cost, a map,"
                         : limit->dedup.header   ? "dedup"
                         : limit->granted_header ? "granted_header"
                                                 : NULL;

    if (option)
        warning(l, item,
                "limit %s: %s has no effect on calls, which have neither header nor response%s",
                limit->name, option,
                limit->counted && limit->on_failure == ON_FAILURE_LOCAL
                    ? "; while Redis is away, it admits all of them"
                    : "");
}

static void read_limit(struct loading *l, const struct node *item, struct configured_entry *entry)
{
    struct limit *limit = limit_in_list(l, item, entry->limits, entry->limit_count);

    if (!limit)
        return;
    if (limit->kind == LIMIT_CONCURRENCY)
        mistake(l, item,
                "limit %s counts requests in flight, whose end a caller does not report; use "
                "another script",
                limit->name);
    else if (limit->max_delay_us)
        mistake(l, item,
                "limit %s has max_delay, but a caller cannot be told to wait; use a limit without",
                limit->name);
    warn_of_unused(l, item, limit);
    limit->in_descriptors = true;
    entry->limits[entry->limit_count++] = limit;
}

static void read_entry_limits(struct loading *l, const struct option *option,
                              const struct node *node, void *field)
{
    struct configured_entry *entry = field;

    if (!expect_items(l, option, node, "limits"))
        return;
    entry->limits = arena_zeroed(l->arena, list_count(node), sizeof(const struct limit *));
    EACH_ITEM (item, node)
        read_limit(l, item, entry);
}

static void print_entry_limits(const struct printer *printer, const void *field)
{
    const struct configured_entry *entry = field;

    print_items(printer, entry->limit_count, print_limit_name, entry->limits);
}

const struct option_type type_entry_limits = {"list of limits", read_entry_limits,
                                              print_entry_limits, true, 0};

/* ---- metadata -------------------------------------------------------------------------------- */

static void read_metadata_scalar(struct loading *l, const struct node *node, struct metadata *to)
{
    to->kind = METADATA_TEXT;
    to->text = (struct slice){keep_text(l, node), node->text.n};
    if (node->quoted)
        return;
    to->is_true = slice_equal(node->text, SLICE("true"));
    if (node->null)
        to->kind = METADATA_NULL;
    else if (to->is_true || slice_equal(node->text, SLICE("false")))
        to->kind = METADATA_BOOL;
    else if (is_json_number(node->text.p) && isfinite(to->number = strtod(node->text.p, NULL)))
        to->kind = METADATA_NUMBER;
}

/* `*size` grows by about the bytes that the value's members take in a response. */
static void read_metadata_value(struct loading *l, const struct node *node, unsigned depth,
                                struct metadata *to, size_t *size)
{
    struct metadata *items;

    if (node->broken)
        return;
    if (depth == METADATA_DEPTH_MAX) {
        mistake(l, node, "is nested deeper than %d levels", METADATA_DEPTH_MAX);
        return;
    }
    if (node->kind == NODE_SCALAR) {
        read_metadata_scalar(l, node, to);
        return;
    }
    to->kind = node->kind == NODE_MAP ? METADATA_MAP : METADATA_LIST;
    to->items = items = arena_zeroed(l->arena, node->count, sizeof *items);
    for (const struct node *child = node->first; child; child = child->next) {
        struct metadata *item = &items[to->count++];
        item->key = (struct slice){arena_text(l->arena, child->key), child->key.n};
        *size += child->key.n + child->text.n + 8;
        read_metadata_value(l, child, depth + 1, item, size);
    }
}

static void read_metadata(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    struct metadata *metadata;
    size_t size = 0;

    (void)option;
    if (!expect_map(l, node, "a map"))
        return;
    metadata = arena_zeroed(l->arena, 1, sizeof *metadata);
    read_metadata_value(l, node, 0, metadata, &size);
    if (size > METADATA_MAX)
        mistake(l, node,
                "is larger than %d bytes, with 8 for each value; a response has room for %d",
                METADATA_MAX, DESCRIPTORS_MAX);
    if (metadata->kind == METADATA_MAP)
        *(const struct metadata **)field = metadata;
}

static void print_metadata_value(FILE *out, const struct metadata *value);

static void print_metadata_item(FILE *out, const void *field, unsigned i)
{
    const struct metadata *of = field;

    if (of->kind == METADATA_MAP) {
        print_scalar(out, of->items[i].key);
        fputs(": ", out);
    }
    print_metadata_value(out, &of->items[i]);
}

static void print_metadata_value(FILE *out, const struct metadata *value)
{
    switch (value->kind) {
    case METADATA_NULL: fputs("null", out); break;
    case METADATA_BOOL:
    case METADATA_NUMBER: fwrite(value->text.p, 1, value->text.n, out); break;
    case METADATA_TEXT:
        fputc('"', out);
        print_quoted(out, value->text);
        fputc('"', out);
        break;
    case METADATA_LIST: print_list(out, value->count, print_metadata_item, value); break;
    case METADATA_MAP: print_map(out, value->count, print_metadata_item, value); break;
    }
}

static void print_metadata(const struct printer *printer, const void *field)
{
    fputc(' ', printer->out);
    print_metadata_value(printer->out, *(const struct metadata *const *)field);
    fputc('\n', printer->out);
}

const struct option_type type_metadata = {"map", read_metadata, print_metadata, true,
                                          sizeof(const struct metadata *)};

/* ---- entries --------------------------------------------------------------------------------- */

static void warn_of_metrics(struct loading *l, const struct node *node)
{
    static const char *const keys[] = {"detailed_metric", "value_to_metric"};

    for (unsigned i = 0; i < COUNT_OF(keys); i++) {
        const struct node *key = node_find(node, keys[i]);
        if (key && slice_equal(key->text, SLICE("true")))
            warning(l, key,
                    "has no effect: weir's metrics have one name for all values of an entry");
    }
}

static void check_entry(struct loading *l, const struct node *node,
                        const struct configured_entry *entry)
{
    const struct node *key = node_find(node, "key"), *limits = node_find(node, "limits"),
                      *shares = node_find(node, "share_threshold");

    if (key && !key->broken && key->kind == NODE_SCALAR && key->text.n == 0)
        mistake(l, key, "is empty; expected the key of a descriptor's entry");
    if (limits && entry->has_rate_limit)
        mistake_of_key(l, limits, "an entry has limits or rate_limit; remove one of the two");
    if (entry->shares && !entry->has_wildcard)
        mistake_of_key(l, shares, "share_threshold requires a value with *, such as \"api*\"");
    warn_of_metrics(l, node);
}

static void read_entry(struct loading *l, const struct node *node,
                       const struct rate_limit_domain *domain, struct configured_entry *entry)
{
    unsigned before = l->report->mistakes;

    entry->position = node->position;
    if (!expect_map(l, node, "a map with key"))
        return;
    options_read(l, node, ENTRY, entry);
    entry->has_wildcard = entry->value.n && memchr(entry->value.p, '*', entry->value.n);
    check_entry(l, node, entry);
    if (entry->has_rate_limit && !entry->unlimited && l->report->mistakes == before)
        make_rate_limit(l, domain, entry);
    const struct node *below = node_find(node, "descriptors");
    if (below && !below->broken)
        entries_read(l, below, domain, entry, &entry->below);
}

static void report_twice(struct loading *l, const struct node *node,
                         const struct entry_level *level, const struct configured_entry **earlier)
{
    const struct node *item = node->first;

    for (unsigned i = 0; item && i < level->count; i++, item = item->next)
        if (earlier[i] && level->entries[i].key.n)
            mistake(l, item, "has the key and the value of the entry at line %u",
                    earlier[i]->position.line);
    for (unsigned i = 0; i < level->key_count; i++)
        if (level->keys[i].wildcard_count > CONFIGURED_WILDCARDS_MAX)
            mistake(l, node, "key %s has more than %d values with *", QUOTE(level->keys[i].key),
                    CONFIGURED_WILDCARDS_MAX);
}

/* Returns whether the policy has room for the entries of `node`, or reports an error. */
static bool entries_fit(struct loading *l, const struct node *node, unsigned depth)
{
    struct rate_limit_service *service = &l->policy->rate_limit_service;

    if (depth == DESCRIPTOR_ENTRIES_MAX)
        mistake(l, node, "is deeper than %d levels; a descriptor has at most %d entries",
                DESCRIPTOR_ENTRIES_MAX, DESCRIPTOR_ENTRIES_MAX);
    else if (service->entry_count + node->count > CONFIGURED_ENTRIES_MAX)
        mistake(l, node, "the domains have more than %d descriptors", CONFIGURED_ENTRIES_MAX);
    else {
        service->entry_count += node->count;
        return true;
    }
    return false;
}

void entries_read(struct loading *l, const struct node *node,
                  const struct rate_limit_domain *domain, const struct configured_entry *parent,
                  struct entry_level *level)
{
    unsigned depth = parent ? parent->depth + 1 : 0;
    const struct configured_entry **earlier;

    if (!expect_list(l, node, "a list of descriptors") || node->null ||
        !entries_fit(l, node, depth))
        return;
    level->entries = arena_zeroed(l->arena, node->count, sizeof *level->entries);
    for (const struct node *item = node->first; item; item = item->next) {
        struct configured_entry *entry = &level->entries[level->count++];
        entry->parent = parent;
        entry->depth = depth;
        read_entry(l, item, domain, entry);
    }
    earlier = arena_zeroed(&l->scratch, level->count, sizeof *earlier);
    entry_level_index(&l->policy->rate_limit_service, l->arena, level, earlier);
    report_twice(l, node, level, earlier);
}

PRINT_LIST(print_descriptors, entry_level, entries, count, ENTRY)

/* entries_read() reads them, since they depend on their domain. */
const struct option_type type_descriptors = {"list of maps", read_elsewhere, print_descriptors,
                                             true, sizeof(struct entry_level)};
