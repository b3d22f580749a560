/* read_dedup.c - limits.NAME.dedup. */
#include "config/sections.h"

static void read_dedup(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct dedup_settings *dedup = field;

    if (node->null)
        return;
    if (node->kind == NODE_SCALAR) { /* only the header name */
        dedup->repeats = DEDUP_REPEATS_DEFAULT;
        type_text.read(l, option, node, &dedup->header);
    } else if (expect_map(l, node, "a header name or a map such as { header: Idempotency-Key }"))
        options_read(l, node, option->path, field);
    if (dedup->header && !slice_is_token(slice_of(dedup->header))) {
        const struct node *header = node->kind == NODE_SCALAR ? node : node_find(node, "header");
        mistake(l, header, "%s is not a header name", QUOTE(slice_of(dedup->header)));
    }
}

static void print_dedup(const struct printer *printer, const struct option *option,
                        const void *field)
{
    const struct dedup_settings *dedup = field;

    if (dedup->header)
        type_section.print(printer, option, field);
    else
        fputs(" null\n", printer->out);
}

const struct option_type type_dedup = {"map or text", read_dedup, print_dedup, true, 0};
