/* collect_headers.c - collects the request headers that the policy evaluates. */
#include "config/sections.h"
#include "http/chars.h"
#include "policy/identity_source.h"

/* Maximum number of names in identity (from, jwt.header, client_ip_header), limits.NAME.per,
 * limits.NAME.cost.request_header, limits.NAME.dedup, limits.NAME.granted_header,
 * rules[].match.header, rules[].cost.request_header and
 * upstreams.NAME.client_certificate_header. */
static unsigned headers_max(const struct policy *policy)
{
    return IDENTITY_FROM_MAX + 2 + policy->limit_count * (LIMIT_PER_MAX + 3) +
           policy->criterion_count + policy->rule_count + policy->upstream_count;
}

/* Rejects a header that frameworks take the path or the environment from: weir removes it. */
static void refuse_never_forwarded(struct loading *l, const struct node *node, struct slice name)
{
    if (field_id_of(name) == FIELD_NEVER_FORWARDED)
        mistake(l, node,
                "%s is never forwarded, since frameworks take the path or the environment from it; "
                "choose another name",
                QUOTE(name));
}

/* Rejects a twin of another evaluated header or of one that weir knows: it could not be dropped. */
static void refuse_twins(struct loading *l, const struct node *node, struct slice name)
{
    const struct read_headers *headers = &l->policy->read_headers;

    if (name_is_twin_of_known(name)) {
        mistake(l, node,
                "many servers treat %s and the same name with \"-\" as one header, which weir "
                "interprets; choose another name",
                QUOTE(name));
        return;
    }
    for (unsigned i = 0; i < headers->count; i++)
        if (names_are_twins(name, headers->names[i])) {
            mistake(l, node, "many servers treat %s and %s as one header; use only one of them",
                    QUOTE(name), QUOTE(headers->names[i]));
            return;
        }
}

static void add_header(struct loading *l, const char *name, const struct node *node)
{
    struct read_headers *headers = &l->policy->read_headers;
    struct slice text = slice_of(name);

    if (!name || !slice_is_token(text) || read_headers_contain(headers, text))
        return;
    refuse_never_forwarded(l, node, text);
    refuse_twins(l, node, text);
    headers->names[headers->count++] = text;
    headers->has_proxy_claims |= field_id_of(text) == FIELD_PROXY_CLAIM;
    for (size_t i = 0; i < text.n; i++)
        headers->has_odd_names |= !char_is(text.p[i], CHAR_PLAIN);
}

/* Adds a header that only weir sets. The client's own ones and their twins are dropped. */
static void add_own(struct loading *l, const char *name, const struct node *node)
{
    struct policy *policy = l->policy;

    if (!name)
        return;
    add_header(l, name, node);
    policy->own_headers[policy->own_header_count++] = slice_of(name);
}

static void add_of_upstreams(struct loading *l)
{
    const struct node *node = first_in_section(l, "upstreams");

    for (unsigned i = 0; node && i < l->policy->upstream_count; i++, node = node->next)
        add_own(l, l->policy->upstreams[i].certificate_header,
                node_find(node, "client_certificate_header"));
}

/* `node` is the first rule's. */
static void add_of_rules(struct loading *l, const struct node *node)
{
    const struct policy *policy = l->policy;

    for (const struct rule *rule = policy->rules; node; rule++, node = node->next) {
        const struct node *header = node_find(node_find(node, "match"), "header");
        for (const struct node *child = header ? header->first : NULL; child; child = child->next)
            add_header(l, arena_text(l->arena, child->key), child);
        if (rule->cost_request)
            add_header(l, rule->cost_request, node_find(node_find(node, "cost"), "request_header"));
    }
}

static void add_identity(struct loading *l)
{
    const struct identity_settings *settings = &l->policy->identity;
    const struct node *identity = node_find(l->root, "identity");
    const struct node *from = node_at(l, "identity", "from"), *item = list_first(from);

    for (unsigned i = 0; i < settings->from_count && item; i++, item = list_next(from, item)) {
        const struct identity_source *source = settings->from[i].source;
        add_header(l, source->is_header ? settings->from[i].name : source->header, item);
    }
    if (settings->claim_count)
        add_header(l, settings->jwt.header, node_find(node_at(l, "identity", "jwt"), "header"));
    if (settings->drops_client_ip_header)
        add_header(l, settings->client_ip_header, node_find(identity, "client_ip_header"));
}

/* Returns the header that a part of a limit's keys is read from; NULL: none. A token's is that of
 * identity.jwt. */
static const char *header_of_part(const struct policy *policy, const struct limit_part *part)
{
    if (part->per != PER_VALUE)
        return part->per == PER_HEADER ? part->name : NULL;
    const struct identity_source *source = policy->key_sources[part->value].from.source;
    return source ? source->header : NULL;
}

static void add_of_limits(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *node = first_in_section(l, "limits");

    for (unsigned i = 0; i < policy->limit_count && node; i++, node = node->next) {
        const struct limit *limit = &policy->limits[i];
        for (unsigned k = 0; k < limit->per_count; k++)
            add_header(l, header_of_part(policy, &limit->per[k]), node_find(node, "per"));
        if (limit->own_cost)
            add_header(l, limit->own_cost->request_header,
                       node_find(node_find(node, "cost"), "request_header"));
        add_header(l, limit->dedup.header, node_find(node, "dedup"));
        add_own(l, limit->granted_header, node_find(node, "granted_header"));
    }
}

void read_headers_collect(struct loading *l)
{
    struct policy *policy = l->policy;

    policy->read_headers.names = arena_zeroed(l->arena, headers_max(policy), sizeof(struct slice));
    policy->own_headers = arena_zeroed(l->arena, policy->limit_count + policy->upstream_count,
                                       sizeof *policy->own_headers);
    add_identity(l);
    add_of_upstreams(l);
    add_of_limits(l);
    add_of_rules(l, first_in_section(l, "rules"));
}
