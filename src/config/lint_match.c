/* lint_match.c - warns about conditions of rules that never hold, or that anyone can meet. */
#include "config/lint.h"
#include "policy/criteria.h"
#include "policy/identity_source.h"

static bool has_ids(const struct identity_settings *identity)
{
    return identity->from_count && identity->from[0].source->is_id;
}

static void warn_of_client(struct loading *l, const struct node *client,
                           const struct criterion *criterion)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (criterion->clients[i].identity.n && !has_ids(&l->policy->identity)) {
            warning(l, client,
                    "client %s never occurs: it is an id, and identity.from has no source of ids "
                    "before ip",
                    QUOTE(criterion->patterns[i]));
            return;
        }
}

static bool has_listener(const struct policy *policy, bool tls)
{
    for (unsigned i = 0; i < policy->listen_count; i++)
        if ((policy->listen[i].tls != NULL) == tls)
            return true;
    return false;
}

static void warn_of_scheme(struct loading *l, const struct node *scheme,
                           const struct criterion *criterion)
{
    const struct policy *policy = l->policy;
    bool https = slice_equal(criterion->patterns[0], SLICE("https"));

    if (criterion->count == 1 && !has_listener(policy, https) &&
        policy->identity.trusted_count == 0 && !policy->identity.trust_unix)
        warning(l, scheme,
                "no request has this scheme: no listener has %s, and trusted_proxies is empty",
                https ? "tls" : "cleartext");
}

/* The warnings of single keys. */
static const struct {
    const char *key;
    void (*warn)(struct loading *l, const struct node *node, const struct criterion *criterion);
} checks[] = {{"client", warn_of_client}, {"scheme", warn_of_scheme}};

void warn_of_match(struct loading *l, const struct node *item, const struct rule *rule)
{
    const struct node *match = node_find(item, "match");
    bool chosen = false;

    for (unsigned i = 0; i < rule->criterion_count; i++) {
        const struct criterion *criterion = rule->criteria[i];
        chosen |= criterion->kind->is_chosen;
        for (size_t k = 0; k < COUNT_OF(checks); k++)
            if (strcmp(criterion->kind->key, checks[k].key) == 0)
                checks[k].warn(l, node_find(match, checks[k].key), criterion);
    }
    if (chosen && rule->limit_count == 0)
        warning(l, match,
                "anyone can send these headers or query parameters, and is then not limited; use "
                "them for "
                "stricter limits, or match on the client");
}
