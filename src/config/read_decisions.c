/* read_decisions.c - section decisions: completes it, and adds its listener to those of clients. */
#include "config/lint.h"
#include "config/sections.h"

bool has_decisions(const void *policy)
{
    return ((const struct policy *)policy)->decisions.address.length > 0;
}

/* The default: proxies on this machine, and identity.trusted_proxies. */
static void trust_by_default(struct policy *policy)
{
    static const char *const loopback[] = {"127.0.0.0/8", "::1"};
    const struct identity_settings *proxies = &policy->identity;
    struct identity_settings *trusted = &policy->decisions.peers;
    const char *why;

    if (trusted->trusted_count || trusted->trust_unix)
        return;
    trusted->trusted = arena_zeroed(policy->arena, COUNT_OF(loopback) + proxies->trusted_count,
                                    sizeof *trusted->trusted);
    for (unsigned i = 0; i < COUNT_OF(loopback); i++)
        trusted->trusted_count +=
            ip_range_parse(slice_of(loopback[i]), &trusted->trusted[trusted->trusted_count], &why);
    for (unsigned i = 0; i < proxies->trusted_count; i++)
        trusted->trusted[trusted->trusted_count++] = proxies->trusted[i];
    trusted->trust_unix = true;
}

static void add_listener(struct loading *l, const struct node *node)
{
    struct policy *policy = l->policy;
    struct listen_settings *all =
        arena_zeroed(policy->arena, policy->listen_count + 1, sizeof *all);

    for (unsigned i = 0; i < policy->listen_count; i++) {
        all[i] = policy->listen[i];
        if (address_same(&all[i].address, &policy->decisions.address) &&
            (address_is_unix(&all[i].address) || all[i].address.v4.sin_port != 0))
            mistake(l, node, "is an address of listen as well; use another one");
    }
    all[policy->listen_count] =
        (struct listen_settings){.address = policy->decisions.address, .decides = true};
    policy->listen = all;
    policy->listen_count++;
}

void decisions_finish(struct loading *l)
{
    const struct node *section = node_find(l->root, "decisions");
    const struct node *listen = section ? node_find(section, "listen") : NULL;

    if (section && section->kind == NODE_MAP && !section->broken && !listen)
        mistake(l, section,
                "listen is missing: the address for other proxies, such as 127.0.0.1:9190");
    if (!has_decisions(l->policy))
        return;
    trust_by_default(l->policy);
    add_listener(l, listen);
}
