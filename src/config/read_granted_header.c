/* read_granted_header.c - limits.NAME.granted_header. */
#include "config/sections.h"
#include "http/head.h"

bool limit_has_granted_header(const void *limit)
{
    return ((const struct limit *)limit)->granted_header != NULL;
}

static void read_granted(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    if (node->null)
        return;
    if (!expect_text(l, option, node, "a header's name"))
        return;
    if (!slice_is_token(node->text) || field_id_of(node->text) != FIELD_OTHER) {
        mistake(l, node, "%s cannot be set: use the name of a header that weir does not know",
                QUOTE(node->text));
        return;
    }
    *(char **)field = keep_text(l, node);
    l->policy->has_granted_headers = true;
}

const struct option_type type_granted_header = {"text", read_granted, print_text, true,
                                                sizeof(char *)};

static bool any_rule_has_best_effort(const struct node *rules)
{
    const struct node *item = rules && rules->kind == NODE_LIST ? list_first(rules) : NULL;

    for (; item; item = list_next(rules, item))
        if (node_find(item, "best_effort"))
            return true;
    return false;
}

void limit_check_granted_header(struct loading *l, const struct node *node,
                                const struct limit *limit)
{
    const struct node *key = node_find(node, "granted_header");

    if (!limit->granted_header)
        return;
    if (!limit->best_effort && !any_rule_has_best_effort(node_find(l->root, "rules")))
        mistake_of_key(l, key,
                       "without best_effort the whole cost is granted; add best_effort: true");
    for (const struct limit *other = l->policy->limits; other < limit; other++)
        if (other->granted_header &&
            slice_equal_nocase(slice_of(other->granted_header), slice_of(limit->granted_header)))
            mistake(l, key, "limit %s has this header too; choose another name", other->name);
}
