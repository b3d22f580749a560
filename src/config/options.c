#include "config/options.h"

#include <stddef.h>

#include "base/log.h"
#include "config/parts.h"
#include "config/types.h"
#include "config/values.h"

#define MS(n)    (INT64_C(n) * 1000)
#define SEC(n)   (INT64_C(n) * 1000000)
#define HOURS(n) (SEC(n) * 3600)
#define KIB(n)   (INT64_C(n) << 10)
#define MIB(n)   (INT64_C(n) << 20)

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};
static const char *const unknown_client_names[] = {
    [UNKNOWN_CLIENT_DEFAULT] = "default", [UNKNOWN_CLIENT_DENY] = "deny", NULL};
static const char *const headers_from_names[] = {
    [HEADERS_FROM_TRUSTED] = "trusted", [HEADERS_FROM_ANYONE] = "anyone", NULL};
static const char *const half_close_names[] = {[HALF_CLOSE_END] = "end", [HALF_CLOSE_ALLOW] = "allow", NULL};
static const char *const level_names[] = {
    [LEVEL_ERROR] = "error", [LEVEL_WARN] = "warn", [LEVEL_INFO] = "info", [LEVEL_DEBUG] = "debug", NULL};
static const char *const format_names[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json", NULL};
static const char *const dot_segment_names[] = {
    [DOT_SEGMENTS_REJECT] = "reject", [DOT_SEGMENTS_NORMALIZE] = "normalize", NULL};
static const char *const ambiguous_names[] = {
    [AMBIGUOUS_REJECT] = "reject", [AMBIGUOUS_ALLOW] = "allow", NULL};
static const char *const trailing_slash_names[] = {
    [TRAILING_SLASH_IGNORE] = "ignore", [TRAILING_SLASH_EXACT] = "exact", NULL};
static const char *const access_names[] = {
    [ACCESS_OFF] = "off", [ACCESS_JSON] = "json", [ACCESS_COMBINED] = "combined", NULL};

static bool idle_is_written(const void *policy)
{
    return ((const struct policy *)policy)->timeouts.idle_us != 0;
}

#define OF(member)      offsetof(struct policy, member)
#define LISTEN(m)       offsetof(struct listen_settings, m)
#define ADMIN(m)        offsetof(struct admin_settings, m)
#define CERTIFICATE(m)  offsetof(struct certificate_files, m)
#define UPSTREAM(m)     offsetof(struct upstream, m)
#define UPSTREAM_TLS(m) offsetof(struct upstream_tls, m)
#define HEALTH(m)       offsetof(struct upstream_health, m)
#define RETRY(m)        offsetof(struct upstream, retry.m)
#define EJECT(m)        offsetof(struct upstream, eject.m)
#define LIMIT(m)        offsetof(struct limit, m)
#define DEDUP(m)        offsetof(struct dedup_settings, m)
#define RULE(m)         offsetof(struct rule, m)
#define NUMBERS(m)      offsetof(struct limit_numbers, m)
#define RESTART         OPTION_RESTART
#define REQUIRED        OPTION_REQUIRED
#define DERIVED         OPTION_DERIVED

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
const struct option options[] = {
    {"workers", &type_workers, OF(workers), "auto", 1, 256, RESTART, NULL, NULL,
     "threads, each with its own listeners, upstream and Redis connections; auto: one per processor"},
    {"listen", &type_listen, 0, "0.0.0.0:8080", 1, LISTEN_MAX, RESTART, NULL, NULL,
     "where clients connect: host:port, [ipv6]:port or unix:/path, or a list of them"},
    {"listen[].address", &type_address, LISTEN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "the address of a listener that is written as a map"},
    {"listen[].tls", &type_listen_tls, 0, "", 0, CERTIFICATES_MAX, 0, NULL, NULL,
     "TLS 1.2 and newer, with this certificate, or a list of them for several hosts or kinds of keys; the "
     "files are read "
     "again "
     "with a reload"},
    {"listen[].tls.certificate", &type_text, CERTIFICATE(certificate), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "a PEM file with the certificate and those that lead to a trusted one"},
    {"listen[].tls.key", &type_text, CERTIFICATE(key), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "a PEM file with its private key"},
    {"listen[].proxy_protocol", &type_bool, LISTEN(proxy_protocol), "false", 0, 0, RESTART, NULL, NULL,
     "connections come from a proxy among identity.trusted_proxies and begin with the PROXY protocol's "
     "header "
     "(version 1 or 2)"},
    {"admin", &type_admin, OF(admin), "", 0, 0, RESTART, NULL, NULL,
     "where health, readiness and metrics are served: an address, or a map; nowhere unless given"},
    {"admin.address", &type_address, ADMIN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "host:port, [ipv6]:port or unix:/path"},
    {"admin.hosts", &type_admin_hosts, ADMIN(hosts), "[]", 0, ADMIN_HOSTS_MAX, 0, NULL, NULL,
     "host names by which the admin listener may be asked, beside IP addresses and localhost"},

    {"redis", &type_section, 0, "", 0, 0, 0, NULL, NULL, "where it is kept what clients have used"},
    {"redis.address", &type_redis_address, OF(redis), "127.0.0.1:6379", 0, 0, 0, NULL, redis_has_address,
     "host:port, unix:/path, redis://USER:PASSWORD@HOST:PORT/DATABASE, or embedded: a private redis-server "
     "that weir "
     "starts and stops (at a start alone)"},
    {"redis.sentinel", &type_sentinel, 0, "", 0, 0, 0, NULL, redis_has_sentinel,
     "in place of an address: sentinels that know where the master is"},
    {"redis.sentinel.master", &type_text, OF(redis.sentinel.master), NULL, 1, 256, REQUIRED, NULL, NULL,
     "what the sentinels call it"},
    {"redis.sentinel.nodes", &type_redis_nodes, OF(redis.sentinel.nodes), NULL, 1, REDIS_NODES_MAX, REQUIRED,
     NULL, NULL, "host:port of sentinels, one or a list; they tell of the others"},
    {"redis.sentinel.username", &type_text, OF(redis.sentinel.username), "", 1, 256, 0, NULL, NULL,
     "the user to authenticate to the sentinels as; needs a password"},
    {"redis.sentinel.password", &type_secret, OF(redis.sentinel.password), "", 1, 1024, 0, NULL, NULL,
     "the password of the sentinels"},
    {"redis.cluster", &type_cluster, OF(redis), "", 1, REDIS_NODES_MAX, 0, NULL, redis_has_cluster,
     "in place of an address: host:port of nodes of a Redis Cluster, one or a list; they tell of the others"},
    {"redis.username", &type_text, OF(redis.username), "", 1, 256, 0, NULL, NULL,
     "the user to authenticate as; needs a password"},
    {"redis.password", &type_secret, OF(redis.password), "", 1, 1024, 0, NULL, redis_has_password,
     "the password to authenticate with; keep it out of the file with ${NAME}"},
    {"redis.password_file", &type_password_file, OF(redis), "", 1, 4096, 0, NULL, NULL,
     "a file that holds the password and nothing else"},
    {"redis.database", &type_count, OF(redis.database), "0", 0, 65535, 0, NULL, NULL,
     "the number of the database to SELECT"},
    {"redis.key_prefix", &type_key_prefix, OF(redis.key_prefix), "weir", 1, 64, 0, NULL, NULL,
     "what every key in Redis starts with"},
    {"redis.timeout", &type_duration, OF(redis.timeout_us), "50ms", MS(1), SEC(10), 0, NULL, NULL,
     "the most a decision may wait for Redis; then on_failure"},
    {"redis.on_failure", &type_enum, OF(redis.on_failure), "local", 0, 0, 0, on_failure_names, NULL,
     "what is decided without Redis: local (limit in this process until Redis is back), allow, deny (503)"},
    {"redis.instances", &type_count, OF(redis.instances), "1", 1, 1000, 0, NULL, NULL,
     "how many weirs share this Redis: under on_failure: local each admits its part of a limit, at least 1"},
    {"redis.tls", NULL, 0, NULL, 0, 0, OPTION_LATER, NULL, NULL,
     "not built in, since hiredis 0.14 has none: let stunnel carry it, and give its address in place of "
     "Redis' own"},

    {"upstreams", &type_upstreams, 0, NULL, 0, 0, REQUIRED, NULL, NULL,
     "the APIs behind weir, by name; the first is the one of rules that name none"},
    {"upstreams.NAME.servers", &type_servers, 0, NULL, 1, SERVERS_MAX, REQUIRED, NULL, NULL,
     "host:port or unix:/path, or a list of them; of several the one with the fewest requests under way is "
     "taken"},
    {"upstreams.NAME.connect_timeout", &type_duration, UPSTREAM(connect_timeout_us), "1s", MS(1), SEC(60), 0,
     NULL, NULL, "the most that connecting may take"},
    {"upstreams.NAME.response_timeout", &type_duration, UPSTREAM(response_timeout_us), "30s", MS(1),
     HOURS(24), 0, NULL, NULL, "the most until the head of the response, and between two pieces of its body"},
    {"upstreams.NAME.forwarded", &type_bool, UPSTREAM(forwarded), "false", 0, 0, 0, NULL, NULL,
     "say whom a request came from in Forwarded (RFC 7239) as well"},
    {"upstreams.NAME.tls", &type_upstream_tls, UPSTREAM(tls), "", 0, 0, 0, NULL, NULL,
     "true, or a map: TLS 1.2 and newer to the servers, whose certificates are verified"},
    {"upstreams.NAME.tls.verify", &type_bool, UPSTREAM_TLS(verify), "true", 0, 0, 0, NULL, NULL,
     "false: any certificate will do, and anybody in between can be the server"},
    {"upstreams.NAME.tls.ca", &type_text, UPSTREAM_TLS(ca), "", 1, 4096, 0, NULL, NULL,
     "a PEM file of the authorities to trust, in place of the system's; read again with a reload, as all of "
     "these"},
    {"upstreams.NAME.tls.server_name", &type_text, UPSTREAM_TLS(server_name), "", 1, HOST_NAME_BYTES_MAX, 0,
     NULL, NULL, "whom the certificate has to be for, a name or an address; unless given, the server's own"},
    {"upstreams.NAME.tls.certificate", &type_text, UPSTREAM_TLS(certificate), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with a certificate of weir's own, for servers that ask for one"},
    {"upstreams.NAME.tls.key", &type_text, UPSTREAM_TLS(key), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with its private key"},

    {"upstreams.NAME.health", &type_health, UPSTREAM(health), "", 0, 0, 0, NULL, upstream_has_health,
     "every server is asked time and again; those that do not answer well get no requests"},
    {"upstreams.NAME.health.path", &type_health_path, HEALTH(path), NULL, 1, 1024, REQUIRED, NULL, NULL,
     "what is asked for, by GET"},
    {"upstreams.NAME.health.host", &type_text, HEALTH(host), "", 1, HOST_NAME_BYTES_MAX + 6, 0, NULL, NULL,
     "the Host field; unless given, the server as written"},
    {"upstreams.NAME.health.interval", &type_duration, HEALTH(interval_us), "5s", MS(10), HOURS(1), 0, NULL,
     NULL, "from one check of a server to the next"},
    {"upstreams.NAME.health.timeout", &type_duration, HEALTH(timeout_us), "2s", MS(10), SEC(60), 0, NULL,
     NULL, "the most that a check may take, connecting included"},
    {"upstreams.NAME.health.status", &type_statuses, HEALTH(statuses), "[ 2xx, 3xx ]", 1, STATUSES_MAX, 0,
     NULL, NULL, "the statuses of good answers, such as 204 or 2xx"},
    {"upstreams.NAME.health.unhealthy", &type_count, HEALTH(unhealthy), "3", 1, 100, 0, NULL, NULL,
     "failed checks in a row after which a server gets no requests"},
    {"upstreams.NAME.health.healthy", &type_count, HEALTH(healthy), "2", 1, 100, 0, NULL, NULL,
     "good checks in a row after which it gets them again"},
    {"upstreams.NAME.retry", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "when a request is sent to another server; once it has been sent, only if its method is idempotent"},
    {"upstreams.NAME.retry.on", &type_retry_on, RETRY(on), "[ connect, reset ]", 0, 16, 0, NULL, NULL,
     "a list of connect, reset, timeout, 502, 503 and 504"},
    {"upstreams.NAME.retry.tries", &type_count, RETRY(tries), "2", 1, 10, 0, NULL, NULL,
     "servers that a request may be sent to, the first one included"},
    {"upstreams.NAME.retry.budget", &type_share, RETRY(budget), "20%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "retries as a share of a worker's requests within 10 seconds"},
    {"upstreams.NAME.retry.budget_min", &type_count, RETRY(budget_min), "10", 0, 1000000, 0, NULL, NULL,
     "retries of a worker within 10 seconds that are allowed besides"},
    {"upstreams.NAME.eject", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "when a server gets no requests for a while because requests to it failed"},
    {"upstreams.NAME.eject.failures", &type_count, EJECT(failures), "5", 0, 1000, 0, NULL, NULL,
     "failed requests in a row; 0: never"},
    {"upstreams.NAME.eject.failure_rate", &type_share, EJECT(failure_rate), "25%", 0, SHARE_WHOLE, 0, NULL,
     NULL, "share of a worker's requests to the server within window that failed; 0%: never"},
    {"upstreams.NAME.eject.requests", &type_count, EJECT(requests), "20", 1, 1000000, 0, NULL, NULL,
     "requests within window below which failure_rate does not apply"},
    {"upstreams.NAME.eject.window", &type_duration, EJECT(window_us), "10s", MS(100), HOURS(1), 0, NULL, NULL,
     "time over which requests and failures are counted"},
    {"upstreams.NAME.eject.status", &type_statuses, EJECT(statuses), "[]", 0, STATUSES_MAX, 0, NULL, NULL,
     "statuses of answers that count as failures, such as 503 or 5xx"},
    {"upstreams.NAME.eject.time", &type_duration, EJECT(time_us), "10s", MS(10), HOURS(1), 0, NULL, NULL,
     "time without requests; doubled if the server is ejected again soon after its return"},
    {"upstreams.NAME.eject.at_most", &type_share, EJECT(at_most), "50%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "share of the servers that failures may eject; the last server is never ejected by failures"},

    {"resolver", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how names of upstreams' servers become addresses: /etc/hosts, then DNS, again and again"},
    {"resolver.nameservers", &type_nameservers, OF(resolver), "[]", 0, NAMESERVERS_MAX, 0, NULL, NULL,
     "addresses, with a port where it is not 53; unless given, those of /etc/resolv.conf"},
    {"resolver.timeout", &type_duration, OF(resolver.timeout_us), "5s", MS(10), SEC(60), 0, NULL, NULL,
     "the most that a name may take, in three tries"},
    {"resolver.min_ttl", &type_duration, OF(resolver.min_ttl_us), "1s", MS(10), HOURS(24), 0, NULL, NULL,
     "an answer is believed for as long as it says, but no less than this"},
    {"resolver.max_ttl", &type_duration, OF(resolver.max_ttl_us), "5m", MS(10), HOURS(24), 0, NULL, NULL,
     "and no more than this"},
    {"resolver.ipv6", &type_bool, OF(resolver.ipv6), "true", 0, 0, 0, NULL, NULL,
     "whether IPv6 addresses are asked for as well"},

    {"identity", &type_section, 0, "", 0, 0, 0, NULL, NULL, "who a client is"},
    {"identity.from", &type_identity_from, OF(identity), "[ ip ]", 1, IDENTITY_FROM_MAX, 0, NULL, NULL,
     "where the identity comes from: ip, header:NAME, or a list, of which the first that gives a value "
     "counts"},
    {"identity.trusted_proxies", &type_trusted, OF(identity), "[]", 0, TRUSTED_MAX, 0, NULL, NULL,
     "addresses and ranges whose X-Forwarded-For is believed, from the right; unix: for peers on unix "
     "sockets"},
    {"identity.headers_from", &type_enum, OF(identity.headers_from), "trusted", 0, 0, 0, headers_from_names,
     NULL,
     "whose identity headers are believed: trusted (trusted_proxies, or anyone if that names nobody), "
     "anyone"},
    {"identity.ipv6_prefix", &type_count, OF(identity.ipv6_prefix), "64", 1, 128, 0, NULL, NULL,
     "IPv6 addresses that share so many bits are one client"},
    {"identity.known_clients_only", &type_bool, OF(identity.known_clients_only), "false", 0, 0, 0, NULL, NULL,
     "an id that is not among the clients gives no value: the next source counts"},

    {"addresses", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "lists of clients' addresses, seen through trusted proxies; of ranges one inside another the longer "
     "prefix counts"},
    {"addresses.allow", &type_address_files, OF(addresses.allow), "[]", 0, ADDRESS_LISTS_MAX, 0, NULL, NULL,
     "files of addresses that are never limited, one or a range a line; # begins a comment"},
    {"addresses.block", &type_address_files, OF(addresses.block), "[]", 0, ADDRESS_LISTS_MAX, 0, NULL, NULL,
     "files of addresses that are answered with 403"},

    {"shadow", &type_bool, OF(shadow), "false", 0, 0, 0, NULL, NULL,
     "what holds for limits that do not say: true to try a whole policy"},
    {"limits", &type_limits, 0, "", 0, LIMITS_MAX, 0, NULL, NULL, "how much in which time, by name"},
    {"limits.NAME.script", &type_script, 0, NULL, 0, 0, REQUIRED, NULL, NULL,
     "token_bucket, leaky_bucket, gcra, fixed_window, rolling_window, sliding_window_log, "
     "sliding_window_counter, concurrency, or the path of your own .lua file"},
    {"limits.NAME.limit", &type_number, LIMIT(limit), NULL, 1, LIMIT_MAX, REQUIRED, NULL, NULL,
     "how much is admitted per period"},
    {"limits.NAME.period", &type_period, 0, NULL, PERIOD_MIN_US, PERIOD_MAX_US, REQUIRED, NULL,
     limit_has_period,
     "the time in which the limit counts; of fixed_window also week, month or year: the calendar's"},
    {"limits.NAME.burst", &type_number, LIMIT(burst), "limit", 1, LIMIT_MAX, DERIVED, NULL, limit_has_burst,
     "how much at once after a rest; of token_bucket, gcra, leaky_bucket and scripts of your own"},
    {"limits.NAME.per", &type_per, 0, "client", 1, LIMIT_PER_MAX, 0, NULL, NULL,
     "what is counted apart: client, ip, route, method, host, header:NAME, a list of these, or all"},
    {"limits.NAME.cost", &type_number, LIMIT(cost), "1", 1, LIMIT_COST_MAX, 0, NULL, NULL,
     "what a request costs whose rule does not say"},
    {"limits.NAME.best_effort", &type_bool, LIMIT(best_effort), "false", 0, 0, 0, NULL, limit_has_best_effort,
     "take what is left where less than the cost remains"},
    {"limits.NAME.label", &type_label, LIMIT(label), "NAME", 1, 64, DERIVED, NULL, NULL,
     "what X-Rate-Limit-Policy calls the limit"},
    {"limits.NAME.align", &type_align, LIMIT(has_offset), "first-request", 0, 0, 0, NULL, limit_has_align,
     "when the windows of fixed_window start: first-request, or clock: at whole periods since 1970"},
    {"limits.NAME.offset", &type_duration, LIMIT(offset_us), "0s", 0, PERIOD_MAX_US, 0, NULL,
     limit_has_offset, "with align: clock, how much later than that"},
    {"limits.NAME.time_zone", &type_time_zone, 0, "UTC", 0, 0, DERIVED, NULL, limit_has_time_zone,
     "whose wall clock and calendar windows of 1d, week, month and year follow, e.g. Europe/Berlin"},
    {"limits.NAME.buckets", &type_number, LIMIT(options), "10", BUCKETS_MIN, BUCKETS_MAX, 0, NULL,
     limit_has_buckets, "the grain of rolling_window: into how many pieces its period is cut"},
    {"limits.NAME.headers", &type_bool, LIMIT(headers), "true", 0, 0, 0, NULL, NULL,
     "false keeps the limit out of the answer's fields"},
    {"limits.NAME.shadow", &type_bool, LIMIT(shadow), "shadow", 0, 0, DERIVED, NULL, NULL,
     "true: count and report, and reject nobody"},
    {"limits.NAME.enforce", &type_share, LIMIT(enforce), "100%", 0, SHARE_WHOLE, 0, NULL, limit_has_enforce,
     "the share of clients that the limit may reject, a choice that stays; for others it is a shadow limit"},
    {"limits.NAME.count", &type_statuses, LIMIT(counted), "all", 1, STATUSES_MAX, 0, NULL, NULL,
     "all, or the statuses of the answers that are charged, after them; a client over the limit is rejected "
     "before"},
    {"limits.NAME.dedup", &type_dedup, LIMIT(dedup), "", 1, 128, 0, NULL, NULL,
     "requests that repeat an earlier one are free: a map, or the name of the header alone"},
    {"limits.NAME.dedup.header", &type_text, DEDUP(header), NULL, 1, 128, REQUIRED, NULL, NULL,
     "the request header whose value names a request, e.g. Idempotency-Key; a repeat has the same value, "
     "method and path"},
    {"limits.NAME.dedup.repeats", &type_number, DEDUP(repeats), "10", 1, DEDUP_REPEATS_MAX, 0, NULL, NULL,
     "how many repeats of a request are free; the next one is charged as a new request"},
    {"limits.NAME.on_failure", &type_enum, LIMIT(on_failure), "redis.on_failure", 0, 0, DERIVED,
     on_failure_names, NULL, "what this limit decides without Redis"},
    {"limits.NAME.max_delay", &type_duration, LIMIT(max_delay_us), "0s", 0, PERIOD_MAX_US, 0, NULL,
     limit_has_max_delay,
     "leaky_bucket: how long a request is held until it is its turn, rather than rejected; 0: not at all"},
    {"limits.NAME.options", &type_own_options, 0, "[]", 0, LIMIT_OPTIONS_MAX, DERIVED, NULL,
     limit_has_own_options, "what a script of your own is given beside the limit's numbers, in this order"},
    {"limits.NAME.lease", &type_lease, 0, "auto", SEC(1), HOURS(1), DERIVED, NULL, NULL,
     "auto (from a limit of 1000 on), off, or how many units a worker may take at once for a busy client, "
     "where only one limit applies; "
     "concurrency: for how long the places of a weir count that no longer renews them, 10s unless given"},

    {"plans", &type_plans, 0, "", 0, PLANS_MAX, 0, NULL, NULL, "numbers that several clients share, by name"},
    {"plans.NAME.limits", &type_plan_limits, 0, "", 0, 0, 0, NULL, NULL,
     "other numbers for single limits, by their names"},
    {"plans.NAME.limits.NAME.limit", &type_number, NUMBERS(limit), "limits.NAME.limit", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of the limit"},
    {"plans.NAME.limits.NAME.burst", &type_number, NUMBERS(burst), "limits.NAME.burst", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of its burst"},

    {"clients", &type_clients, 0, "", 0, CLIENTS_MAX, 0, NULL, NULL,
     "what is different for one client: an id from a header, or ip: and an address or range"},
    {"clients.ID.plan", &type_plan, 0, "", 0, 0, 0, NULL, client_has_plan, "the name of a plan"},
    {"clients.ID.quota", &type_quota, 0, "", 0, LIMIT_MAX, 0, NULL, client_has_quota,
     "0: prohibited; unlimited, or -1; a number: in place of limit and burst of every limit that is per "
     "client"},
    {"clients.ID.limits", &type_client_limits, 0, "", 0, 0, 0, NULL, client_has_limits,
     "other numbers for single limits, by their names"},
    {"clients.ID.limits.NAME.limit", &type_number, NUMBERS(limit), "limits.NAME.limit", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of the limit"},
    {"clients.ID.limits.NAME.burst", &type_number, NUMBERS(burst), "limits.NAME.burst", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of its burst"},
    {"quotas", &type_quotas, 0, "", 0, 0, 0, NULL, quotas_are_there,
     "limits per client from a database, for ids from a header that are not among the clients"},
    {"quotas.postgres", &type_section, 0, NULL, 0, 0, REQUIRED, NULL, NULL, "the PostgreSQL database"},
    {"quotas.postgres.connection", &type_quota_connection, OF(quotas), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "a connection string of libpq: postgresql://USER@HOST/DATABASE, or keyword=value pairs"},
    {"quotas.postgres.query", &type_quota_query, OF(quotas), NULL, 1, 16384, REQUIRED, NULL, NULL,
     "with $1 for the client's id; its columns are the quota and, if there is a second one, the plan"},
    {"quotas.timeout", &type_duration, OF(quotas.timeout_us), "1s", MS(10), SEC(60), 0, NULL, NULL,
     "the most that a request may wait for its client's quota, and that a query may take"},
    {"quotas.cache", &type_duration, OF(quotas.cache_us), "30m", SEC(1), HOURS(24 * 31), 0, NULL, NULL,
     "for how long what the database said is believed, by all weirs on one Redis"},
    {"quotas.unknown_client", &type_enum, OF(quotas.unknown_client), "default", 0, 0, 0, unknown_client_names,
     NULL,
     "what an id meets that has no row, or that cannot be looked up: default (the limits as written), deny "
     "(403)"},

    {"rejection", &type_section, 0, "", 0, 0, 0, NULL, NULL, "what a rejected client gets"},
    {"rejection.status", &type_count, OF(rejection.status), "429", 400, 599, 0, NULL, NULL,
     "the status code"},
    {"rejection.body_file", &type_body_file, OF(rejection), "", 1, 4096, 0, NULL, NULL,
     "a file with the body in place of the problem document"},
    {"rejection.content_type", &type_text, OF(rejection.content_type), "application/problem+json", 1, 128, 0,
     NULL, NULL, "the body's media type"},
    {"rejection.jitter", &type_share, OF(rejection.jitter), "0%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "up to this share of the wait is added to Retry-After, another time for each, so that clients spread"},

    {"paths", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how paths are read and matched, where servers could read them in another way"},
    {"paths.dot_segments", &type_enum, OF(paths.dot_segments), "reject", 0, 0, 0, dot_segment_names, NULL,
     "paths with a segment . or ..: reject (400), or normalize (forward the path without them)"},
    {"paths.ambiguous", &type_enum, OF(paths.ambiguous), "reject", 0, 0, 0, ambiguous_names, NULL,
     "paths that select another rule when they are read as some servers do: reject (400), or allow (the rule "
     "of the normal form applies)"},
    {"paths.trailing_slash", &type_enum, OF(paths.trailing_slash), "ignore", 0, 0, 0, trailing_slash_names,
     NULL, "ignore: /login and /login/ match the same rules; exact: they are two paths"},
    {"paths.ignore_case", &type_bool, OF(paths.ignore_case), "false", 0, 0, 0, NULL, NULL,
     "true: ASCII letters in paths match without regard to case"},

    {"rules", &type_rules, 0, "[]", 0, RULES_MAX, 0, NULL, NULL,
     "the first that matches a request decides; where none does, it goes to the first upstream, unlimited"},
    {"rules[].name", &type_text, RULE(name), "its path, else *", 1, RULE_NAME_MAX, DERIVED, NULL, NULL,
     "what metrics and logs call the rule"},
    {"rules[].match", &type_section, 0, "", 0, 0, 0, NULL, rule_has_match,
     "which requests: those that meet all that is written here"},
    {"rules[].match.path", &type_path_pattern, RULE(path), "any", 1, RULE_NAME_MAX, DERIVED, NULL,
     rule_has_path, "of the path in normal form; * within a segment, /** at the end for all below"},
    {"rules[].match.methods", &type_methods, 0, "any", 1, METHODS_MAX, DERIVED, NULL, rule_has_methods,
     "one of these methods"},
    {"rules[].match.host", &type_host_pattern, RULE(host), "any", 1, 255, DERIVED, NULL, rule_has_host,
     "this host, or *.example.com for all below one"},
    {"rules[].limits", &type_rule_limits, 0, "[]", 0, LIMITS_PER_RULE_MAX, 0, NULL, NULL,
     "the names of the limits that apply, all or none; none: unlimited"},
    {"rules[].cost", &type_rule_cost, RULE(cost), "each limit's cost", 1, LIMIT_COST_MAX, DERIVED, NULL,
     rule_has_cost, "what one request costs in every limit of the rule, or a map that says how it is learnt"},
    {"rules[].cost.reserve", &type_number, RULE(cost), "1", 1, LIMIT_COST_MAX, 0, NULL, NULL,
     "what is charged before the answer, where the request does not say"},
    {"rules[].cost.request_header", &type_text, RULE(cost_request), "", 1, 128, 0, NULL,
     rule_has_cost_request, "a header that says what the request costs, from trusted_proxies alone"},
    {"rules[].cost.max", &type_number, RULE(cost_max), NULL, 1, LIMIT_COST_MAX, 0, NULL,
     rule_has_cost_request, "the most that request_header may say; what is more counts as this"},
    {"rules[].cost.response_header", &type_text, RULE(cost_response), "", 1, 128, 0, NULL,
     rule_has_cost_response, "a header of the answer that says what the request has cost"},
    {"rules[].upstream", &type_rule_upstream, 0, "the first", 0, 0, DERIVED, NULL, NULL,
     "where the request goes"},
    {"rules[].rejection", &type_section, 0, "", 0, 0, 0, NULL, rule_has_rejection,
     "what a client gets that this rule rejects"},
    {"rules[].rejection.status", &type_count, RULE(rejection.status), "rejection.status", 400, 599, DERIVED,
     NULL, NULL, "in place of the status code"},
    {"rules[].rejection.body_file", &type_body_file, RULE(rejection), "rejection.body_file", 1, 4096, DERIVED,
     NULL, NULL, "in place of the body; null: the problem document"},
    {"rules[].rejection.content_type", &type_text, RULE(rejection.content_type), "rejection.content_type", 1,
     128, DERIVED, NULL, NULL, "in place of the body's media type"},

    {"headers", &type_headers, OF(headers), "[ x-ratelimit, x-rate-limit, ietf ]", 0, 4, 0, NULL, NULL,
     "which families of fields an answer carries; x-ratelimit-epoch: x-ratelimit with the reset as Unix "
     "time"},

    {"half_close", &type_enum, OF(half_close), "end", 0, 0, 0, half_close_names, NULL,
     "a client that closes its sending side while its request is under way: end (it has left), allow (it "
     "waits for the answer)"},

    {"timeouts", &type_section, 0, "", 0, 0, 0, NULL, NULL, "how long clients may take"},
    {"timeouts.request_header", &type_duration, OF(timeouts.request_header_us), "10s", MS(10), HOURS(1), 0,
     NULL, NULL, "for the whole head of a request"},
    {"timeouts.request_body", &type_duration, OF(timeouts.request_body_us), "30s", MS(10), HOURS(1), 0, NULL,
     NULL, "between two pieces of a request's body"},
    {"timeouts.body_min_rate", &type_number, OF(timeouts.body_min_rate), "100", 0, 1 << 30, 0, NULL, NULL,
     "bytes a second that a body must come with, over request_body; 0: none"},
    {"timeouts.keepalive", &type_duration, OF(timeouts.keepalive_us), "75s", MS(10), HOURS(24), DERIVED, NULL,
     NULL, "between two requests on one connection"},
    {"timeouts.tunnel", &type_duration, OF(timeouts.tunnel_us), "1h", MS(10), HOURS(24 * 31), DERIVED, NULL,
     NULL, "without a byte in either direction of an upgraded connection, such as a WebSocket"},
    {"timeouts.send", &type_duration, OF(timeouts.send_us), "60s", MS(10), HOURS(24), DERIVED, NULL, NULL,
     "between two pieces of an answer that a client takes"},
    {"timeouts.idle", &type_duration, OF(timeouts.idle_us), "none", MS(10), HOURS(24), DERIVED, NULL,
     idle_is_written, "in place of keepalive, tunnel and send where they are not given"},
    {"timeouts.exchange", &type_duration, OF(timeouts.exchange_us), "0s", 0, HOURS(24), 0, NULL, NULL,
     "from a request's head to the last byte of its answer; tunnels excepted; 0: any time"},
    {"timeouts.linger", &type_duration, OF(timeouts.linger_us), "30s", 0, HOURS(1), 0, NULL, NULL,
     "how long content that comes after an answer is read and dropped, so that the client sees the answer"},
    {"timeouts.shutdown", &type_duration, OF(timeouts.shutdown_us), "30s", 0, HOURS(24), 0, NULL, NULL,
     "for requests under way when weir is told to stop"},

    {"size_limits", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how large messages may be, and how many connections"},
    {"size_limits.request_header", &type_size, OF(size_limits.request_header), "16k", KIB(1), KIB(64), 0,
     NULL, NULL, "of a request's head"},
    {"size_limits.request_body", &type_size, OF(size_limits.request_body), "0", 0, INT64_C(1) << 53, 0, NULL,
     NULL, "of a request's body; 0: any"},
    {"size_limits.response_header", &type_size, OF(size_limits.response_header), "64k", KIB(1), KIB(64), 0,
     NULL, NULL, "of a response's head, which has at most 1000 fields"},
    {"size_limits.connections", &type_count, OF(size_limits.connections), "10000", 0, 10000000, 0, NULL, NULL,
     "clients connected at the same time; 0: any"},
    {"size_limits.connections_per_ip", &type_count, OF(size_limits.connections_per_ip),
     "a quarter of connections", 0, 10000000, DERIVED, NULL, NULL,
     "the same from one address, trusted proxies excepted; 0: any"},

    {"log", &type_section, 0, "", 0, 0, 0, NULL, NULL, "what is written where"},
    {"log.level", &type_enum, OF(log.level), "info", 0, 0, 0, level_names, NULL,
     "how much weir says of itself"},
    {"log.format", &type_enum, OF(log.format), "text", 0, 0, 0, format_names, NULL,
     "how events are written: text, or json, an object each"},
    {"log.access", &type_enum, OF(log.access), "json", 0, 0, 0, access_names, NULL,
     "a line for every request, and its form"},
    {"log.file", &type_text, OF(log.file), "stderr", 1, 4096, 0, NULL, NULL,
     "a path, or stderr: the journal, under systemd"},
};
/* clang-format on */
const size_t option_count = COUNT_OF(options);

const char *option_key(const struct option *option)
{
    const char *dot = strrchr(option->path, '.');
    return dot ? dot + 1 : option->path;
}

/* Returns true if the option is directly in the section; "" is the top level. */
static bool option_is_in(const struct option *option, const char *section)
{
    size_t n = strlen(section);
    if (n == 0)
        return !strchr(option->path, '.');
    return strncmp(option->path, section, n) == 0 && option->path[n] == '.' &&
           !strchr(option->path + n + 1, '.');
}

static const struct option *option_of(const char *section, struct slice key)
{
    for (size_t i = 0; i < option_count; i++)
        if (option_is_in(&options[i], section) && slice_equal(slice_of(option_key(&options[i])), key))
            return &options[i];
    return NULL;
}

static void unknown_key(struct loading *l, const char *section, const struct node *node)
{
    struct suggestion meant = suggestion_for(node->key);
    for (size_t i = 0; i < option_count; i++)
        if (option_is_in(&options[i], section) && !(options[i].flags & OPTION_LATER))
            suggestion_consider(&meant, slice_of(option_key(&options[i])));
    mistake_of_key(l, node, "unknown key %s%s", QUOTE(node->key), DID_YOU_MEAN(&meant));
}

static void refuse_other_keys(struct loading *l, const char *section, const struct node *map)
{
    for (const struct node *child = map->first; child; child = child->next) {
        const struct option *option = option_of(section, child->key);
        if (!option)
            unknown_key(l, section, child);
        else if (option->flags & OPTION_LATER)
            mistake_of_key(l, child, "%s is %s; remove it", option_key(option), option->help);
    }
}

/* Returns the default as a node, so that it is read like a written value. */
static const struct node *default_node(struct loading *l, const struct option *option)
{
    struct slice text = slice_of(option->fallback);
    if (text.n && text.p[0] == '[')
        return tree_read(&l->scratch, text, l->report);
    struct node *node = arena_zeroed(&l->scratch, 1, sizeof *node);
    node->kind = NODE_SCALAR;
    node->text = text;
    node->null = text.n == 0;
    return node;
}

/* `key:` without a value means none, and is allowed only if the option has no other default. */
static bool may_be_null(const struct option *option)
{
    const char *fallback = option->fallback;
    bool has_default = fallback && *fallback && *fallback != '[' && !(option->flags & OPTION_DERIVED);
    return option->type->takes_null && !has_default;
}

/* Options that do not apply are not required. */
static bool is_required(const struct option *option, const void *base)
{
    return option->flags & OPTION_REQUIRED && (!option->applies || option->applies(base));
}

static void read_option(struct loading *l, const struct option *option, const struct node *map, void *base)
{
    void *field = (char *)base + option->offset;
    const struct node *node = node_find(map, option_key(option));

    if (node && node->broken)
        return;
    if (node && node->null && !may_be_null(option))
        mistake(l, node, "has no value; remove the key for its default, or give one");
    else if (node)
        option->type->read(l, option, node, field);
    else if (is_required(option, base))
        mistake(l, map, "%s is missing: %s", option_key(option), option->help);
    else if (option->fallback && !(option->flags & OPTION_DERIVED))
        option->type->read(l, option, default_node(l, option), field);
}

void options_read(struct loading *l, const struct node *map, const char *section, void *base)
{
    refuse_other_keys(l, section, map);
    for (size_t i = 0; i < option_count; i++)
        if (option_is_in(&options[i], section) && options[i].type)
            read_option(l, &options[i], map, base);
}

void options_print(struct printer *printer, const char *section, const void *base)
{
    for (size_t i = 0; i < option_count; i++) {
        const struct option *option = &options[i];
        if (!option_is_in(option, section) || !option->type || (option->applies && !option->applies(base)))
            continue;
        print_key(printer, slice_of(option_key(option)));
        option->type->print(printer, option, (const char *)base + option->offset);
    }
}
