/* lint.c - checks across options: contradictions (errors) and probable mistakes (warnings). */
#include "config/lint.h"
#include "config/sections.h"
#include "policy/shipped_limiter.h"

/* Warning threshold: 31 days. With a longer period, counters outlive deployments, and only an
 * eviction or a reset ends a client's wait. Shorter periods end when their counters expire. */
static const int64_t period_long_us = INT64_C(31) * 86400 * 1000000;

/* 10000 charges take 120 KB per client, read and written with each charge (docs/limiters.md). */
enum { LOG_LARGE = 10000 };

static void check_redis(struct loading *l)
{
    const struct redis_settings *redis = &l->policy->redis;

    if (redis->username && !redis->password)
        mistake(l, node_at(l, "redis", "username"), "username requires password; add it");
    if (redis->sentinel.username && !redis->sentinel.password)
        mistake(l, node_find(node_at(l, "redis", "sentinel"), "username"),
                "username requires password; add it");
    if (redis->cluster.count && redis->database)
        mistake(l, node_at(l, "redis", "database"), "a cluster has only database 0; remove it");
    if (redis->embedded && redis->password)
        mistake(l, node_at(l, "redis", redis->password_file ? "password_file" : "password"),
                "the embedded Redis is private and has no password; remove it");
}

/* If any peer could send a PROXY protocol header, any peer could impersonate any client. */
static void check_proxy_protocol(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *listen = node_find(l->root, "listen");
    const struct node *item = list_first(listen);

    for (unsigned i = 0; item && i < policy->listen_count; i++, item = list_next(listen, item))
        if (policy->listen[i].proxy_protocol && policy->identity.trusted_count == 0 &&
            !policy->identity.trust_unix)
            mistake(l, node_find(item, "proxy_protocol"),
                    "is accepted only from identity.trusted_proxies, which is empty");
}

static void check_resolver(struct loading *l)
{
    const struct resolver_settings *resolver = &l->policy->resolver;
    const struct node *max = node_at(l, "resolver", "max_ttl"),
                      *min = node_at(l, "resolver", "min_ttl");

    if (resolver->min_ttl_us > resolver->max_ttl_us)
        mistake(l, max ? max : min, "max_ttl is less than min_ttl");
}

/* --- upstreams --- */

static void warn_of_redis_tls(struct loading *l)
{
    const struct client_tls *tls = &l->policy->redis.tls;

    if (tls->on && !tls->verify)
        warning(
            l, node_find(node_at(l, "redis", "tls"), "verify"),
            "anyone between weir and Redis can read the password and change the counts; name the "
            "authority of Redis' certificate in ca instead");
}

/* A listener on all addresses includes loopback; other addresses of the machine are not known. */
static bool is_own_listener(const struct policy *policy, const struct address *server)
{
    struct ip ip, own;

    for (unsigned i = 0; i < policy->listen_count; i++) {
        const struct address *listener = &policy->listen[i].address;
        if (address_same(listener, server))
            return true;
        if (!ip_of_address(server, &ip) || !ip_of_address(listener, &own) ||
            listener->v4.sin_port != server->v4.sin_port)
            continue;
        bool any = ip_is_v4(&own) ? listener->v4.sin_addr.s_addr == htonl(INADDR_ANY)
                                  : IN6_IS_ADDR_UNSPECIFIED((const struct in6_addr *)own.bytes);
        if (any && ip_is_loopback(&ip))
            return true;
    }
    return false;
}

static void warn_of_loop(struct loading *l, const struct node *servers,
                         const struct upstream *upstream)
{
    const struct node *item = list_first(servers);

    for (unsigned i = 0; item && i < upstream->server_count; i++, item = list_next(servers, item)) {
        if (!server_is_name(&upstream->servers[i]) &&
            is_own_listener(l->policy, &upstream->servers[i].address))
            warning(l, item, "is a listener of weir itself, so requests would go round in a loop");
    }
}

/* A secret in the policy itself, which every user of the machine can read. */
static void warn_of_secrets(struct loading *l)
{
    if (l->secret)
        warn_of_file_mode(l, l->secret, l->report->file);
}

static void warn_of_upstreams(struct loading *l)
{
    const struct node *node = first_in_section(l, "upstreams");

    for (unsigned i = 0; node && i < l->policy->upstream_count; i++, node = node->next) {
        const struct client_tls *tls = &l->policy->upstreams[i].tls;
        if (tls->on && !tls->verify)
            warning(l, node_find(node_find(node, "tls"), "verify"),
                    "an attacker between weir and the servers can read and change all traffic; set "
                    "ca to the servers' authority instead");
        warn_of_loop(l, node_find(node, "servers"), &l->policy->upstreams[i]);
        if (l->policy->upstreams[i].certificate_header && !listeners_verify_clients(l->policy))
            warning(l, node_find(node, "client_certificate_header"),
                    "is never sent, since no listener requests certificates; set client_ca in tls "
                    "of a listener");
    }
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

/* Returns the lowest cost of requests charged to the limit. */
static int64_t lowest_cost(const struct policy *policy, const struct limit *limit)
{
    int64_t lowest = LIMIT_MAX;

    for (unsigned i = 0; i < policy->rule_count; i++) {
        const struct rule *rule = &policy->rules[i];
        int64_t cost = rule->cost_request ? 1 : rule_cost_in(rule, limit);
        for (unsigned k = 0; k < rule->limit_count && !rule->free; k++)
            if (rule->limits[k] == limit && cost < lowest)
                lowest = cost;
    }
    return lowest;
}

static void warn_of_limit(struct loading *l, const struct node *node, const struct limit *limit)
{
    const struct node *burst = node_find(node, "burst"), *period = node_find(node, "period");

    if (!is_used(l->policy, limit) && !limit->in_descriptors)
        warning(l, node, "no rule uses this limit");
    if (burst && limit->kind == LIMIT_BUCKET && limit->burst > limit->limit && !limit->max_delay_us)
        warning(l, burst, "a burst above the limit admits more than twice the limit in one period");
    if (limit->max_delay_us && !limit->best_effort && is_used(l->policy, limit) &&
        limit->burst <= lowest_cost(l->policy, limit))
        warning(l, burst ? burst : node_find(node, "max_delay"),
                "with this burst no request is delayed, so max_delay has no effect; with a burst "
                "of n times the cost of a request, n - 1 requests may wait");
    if (limit->period_us > period_long_us)
        warning(l, period,
                "with this period, only an eviction or a reset in Redis may end the limit");
    if (limit->shipped && limit->shipped->keeps_charges && limit->limit > LOG_LARGE)
        warning(l, node_find(node, "limit"),
                "sliding_window_log stores up to 12 bytes per unit and client, and rewrites them "
                "at each charge; rolling_window needs the same memory for any limit");
}

static void warn_of_limits(struct loading *l)
{
    const struct node *node = first_in_section(l, "limits");

    for (unsigned i = 0; node && i < l->policy->limit_count; i++, node = node->next)
        warn_of_limit(l, node, &l->policy->limits[i]);
}

static void warn_of_access_format(struct loading *l)
{
#define X(name, word, is_json) [name] = (is_json) ? NULL : (word),
    static const char *const other_formats[] = {ACCESS_FORMATS(X)};
#undef X
    const char *other = other_formats[l->policy->log.access];

    if (l->policy->log.format == LOG_JSON && other)
        warning(l, node_at(l, "log", "access"),
                "lines in the %s format are not JSON, so the log is not JSON throughout; use json",
                other);
}

void policy_check(struct loading *l)
{
    check_redis(l);
    check_proxy_protocol(l);
    check_resolver(l);
    if (l->report->mistakes)
        return;
    warn_of_admin(l);
    warn_of_decisions(l);
    warn_of_rate_limit_service(l);
    warn_of_identity(l);
    warn_of_redis_tls(l);
    warn_of_upstreams(l);
    warn_of_limits(l);
    warn_of_rules(l);
    warn_of_paths(l);
    warn_of_costs(l);
    warn_of_access_format(l);
    warn_of_secrets(l);
}
