/* lint_identity.c - warnings about client identity, and about limits that clients can evade. */
#include "base/values.h"
#include "config/lint.h"
#include "policy/criteria.h"
#include "policy/identity_source.h"
#include "policy/key_values.h"

enum { MADE_UP_MAX = 192 }; /* bytes */

/* Returns true for 0.0.0.0/0 or ::/0. */
static bool is_everyone(const struct ip_range *range)
{
    return range->bits == 0 || (range->bits == 96 && ip_is_v4(&range->ip));
}

static bool trusts_everyone(const struct identity_settings *identity)
{
    for (unsigned i = 0; i < identity->trusted_count; i++)
        if (is_everyone(&identity->trusted[i]))
            return true;
    return false;
}

/* Headers whose values should stand in clear neither in Redis nor in logs, or are no ids. */
static void warn_of_header(struct loading *l, const struct node *item, struct slice name)
{
    if (slice_equal_nocase(name, SLICE("Authorization")) ||
        slice_equal_nocase(name, SLICE("Cookie")))
        warning(l, item,
                "the credentials in this header stand in clear in logs, in the API and in Redis; "
                "set identity.hash to true");
    else if (slice_equal_nocase(name, SLICE("X-Forwarded-For")))
        warning(l, item,
                "every list of addresses is a client of its own; for the client's address, use ip "
                "with trusted_proxies");
}

static void warn_of_sources(struct loading *l)
{
    const struct identity_settings *identity = &l->policy->identity;
    const struct node *from = node_at(l, "identity", "from");
    const struct node *item = list_first(from);
    bool unnoticed = identity->headers_from_anyone && identity->headers_from != HEADERS_FROM_ANYONE;
    bool after_ip = false;

    for (unsigned i = 0; item && i < identity->from_count; i++, item = list_next(from, item)) {
        if (after_ip)
            warning(l, item, "is never used: ip before it always gives a value");
        else if (!identity->from[i].source->verified && unnoticed)
            warning(
                l, item,
                "this %s is accepted from anyone who can connect, since trusted_proxies is empty; "
                "list the proxies that set it, or write headers_from: anyone if servers verify "
                "the ids",
                identity->from[i].source->description);
        if (!after_ip && !identity->hash && identity->from[i].name &&
            slice_starts_with(item->text, SLICE("header:")))
            warn_of_header(l, item, slice_of(identity->from[i].name));
        after_ip |= !identity->from[i].source->is_id;
    }
    if (identity->drops_client_ip_header && identity->trusted_count == 0 && !identity->trust_unix)
        warning(l, node_at(l, "identity", "client_ip_header"),
                "is never read, since trusted_proxies is empty; list the proxies that send it");
    if (trusts_everyone(identity))
        warning(l, node_at(l, "identity", "trusted_proxies"),
                "0.0.0.0/0 and ::/0 trust everyone: any client can choose its address and id; list "
                "the addresses of the proxies");
    if (identity->known_clients_only && clients_count(l->policy->clients) == 0 &&
        !quotas_are_set(&l->policy->quotas))
        warning(l, node_at(l, "identity", "known_clients_only"),
                "clients is empty, so every id is ignored");
}

/* Addresses are not looked up in the database. */
static void warn_of_quotas(struct loading *l)
{
    if (quotas_are_set(&l->policy->quotas) && !identity_has_ids(&l->policy->identity))
        warning(l, node_find(l->root, "quotas"),
                "no quota is ever looked up: quotas apply to ids, and identity.from has no source "
                "of ids before ip");
    if (quotas_are_set(&l->policy->quotas) &&
        l->policy->quotas.unknown_client == UNKNOWN_CLIENT_DENY &&
        !node_at(l, "quotas", "on_failure"))
        warning(l, node_at(l, "quotas", "unknown_client"),
                "if the database is unavailable, ids that are not cached get the limits as "
                "configured; set on_failure to deny to reject them with 503, or to default");
}

/* --- tokens --- */

static void warn_of_no_url(struct loading *l, const struct node *section)
{
    const struct node *refresh = node_find(section, "refresh"), *ca = node_find(section, "ca");

    if (refresh || ca)
        warning(l, refresh ? refresh : ca, "has no effect: identity.jwt.keys names no URL");
}

static void warn_of_jwt(struct loading *l)
{
    const struct identity_settings *identity = &l->policy->identity;
    const struct node *section = node_at(l, "identity", "jwt");

    if (section && identity->jwt.remote_count == 0)
        warn_of_no_url(l, section);
    if (section && identity->claim_count == 0)
        warning(l, section,
                "nothing reads tokens; name \"jwt:CLAIM\" in identity.from or in per of a limit");
    else if (section && !identity->jwt.audience)
        warning(l, section,
                "accepts tokens that were issued for other services; name yours in audience (RFC "
                "8725 section "
                "3.9)");
}

/* --- clients --- */

/* Reports only the first of several similar entries. */
static void warn_of_ids(struct loading *l)
{
    const struct node *id = NULL, *address = NULL;
    struct ip_range range;
    const char *why;

    for (const struct node *node = first_in_section(l, "clients"); node; node = node->next) {
        if (slice_starts_with(node->key, SLICE("ip:")))
            continue;
        id = id ? id : node;
        if (!address && ip_range_parse(node->key, &range, &why))
            address = node;
    }
    if (address)
        warning(l, address,
                "is interpreted as an id from a header; for the address, write \"ip:%.*s\"",
                SLICE_ARG(address->key));
    else if (id && !identity_has_ids(&l->policy->identity))
        warning(l, id,
                "this client never occurs: it is an id, and identity.from has no source of ids "
                "before ip");
}

/* Requests with an id are looked up by id only, so entries for addresses do not apply to them. No
 * warning with known_clients_only, since then only configured ids take precedence. Reports only the
 * first of several similar entries. */
static void warn_of_addresses(struct loading *l)
{
    static const char *const remedies[] = {
        [QUOTA_AS_WRITTEN] =
            "with identity.known_clients_only: true, only ids listed in clients take precedence",
        [QUOTA_PROHIBITED] = "to block the address, add it to a file of addresses.block instead",
        [QUOTA_UNLIMITED] = "to exempt the address, add it to a file of addresses.allow instead"};
    const struct identity_settings *identity = &l->policy->identity;
    bool warned[COUNT_OF(remedies)] = {false};

    if (!identity_has_ids(identity) || identity->known_clients_only)
        return;
    for (unsigned i = 0; i < clients_count(l->policy->clients); i++) {
        const struct client_limits *client_limits =
            &clients_at(l->policy->clients, i)->client_limits;
        enum quota_kind remedy =
            strcmp(client_limits->name, "ip:unix") == 0 ? QUOTA_AS_WRITTEN : client_limits->quota;
        if (strncmp(client_limits->name, "ip:", 3) != 0 || warned[remedy])
            continue;
        warned[remedy] = true;
        warning(l, node_at(l, "clients", client_limits->name),
                "does not apply to requests with an id (identity.from); %s", remedies[remedy]);
    }
}

/* Counts are by prefix, entries by address. An entry without numbers needs no count. */
static void warn_of_neighbours(struct loading *l)
{
    const struct identity_settings *identity = &l->policy->identity;
    char bytes[64];
    struct ip_range range;
    const char *why;

    for (unsigned i = 0; i < clients_count(l->policy->clients); i++) {
        const struct client_limits *client_limits =
            &clients_at(l->policy->clients, i)->client_limits;
        struct text group = text_over(bytes, sizeof bytes);
        if (client_limits->quota != QUOTA_AS_WRITTEN ||
            strncmp(client_limits->name, "ip:", 3) != 0 ||
            !ip_range_parse(slice_of(client_limits->name + 3), &range, &why))
            continue;
        struct ip_range counted = identity_group(identity, &range.ip);
        ip_range_format(&counted, &group);
        if (range.bits <= counted.bits)
            continue;
        warning(
            l, node_at(l, "clients", client_limits->name),
            "all addresses in %.*s share its counts, see identity.%s; write this prefix here, or "
            "set a longer one there",
            SLICE_ARG(text_slice(&group)), ip_is_v4(&range.ip) ? "ipv4_prefix" : "ipv6_prefix");
        return;
    }
}

/* --- limits that clients can evade --- */

/* Sources after `ip` are never used. */
static bool has_unverified_source(const struct identity_settings *identity)
{
    for (unsigned i = 0; i < identity->from_count && identity->from[i].source->is_id; i++)
        if (!identity->from[i].source->verified)
            return true;
    return false;
}

/* Returns true if only ids that the operator lists, or that are in the database, have limits. */
static bool ids_are_listed(const struct policy *policy)
{
    return policy->identity.known_clients_only ||
           (quotas_are_set(&policy->quotas) &&
            policy->quotas.unknown_client == UNKNOWN_CLIENT_DENY);
}

static bool ids_are_unverified(const struct policy *policy)
{
    return policy->identity.headers_from_anyone && has_unverified_source(&policy->identity) &&
           !ids_are_listed(policy);
}

/* Returns the name of a cookie of which several are one id: each further one changes the id. */
static const char *extensible_cookie(const struct policy *policy)
{
    const struct identity_settings *identity = &policy->identity;

    if (identity->cookies != COOKIES_HASH || ids_are_listed(policy))
        return NULL;
    for (unsigned i = 0; i < identity->from_count && identity->from[i].source->is_id; i++)
        if (strcmp(identity->from[i].source->word, "cookie") == 0)
            return identity->from[i].name;
    return NULL;
}

/* Returns whether any client can choose the value: all but claims, of peers that are believed. */
static bool value_is_unverified(const struct policy *policy, const struct limit_part *part)
{
    const struct identity_source *source = policy->key_sources[part->value].from.source;
    return source ? !source->verified && policy->identity.headers_from_anyone : true;
}

/* Returns true if a pattern for paths has one value for this segment, or none. */
static bool segment_is_fixed(struct slice pattern, unsigned number)
{
    if (pattern.n == 0)
        return false;
    struct slice segment = key_segment(pattern, number);
    bool tree = pattern.n >= 3 && memcmp(pattern.p + pattern.n - 3, "/**", 3) == 0;

    return segment.n ? !memchr(segment.p, '*', segment.n) : !tree;
}

/* Returns true if requests match the rule with listed values of this part only. With
 * paths.ambiguous: allow, others of a repeated header or parameter match, too. */
static bool values_are_listed(const struct policy *policy, const struct rule *rule,
                              const struct limit_part *part)
{
    struct slice name = slice_of(part->name ? part->name : "");
    struct slice key = {part->written, part->name ? (size_t)(part->name - part->written) - 1 : 0};

    if (part->per == PER_VALUE && policy->key_sources[part->value].segment)
        return segment_is_fixed(rule->path, policy->key_sources[part->value].segment);
    for (unsigned i = 0; i < rule->criterion_count; i++) {
        const struct criterion *one = rule->criteria[i];
        bool same = one->kind->names_ignore_case ? slice_equal_nocase(one->name, name)
                                                 : slice_equal(one->name, name);
        if (same && slice_equal(key, slice_of(one->kind->key)) && !criterion_has_star(one))
            return policy->paths.ambiguous == AMBIGUOUS_REJECT;
    }
    return false;
}

/* Describes the values that any client can invent for this part of `per`; "": none. */
static const char *made_up(const struct policy *policy, const struct rule *rule,
                           const struct limit_part *part, char words[static MADE_UP_MAX])
{
    bool any_host = rule->host.n == 0 || memchr(rule->host.p, '*', rule->host.n);

    words[0] = 0;
    if (values_are_listed(policy, rule, part))
        return "";
    if (part->per == PER_CLIENT && ids_are_unverified(policy))
        return "ids";
    const char *cookie = part->per == PER_CLIENT ? extensible_cookie(policy) : NULL;
    if (cookie)
        snprintf(words, MADE_UP_MAX, "further cookies named %s (identity.cookies: hash)", cookie);
    if (part->per == PER_HOST && any_host)
        return "hosts";
    if (part->per == PER_METHOD && rule->any_method)
        return "methods";
    if (part->per == PER_HEADER && policy->identity.headers_from_anyone)
        snprintf(words, MADE_UP_MAX, "values of %s", part->name);
    if (part->per == PER_JSON)
        snprintf(words, MADE_UP_MAX, "values of %s", part->written);
    if (part->per == PER_VALUE && value_is_unverified(policy, part))
        snprintf(words, MADE_UP_MAX, "values of %s", part->written);
    return words;
}

static const char *made_up_part(const struct policy *policy, const struct rule *rule,
                                const struct limit *limit, char words[static MADE_UP_MAX])
{
    for (unsigned i = 0; i < limit->per_count; i++) {
        const char *what = made_up(policy, rule, &limit->per[i], words);
        if (*what)
            return what;
    }
    return "";
}

/* Returns true if `bound` is an enforced rate limit on every request that `limit` counts. */
static bool counts_as_much(const struct limit *bound, const struct limit *limit)
{
    if (bound->kind == LIMIT_CONCURRENCY || bound->enforce != SHARE_WHOLE)
        return false;
    for (unsigned status = STATUS_MIN; status <= STATUS_MAX; status++)
        if (statuses_hold(limit->counted, status) && !statuses_hold(bound->counted, status))
            return false;
    return true;
}

/* Returns true if another limit of the rule bounds this one, whatever values clients invent. */
static bool is_bounded(const struct policy *policy, const struct rule *rule,
                       const struct limit *limit)
{
    char words[MADE_UP_MAX];

    for (unsigned i = 0; i < rule->limit_count; i++)
        if (!*made_up_part(policy, rule, rule->limits[i], words) &&
            counts_as_much(rule->limits[i], limit))
            return true;
    return false;
}

static void warn_of_made_up(struct loading *l, const struct node *node, const struct rule *rule)
{
    char words[MADE_UP_MAX];

    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit *limit = rule->limits[i];
        const char *what = made_up_part(l->policy, rule, limit, words);
        if (!*what || is_bounded(l->policy, rule, limit))
            continue;
        warning(l, node_find(node, "limits"),
                "anyone can invent %s, and limit %s counts each separately: every invented one "
                "gets a fresh limit and a new key in Redis; add an enforced rate limit with per: "
                "ip or per: all",
                what, limit->name);
        return;
    }
}

void warn_of_identity(struct loading *l)
{
    const struct node *rule = first_in_section(l, "rules");

    warn_of_sources(l);
    warn_of_jwt(l);
    warn_of_quotas(l);
    warn_of_ids(l);
    warn_of_addresses(l);
    warn_of_neighbours(l);
    for (unsigned i = 0; rule && i + 1 < l->policy->rule_count; i++, rule = rule->next)
        warn_of_made_up(l, rule, &l->policy->rules[i]);
}
