/* lint_decisions.c - warnings about limits that need more than the decision listener sees. */
#include "config/lint.h"

/* NULL: the limit works on the decision listener. */
static const char *missing_for(const struct limit *limit)
{
    if (limit->kind == LIMIT_CONCURRENCY)
        return "it does not see when a request ends, so this limit counts nothing there";
    if (limit->counted)
        return "it does not see responses, so this limit charges nothing there";
    return NULL;
}

void warn_of_decisions(struct loading *l)
{
    const struct node *limits = node_find(l->root, "limits");
    const struct node *node = limits ? limits->first : NULL;

    if (l->policy->decisions.address.length == 0)
        return;
    for (unsigned i = 0; i < l->policy->limit_count && node; i++, node = node->next) {
        const char *missing = missing_for(&l->policy->limits[i]);
        if (missing)
            warning(l, node, "the listener of decisions cannot apply this limit in full: %s",
                    missing);
    }
}
