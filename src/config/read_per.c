/* read_per.c - limits.NAME.per: the keys of a limit. */
#include "config/sections.h"

static const char *const per_names[] = {
    [PER_CLIENT] = "client", [PER_IP] = "ip",     [PER_ROUTE] = "route",
    [PER_METHOD] = "method", [PER_HOST] = "host", [PER_ALL] = "all",
};

static bool read_part(struct loading *l, const struct node *item, struct limit_part *part)
{
    static const char expected[] = "client, ip, route, method, host, all or header:NAME";
    struct suggestion meant = suggestion_for(item->text);

    if (!expect_scalar(l, item, expected))
        return false;
    struct slice name = {item->text.p + 7, item->text.n - 7};
    if (slice_starts_with(item->text, SLICE("header:")) && slice_is_token(name) && name.n <= 128) {
        *part = (struct limit_part){PER_HEADER, arena_text(l->arena, name)};
        return true;
    }
    for (unsigned i = 0; i < COUNT_OF(per_names); i++) {
        suggestion_consider(&meant, slice_of(per_names[i]));
        if (slice_equal(item->text, slice_of(per_names[i]))) {
            part->per = (enum limit_per)i;
            return true;
        }
    }
    mistake(l, item, "%s is unknown; expected %s%s", QUOTE(item->text), expected,
            DID_YOU_MEAN(&meant));
    return false;
}

static bool same_part(const struct limit_part *a, const struct limit_part *b)
{
    return a->per == b->per &&
           (a->per != PER_HEADER || slice_equal_nocase(slice_of(a->header), slice_of(b->header)));
}

static bool part_fits(struct loading *l, const struct node *item, const struct limit *limit,
                      const struct limit_part *part)
{
    for (unsigned i = 0; i < limit->per_count; i++) {
        if (same_part(&limit->per[i], part)) {
            mistake(l, item, "%s is listed twice", QUOTE(item->text));
            return false;
        }
        if (limit->per[i].per == PER_ALL || part->per == PER_ALL) {
            mistake(l, item, "all cannot be combined with other attributes; remove one of them");
            return false;
        }
    }
    return true;
}

/* PER_CLIENT goes first, because limit_is_per_client() checks only per[0]. */
static void insert_part(struct limit *limit, struct limit_part part)
{
    unsigned at = part.per == PER_CLIENT ? 0 : limit->per_count;
    memmove(&limit->per[at + 1], &limit->per[at], (limit->per_count - at) * sizeof part);
    limit->per[at] = part;
    limit->per_count++;
}

static void read_per(struct loading *l, const struct option *option, const struct node *node,
                     void *field)
{
    struct limit *limit = field;

    if (!expect_items(l, option, node, "of client, ip, route, method, host, all and header:NAME"))
        return;
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        struct limit_part part = {0};
        if (!item->broken && read_part(l, item, &part) && part_fits(l, item, limit, &part))
            insert_part(limit, part);
    }
}

static void print_part(FILE *out, const void *limit, unsigned index)
{
    const struct limit_part *part = &((const struct limit *)limit)->per[index];

    if (part->per == PER_HEADER)
        fprintf(out, "\"header:%s\"", part->header);
    else
        fputs(per_names[part->per], out);
}

static void print_per(const struct printer *printer, const struct option *option, const void *field)
{
    (void)option;
    print_items(printer, ((const struct limit *)field)->per_count, print_part, field);
}

const struct option_type type_per = {"word or list", read_per, print_per, false, 0};
