/* read_priorities.c - section priorities, and the priority of rules, plans and clients. */
#include "config/sections.h"

static void read_share(struct loading *l, const struct option *option, const struct node *node,
                       struct priority *priority)
{
    const struct priority *higher = priority > l->policy->priorities ? priority - 1 : NULL;

    if (!expect_scalar(l, node, "a share such as 80%"))
        return;
    type_share.read(l, option, node, &priority->share);
    if (higher && higher->share && priority->share >= higher->share)
        mistake(l, node,
                "is not less than the share of %s before it; list the priorities from the highest "
                "to the lowest",
                higher->name);
}

static void read_priorities(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct policy *policy = field;

    if (!expect_map(l, node, "a map of shares by name, such as { critical: 100%, batch: 50% }"))
        return;
    if (node->count > PRIORITIES_MAX) {
        mistake(l, node, "has %u priorities; expected at most %d", node->count, PRIORITIES_MAX);
        return;
    }
    policy->priorities = arena_zeroed(l->arena, node->count, sizeof *policy->priorities);
    policy->default_priority = node->count ? policy->priorities : NULL;
    for (const struct node *child = node->first; child; child = child->next) {
        struct priority *priority = &policy->priorities[policy->priority_count++];
        priority->name = arena_text(l->arena, child->key);
        priority->position = child->key_position;
        (void)name_is_good(l, child);
        read_share(l, option, child, priority);
        if (slice_equal(child->key, SLICE("default")))
            policy->default_priority = priority;
    }
}

static void print_priorities(const struct printer *printer, const void *field)
{
    const struct policy *policy = field;

    fputs(policy->priority_count ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < policy->priority_count; i++) {
        struct printer below = printer_below(printer);
        print_key(&below, slice_of(policy->priorities[i].name));
        type_share.print(&below, &policy->priorities[i].share);
    }
}

const struct option_type type_priorities = {"map by name", read_priorities, print_priorities, true,
                                            0};

static void read_priority(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    int index;

    (void)option;
    if (node->null || !expect_scalar(l, node, "a priority's name"))
        return;
    if (!l->policy->priority_count)
        mistake(l, node, "there are no priorities; add the section priorities");
    else if ((index = policy_index(l, node, false, priority_at, "priority")) >= 0)
        *(const struct priority **)field = &l->policy->priorities[index];
}

static void print_priority(const struct printer *printer, const void *field)
{
    const struct priority *const *priority = field;

    print_scalar_value(printer, slice_of((*priority)->name));
}

const struct option_type type_priority = {"name", read_priority, print_priority, true,
                                          sizeof(const struct priority *)};
