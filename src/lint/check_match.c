/* check_match.c - warns about conditions of rules that never hold, or that anyone can meet. */
#include "lint/lint.h"
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

void warn_of_match(struct loading *l, const struct node *item, const struct rule *rule)
{
    const struct node *match = node_find(item, "match");
    bool chosen = false;

    for (unsigned i = 0; i < rule->criterion_count; i++) {
        const struct criterion *criterion = rule->criteria[i];
        switch (criterion->kind) {
        case CRITERION_CLIENT: warn_of_client(l, node_find(match, "client"), criterion); break;
        case CRITERION_SCHEME: warn_of_scheme(l, node_find(match, "scheme"), criterion); break;
        case CRITERION_HEADER:
        case CRITERION_QUERY: chosen = true; break;
        }
    }
    if (chosen && rule->limit_count == 0)
        warning(l, match,
                "anyone can send these headers or query parameters, and is then not limited; use "
                "them for "
                "stricter limits, or match on the client");
}
