/* read_addresses.c - section addresses: files of allowed (never limited) and blocked addresses. */
#include "base/file.h"
#include "base/memory.h"
#include "config/sections.h"

/* Entries of all files. */
struct gathered {
    struct listed_range *ranges;
    size_t count;
};

/* --- files --- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Removes the comment and surrounding whitespace. */
static struct slice trimmed(struct slice line)
{
    const char *comment = memchr(line.p, '#', line.n);

    if (comment)
        line.n = (size_t)(comment - line.p);
    while (line.n && is_space(line.p[line.n - 1]))
        line.n--;
    while (line.n && is_space(*line.p))
        line.p++, line.n--;
    return line;
}

/* Returns false if the list is full. */
static bool gather_range(struct loading *l, struct gathered *all, const struct listed_range *range)
{
    if (all->count == LISTED_MAX)
        return false;
    all->ranges = arena_grown(&l->scratch, all->ranges, all->count, sizeof *all->ranges);
    all->ranges[all->count++] = *range;
    return true;
}

/* Returns false if reading must stop. */
static bool read_line(struct loading *l, unsigned number, struct slice text, enum listed as,
                      struct gathered *all)
{
    struct slice address = trimmed(text);
    struct listed_range range = {.as = as};
    struct position position = {number, (unsigned)(address.p - text.p) + 1};
    const char *why;

    if (address.n == 0)
        return true;
    if (!ip_range_parse(address, &range.range, &why))
        report_mistake(l->report, position, "%s: %s", QUOTE(address), why);
    else if (!gather_range(l, all, &range)) {
        report_mistake(l->report, position,
                       "all lists together have more than %d addresses and ranges; combine "
                       "adjacent addresses into ranges",
                       LISTED_MAX);
        return false;
    }
    return true;
}

static void read_address_file(struct loading *l, const struct node *item, enum listed as,
                              struct gathered *all)
{
    char *path = neighbour_path(l, item->text);
    const char *why;
    struct slice bytes;

    if (!file_read(&l->file, path, ADDRESS_FILE_MAX, &bytes, &why)) {
        struct ip_range range;
        bool address = ip_range_parse(item->text, &range, &(const char *){NULL});
        mistake(l, item, "%s cannot be read: %s%s", QUOTE(item->text), why,
                address ? "; expected a file with addresses" : "");
        return;
    }
    bytes = slice_after_bom(bytes);
    l->report->current = path;
    for (unsigned number = 1; bytes.n; number++) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        struct slice line = {bytes.p, end ? (size_t)(end - bytes.p) : bytes.n};
        if (!read_line(l, number, line, as, all))
            break;
        bytes.p += line.n + (end != NULL);
        bytes.n -= line.n + (end != NULL);
    }
    l->report->current = NULL;
    arena_free(&l->file);
}

/* --- option --- */

static void read_names(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct address_files *files = field;

    if (!expect_items(l, option, node, "files"))
        return;
    files->names = arena_zeroed(l->arena, list_count(node), sizeof *files->names);
    files->nodes = node;
    EACH_ITEM (item, node)
        if (expect_scalar(l, item, "the path of a file") && text_fits(l, item, 1, 4096))
            files->names[files->count++] = keep_text(l, item);
}

static void print_name(FILE *out, const void *files, unsigned index)
{
    print_scalar(out, slice_of(((const struct address_files *)files)->names[index]));
}

PRINT_ITEMS(print_names, address_files, count, print_name)

const struct option_type type_address_files = {"list of files", read_names, print_names, true, 0};

static void read_files(struct loading *l, const struct address_files *files, enum listed as,
                       struct gathered *all)
{
    if (!files->nodes)
        return;
    for (const struct node *item = list_first(files->nodes); item;
         item = list_next(files->nodes, item))
        if (!item->broken && item->kind == NODE_SCALAR && item->text.n)
            read_address_file(l, item, as, all);
}

void addresses_read(struct loading *l)
{
    struct address_settings *addresses = &l->policy->addresses;
    struct gathered all = {0};

    read_files(l, &addresses->allow, LISTED_ALLOWED, &all);
    read_files(l, &addresses->block, LISTED_BLOCKED, &all);
    addresses->allow.nodes = addresses->block.nodes = NULL;
    if (all.count && !address_table_make(&addresses->table, all.ranges, all.count))
        memory_exhausted();
}
