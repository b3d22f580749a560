/* check.c - what no single option shows: contradictions between sections, and what is probably a mistake. */
#include "policy/parts.h"

/* Months are bounded by their counters' expiry as usual; beyond them a counter outlives deployments and only
 * an eviction or a reset would end a client's wait. */
static const int64_t period_long_us = INT64_C(31) * 86400 * 1000000;

/* So many charges are 120 KB for each client, read and written with each of them (docs/limiters.md). */
enum { LOG_LARGE = 10000 };

static const struct node *node_at(const struct loading *l, const char *section, const char *key)
{
    const struct node *map = node_find(l->root, section);
    return map ? node_find(map, key) : NULL;
}

static void check_redis(struct loading *l)
{
    const struct redis_settings *redis = &l->policy->redis;

    if (redis->username && !redis->password)
        mistake(l, node_at(l, "redis", "username"), "a username needs a password beside it");
    if (redis->sentinel.username && !redis->sentinel.password)
        mistake(l, node_find(node_at(l, "redis", "sentinel"), "username"),
                "a username needs a password beside it");
    if (redis->cluster.count && redis->database)
        mistake(l, node_at(l, "redis", "database"), "a cluster has database 0 alone; remove it");
    if (redis->embedded && redis->password)
        mistake(l, node_at(l, "redis", redis->password_file ? "password_file" : "password"),
                "the embedded Redis is private and has no password; remove it");
}

/* A header that anybody may send would make anybody any client. */
static void check_proxy_protocol(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *listen = node_find(l->root, "listen");
    const struct node *item = listen ? list_first(listen) : NULL;

    for (unsigned i = 0; item && i < policy->listen_count; i++, item = list_next(listen, item))
        if (policy->listen[i].proxy_protocol && policy->identity.trusted_count == 0 &&
            !policy->identity.trust_unix)
            mistake(l, node_find(item, "proxy_protocol"),
                    "is believed of identity.trusted_proxies alone, and they name nobody");
}

/* --- identity --- */

static void warn_of_identity(struct loading *l)
{
    const struct identity_settings *identity = &l->policy->identity;
    const struct node *from = node_at(l, "identity", "from");
    const struct node *item = from ? list_first(from) : NULL;
    bool unnoticed = identity->headers_from_anyone && identity->headers_from != HEADERS_FROM_ANYONE;

    for (unsigned i = 0; item && i < identity->from_count; i++, item = list_next(from, item)) {
        if (identity->from[i].source == IDENTITY_HEADER && unnoticed)
            warning(l, item,
                    "this header is believed from anyone who can connect, since trusted_proxies names "
                    "nobody; name "
                    "the proxies that set it, or write headers_from: anyone if servers verify the ids");
        if (i > 0 && identity->from[i - 1].source == IDENTITY_IP)
            warning(l, item, "is never looked at: ip before it always gives a value");
    }
    if (identity->known_clients_only && clients_count(l->policy->clients) == 0 &&
        !quotas_are_there(l->policy))
        warning(l, node_at(l, "identity", "known_clients_only"),
                "clients knows none: every id is passed over");
}

static void check_resolver(struct loading *l)
{
    const struct resolver_settings *resolver = &l->policy->resolver;
    const struct node *max = node_at(l, "resolver", "max_ttl"), *min = node_at(l, "resolver", "min_ttl");

    if (resolver->min_ttl_us > resolver->max_ttl_us)
        mistake(l, max ? max : min, "max_ttl is less than min_ttl");
}

/* --- upstreams --- */

static void warn_of_upstreams(struct loading *l)
{
    const struct node *upstreams = node_find(l->root, "upstreams");
    const struct node *node = upstreams ? upstreams->first : NULL;

    for (unsigned i = 0; node && i < l->policy->upstream_count; i++, node = node->next) {
        const struct upstream_tls *tls = &l->policy->upstreams[i].tls;
        if (tls->on && !tls->verify)
            warning(l, node_find(node_find(node, "tls"), "verify"),
                    "whoever gets between weir and the servers can read and change all that passes; name the "
                    "servers' authority in ca instead");
    }
}

/* --- clients --- */

static bool has_ids(const struct identity_settings *identity)
{
    for (unsigned i = 0; i < identity->from_count; i++)
        if (identity->from[i].source == IDENTITY_HEADER)
            return true;
    return false;
}

/* Addresses are not looked up. */
static void warn_of_quotas(struct loading *l)
{
    if (quotas_are_there(l->policy) && !has_ids(&l->policy->identity))
        warning(l, node_find(l->root, "quotas"),
                "nobody is looked up: quotas are for ids, and identity.from names no header");
}

/* Of many that are alike the first is told. */
static void warn_of_clients(struct loading *l)
{
    const struct node *clients = node_find(l->root, "clients");
    const struct node *id = NULL, *address = NULL;
    struct ip_range range;
    const char *why;

    for (const struct node *node = clients ? clients->first : NULL; node; node = node->next) {
        if (slice_starts_with(node->key, SLICE("ip:")))
            continue;
        id = id ? id : node;
        if (!address && ip_range_parse(node->key, &range, &why))
            address = node;
    }
    if (address)
        warning(l, address, "is taken for an id from a header; for the address write \"ip:%.*s\"",
                SLICE_ARG(address->key));
    else if (id && !has_ids(&l->policy->identity))
        warning(l, id, "nobody is this client: it is an id, and identity.from names no header");
}

/* --- limits --- */

static bool is_used(const struct policy *policy, const struct limit *limit)
{
    for (unsigned i = 0; i < policy->rule_count; i++)
        for (unsigned k = 0; k < policy->rules[i].limit_count; k++)
            if (policy->rules[i].limits[k] == limit)
                return true;
    return false;
}

static void warn_of_limit(struct loading *l, const struct node *node, const struct limit *limit)
{
    const struct node *burst = node_find(node, "burst"), *period = node_find(node, "period");

    if (!is_used(l->policy, limit))
        warning(l, node, "no rule uses this limit");
    if (burst && limit->kind == LIMIT_BUCKET && limit->burst > limit->limit && !limit->max_delay_us)
        warning(l, burst, "a burst above the limit lets more than twice the limit through in one period");
    if (limit->period_us > period_long_us)
        warning(l, period, "so long that only an eviction or a reset in Redis may end it");
    if (limit->kind == LIMIT_WINDOW && strcmp(limit->script, "sliding_window_log") == 0 &&
        limit->limit > LOG_LARGE)
        warning(
            l, node_find(node, "limit"),
            "sliding_window_log keeps up to 12 bytes for each of them and client, and rewrites all with each "
            "charge; rolling_window needs no more for many than for few");
}

static void warn_of_limits(struct loading *l)
{
    const struct node *limits = node_find(l->root, "limits");
    const struct node *node = limits ? limits->first : NULL;
    for (unsigned i = 0; node && i < l->policy->limit_count; i++, node = node->next)
        warn_of_limit(l, node, &l->policy->limits[i]);
}

/* --- rules --- */

/* A segment that other routers take for "any": {id} (OpenAPI), :id (Express), <id> (Flask), .* (regular expressions).
 * Empty: none. */
static struct slice foreign_segment(struct slice path)
{
    for (size_t i = 1, end; i < path.n; i = end + 1) {
        const char *slash = memchr(path.p + i, '/', path.n - i);
        end = slash ? (size_t)(slash - path.p) : path.n;
        struct slice segment = {path.p + i, end - i};
        char first = segment.n > 1 ? segment.p[0] : 0, last = segment.n > 1 ? segment.p[segment.n - 1] : 0;
        if ((first == '{' && last == '}') || first == ':' || (first == '<' && last == '>') ||
            (segment.n > 1 && memmem(segment.p, segment.n, ".*", 2)))
            return segment;
    }
    return SLICE_NONE;
}

static void warn_of_path(struct loading *l, const struct node *rule)
{
    const struct node *match = node_find(rule, "match"), *path = match ? node_find(match, "path") : NULL;
    struct slice segment = path && path->kind == NODE_SCALAR ? foreign_segment(path->text) : SLICE_NONE;

    if (segment.n)
        warning(l, path, "%s is no wildcard here; * is any segment, and /** at the end all below",
                QUOTE(segment));
}

static void warn_of_rules(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *list = node_find(l->root, "rules");
    const struct node *item = list ? list->first : NULL;

    for (const struct node *rule = item; rule; rule = rule->next)
        warn_of_path(l, rule);
    for (unsigned i = 0; item && i + 1 < policy->rule_count; i++, item = item->next)
        for (unsigned before = 0; before < i; before++)
            if (rule_covers(&policy->rules[before], &policy->rules[i])) {
                warning(l, item,
                        "no request reaches this rule: the one at line %u matches all that it matches",
                        policy->rules[before].place.line);
                break;
            }
}

static void warn_of_log(struct loading *l)
{
    if (l->policy->log.format == LOG_JSON && l->policy->log.access == ACCESS_COMBINED)
        warning(l, node_at(l, "log", "access"),
                "the lines of combined are no JSON, so the log is not JSON on every line; use json");
}

void policy_check(struct loading *l)
{
    check_redis(l);
    check_proxy_protocol(l);
    check_resolver(l);
    if (l->report->mistakes)
        return;
    warn_of_identity(l);
    warn_of_quotas(l);
    warn_of_clients(l);
    warn_of_upstreams(l);
    warn_of_limits(l);
    warn_of_rules(l);
    warn_of_paths(l);
    warn_of_costs(l);
    warn_of_log(l);
}
