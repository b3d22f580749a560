/* lint_listeners.c - warns about admin listeners, and about limits that need more than the decision
 * listener sees. */
#include "config/lint.h"
#include "policy/identity_source.h"

/* ---- admin ----------------------------------------------------------------------------------- */

static bool is_loopback(const struct address *address)
{
    struct ip ip;

    return !ip_of_address(address, &ip) /* a Unix socket */ || ip_is_loopback(&ip);
}

static bool requires_certificates(const struct listen_tls *tls)
{
    return tls && tls->entries[0].client_ca &&
           tls->entries[0].client_certificate == CLIENT_CERTIFICATE_REQUIRED;
}

void warn_of_admin(struct loading *l)
{
    const struct node *admin = node_find(l->root, "admin");
    const struct node *item = !admin ? NULL : admin->kind == NODE_MAP ? admin : list_first(admin);

    for (unsigned i = 0; item && i < l->policy->admin_count; i++, item = list_next(admin, item)) {
        const struct admin_listener *listener = &l->policy->admin[i];
        if (!listener->token && !listener->read_only && !is_loopback(&listener->address) &&
            !requires_certificates(listener->tls))
            warning(l, item,
                    "anyone who can connect to this address may read the policy and reset and "
                    "grant limits; "
                    "add token_file, or read_only: true");
    }
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* NULL: the limit works on the decision listener. */
static const char *missing_for(const struct limit *limit)
{
    if (limit->kind == LIMIT_CONCURRENCY)
        return "it does not see when a request ends, so this limit counts nothing there";
    if (limit->counted)
        return "it does not see responses, so this limit charges nothing there";
    if (limit->own_cost && limit_cost_is_adjusted(limit->own_cost))
        return "it does not see responses, so requests cost the reserve there";
    return NULL;
}

/* The first rule with match.json. */
static const struct node *rule_with_json(const struct loading *l)
{
    for (const struct node *item = first_in_section(l, "rules"); item; item = item->next)
        if (node_find(node_find(item, "match"), "json"))
            return item;
    return NULL;
}

void warn_of_decisions(struct loading *l)
{
    const struct node *with_json = rule_with_json(l);
    const struct node *node = first_in_section(l, "limits");

    if (l->policy->decisions.address.length == 0)
        return;
    if (l->policy->identity.paths)
        warning(l, node_at(l, "identity", "from"),
                "the listener of decisions sees no content: json sources have no value there");
    for (unsigned i = 0; i < l->policy->identity.from_count; i++)
        if (strcmp(l->policy->identity.from[i].source->word, "certificate") == 0) {
            warning(l, node_at(l, "identity", "from"),
                    "the listener of decisions does not see the certificates of the other proxy's "
                    "clients: certificate sources have no value there");
            break;
        }
    if (with_json)
        warning(l, with_json,
                "the listener of decisions sees no content: rules with match.json match nothing "
                "there");
    for (unsigned i = 0; i < l->policy->limit_count && node; i++, node = node->next) {
        const char *missing = missing_for(&l->policy->limits[i]);
        if (missing)
            warning(l, node, "the listener of decisions cannot apply this limit in full: %s",
                    missing);
    }
}

/* ---- rate_limit_service ---------------------------------------------------------------------- */

/* The timeout of Envoy's filter, if its configuration has none. */
enum { ENVOY_TIMEOUT_US = 20000 };

void warn_of_rate_limit_service(struct loading *l)
{
    const struct node *timeout = node_at(l, "redis", "timeout");

    if (l->policy->rate_limit_service.is_set && l->policy->redis.timeout_us > ENVOY_TIMEOUT_US)
        warning(l, timeout ? timeout : node_find(l->root, "rate_limit_service"),
                "Envoy waits 20 ms for the rate limit service by default, and redis.timeout is "
                "longer; set it to 15ms, or the timeout of Envoy's filter to more");
}
