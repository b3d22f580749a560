/* options_limits.c - rows of the option table: shadow, limits, plans, clients and quotas. */
#include "config/option_rows.h"
#include "policy/shipped_limiter.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};
static const char *const unknown_client_names[] = {
    [UNKNOWN_CLIENT_DEFAULT] = "default", [UNKNOWN_CLIENT_DENY] = "deny", NULL};
static const char *const quota_failure_names[] = {
    [QUOTA_FAILURE_DEFAULT] = "default", [QUOTA_FAILURE_DENY] = "deny", NULL};

static bool takes_buckets(const void *limit)
{
    return shipped_limiter_takes(limit, "buckets");
}

static bool takes_max_delay(const void *limit)
{
    return shipped_limiter_takes(limit, "max_delay");
}

#define LIMIT(m) MEMBER(limit, m)
#define DEDUP(m) MEMBER(dedup_settings, m)

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"shadow", &type_bool, OF(shadow), "false", 0, 0, 0, NULL, NULL,
     "default of limits.NAME.shadow"},

    {"limits", &type_limits, WHOLE, "", 0, LIMITS_MAX, 0, NULL, NULL,
     "rate limits by name (at most 256)"},
    {"limits.NAME.script", &type_script, WHOLE, NULL, 0, 0, REQUIRED, NULL, NULL,
     "limiter algorithm"},
    {"limits.NAME.limit", &type_number, LIMIT(limit), NULL, 1, LIMIT_MAX, REQUIRED, NULL, NULL,
     "number of units that are admitted per period (1 to 1000000000)"},
    {"limits.NAME.period", &type_period, WHOLE, NULL, PERIOD_MIN_US, PERIOD_MAX_US, REQUIRED, NULL,
     limit_has_period, "period of the limit (1ms to 366d)"},
    {"limits.NAME.burst", &type_number, LIMIT(burst), "limit", 1, LIMIT_MAX, DERIVED, NULL,
     limit_has_burst, "number of units that are admitted at once after an idle period"},
    {"limits.NAME.per", &type_per, WHOLE, "client", 1, LIMIT_PER_MAX, 0, NULL, NULL,
     "attributes that have separate counts (at most 4), or all for one common count"},
    {"limits.NAME.cost", &type_number, LIMIT(cost), "1", 1, LIMIT_COST_MAX, 0, NULL, NULL,
     "cost of a request if its rule sets none (1 to 1000000)"},
    {"limits.NAME.best_effort", &type_bool, LIMIT(best_effort), "false", 0, 0, 0, NULL,
     limit_has_best_effort,
     "if true and less than the cost remains, weir charges the remainder and admits the request"},
    {"limits.NAME.granted_header", &type_granted_header, LIMIT(granted_header), "", 1, 128, 0, NULL,
     limit_has_granted_header,
     "with best_effort: name of a request header that tells the server how many units were "
     "granted, for example X-Granted"},
    {"limits.NAME.label", &type_label, LIMIT(label), "NAME", 1, 64, DERIVED, NULL, NULL,
     "name of the limit in X-Rate-Limit-Policy: 1 to 64 printable ASCII characters without "
     "quotes and backslashes"},
    {"limits.NAME.align", &type_align, LIMIT(has_offset), "first-request", 0, 0, 0, NULL,
     limit_has_align, "start of the windows of fixed_window"},
    {"limits.NAME.offset", &type_offset, LIMIT(offset_us), "0s", 0, PERIOD_MAX_US, 0, NULL,
     limit_has_offset, "time that is added to the window starts of align: clock"},
    {"limits.NAME.time_zone", &type_time_zone, WHOLE, "UTC", 0, 0, DERIVED, NULL,
     limit_has_time_zone, "time zone of windows of week, month, year, or 1d with align: clock"},
    {"limits.NAME.buckets", &type_script_number, WHOLE, "10", 0, 0, DERIVED, NULL, takes_buckets,
     "number of parts into which rolling_window divides its period (2 to 100)"},
    {"limits.NAME.headers", &type_bool, LIMIT(headers), "true", 0, 0, 0, NULL, NULL,
     "if false, the limit is left out of the rate limit headers of responses"},
    {"limits.NAME.near", &type_share, LIMIT(near), "20%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "admitted requests that leave less than this share of the limit are counted in the metric "
     "weir_limit_near_total"},
    {"limits.NAME.shadow", &type_bool, LIMIT(shadow), "shadow", 0, 0, DERIVED, NULL, NULL,
     "if true, the limit counts requests but rejects none"},
    {"limits.NAME.enforce", &type_share, LIMIT(enforce), "100%", 0, SHARE_WHOLE, 0, NULL,
     limit_has_enforce,
     "share of clients for which the limit is enforced (0% to 100%, up to two decimal places)"},
    {"limits.NAME.count", &type_statuses, LIMIT(counted), "all", 1, STATUSES_MAX, 0, NULL, NULL,
     "statuses of upstream responses that are charged: all, or a list of at most 32 entries from "
     "100 to 599 and 1xx to 5xx"},
    {"limits.NAME.dedup", &type_dedup, LIMIT(dedup), "", 1, 128, 0, NULL, NULL,
     "deduplication: repeats of a request are free for this limit"},
    {"limits.NAME.dedup.header", &type_text, DEDUP(header), NULL, 1, 128, REQUIRED, NULL, NULL,
     "request header that identifies a request, such as Idempotency-Key"},
    {"limits.NAME.dedup.repeats", &type_number, DEDUP(repeats), "10", 1, DEDUP_REPEATS_MAX, 0, NULL,
     NULL, "number of free repeats of a request (1 to 1000)"},
    {"limits.NAME.on_failure", &type_enum, LIMIT(on_failure), "redis.on_failure", 0, 0, DERIVED,
     on_failure_names, NULL,
     "how this limit decides while Redis is unavailable; see redis.on_failure"},
    {"limits.NAME.max_delay", &type_script_duration, WHOLE, "0s", 0, 0, DERIVED, NULL,
     takes_max_delay,
     "maximum time that leaky_bucket delays a request instead of rejecting it (1ms to 366d)"},
    {"limits.NAME.options", &type_own_options, WHOLE, "[]", 0, LIMIT_OPTIONS_MAX, DERIVED, NULL,
     limit_has_own_options,
     "for lockout, a map with the duration rest (1ms to 366d, default: the period)"},
    {"limits.NAME.lease", &type_lease, WHOLE, "auto", SEC(1), HOURS(1), DERIVED, NULL, NULL,
     "number of units that a worker may lease from Redis at once for a busy client (1 to 100000)"},

    {"plans", &type_plans, WHOLE, "", 0, PLANS_MAX, 0, NULL, NULL,
     "sets of numbers for several clients, by name (at most 1024)"},
    {"plans.NAME.limits", &type_plan_limits, WHOLE, "", 0, 0, 0, NULL, NULL,
     "numbers of the plan for single limits, by the name of the limit"},
    {"plans.NAME.limits.NAME.limit", &type_number, LIMIT(limit), "limits.NAME.limit", 1, LIMIT_MAX,
     DERIVED, NULL, NULL, "replaces the limit"},
    {"plans.NAME.limits.NAME.period", &type_period, WHOLE, "limits.NAME.period", PERIOD_MIN_US,
     PERIOD_MAX_US, DERIVED, NULL, NULL,
     "replaces the period of the limit, whose per must contain client: a count that several "
     "clients share has one period"},
    {"plans.NAME.limits.NAME.burst", &type_number, LIMIT(burst), "limits.NAME.burst", 1, LIMIT_MAX,
     DERIVED, NULL, NULL, "replaces the burst of the limit"},

    {"clients", &type_clients, WHOLE, "", 0, CLIENTS_MAX, 0, NULL, NULL,
     "settings for single clients (at most 100000)"},
    {"clients.ID.blocked", &type_bool, MEMBER(client, blocked), "false", 0, 0, 0, NULL,
     client_is_blocked, "all requests of the client are rejected with 403, whatever their rule"},
    {"clients.ID.plan", &type_plan, WHOLE, "", 0, 0, 0, NULL, client_has_plan,
     "plan whose numbers apply to this client"},
    {"clients.ID.quota", &type_quota, WHOLE, "", 0, LIMIT_MAX, 0, NULL, client_has_quota,
     "quota of the client"},
    {"clients.ID.limits", &type_client_limits, WHOLE, "", 0, 0, 0, NULL, client_has_limits,
     "numbers for single limits, by the name of the limit"},
    {"clients.ID.limits.NAME.limit", &type_number, LIMIT(limit), "limits.NAME.limit", 1, LIMIT_MAX,
     DERIVED, NULL, NULL, "replaces the limit"},
    {"clients.ID.limits.NAME.period", &type_period, WHOLE, "limits.NAME.period", PERIOD_MIN_US,
     PERIOD_MAX_US, DERIVED, NULL, NULL, "replaces the period of the limit, as in plans"},
    {"clients.ID.limits.NAME.burst", &type_number, LIMIT(burst), "limits.NAME.burst", 1, LIMIT_MAX,
     DERIVED, NULL, NULL, "replaces the burst of the limit"},

    {"quotas", &type_quotas, WHOLE, "", 0, 0, 0, NULL, quotas_are_there,
     "weir looks up an id when a request matches a rule with limits"},
    {"quotas.postgres", &type_section, WHOLE, NULL, 0, 0, REQUIRED, NULL, NULL,
     "PostgreSQL database"},
    {"quotas.postgres.connection", &type_quota_connection, OF(quotas), NULL, 1, 4096, REQUIRED,
     NULL, NULL,
     "connection string in the format of psql(1): postgresql://USER@HOST/DATABASE, or host=HOST "
     "user=USER dbname=DATABASE"},
    {"quotas.postgres.query", &type_quota_query, OF(quotas), NULL, 1, 16384, REQUIRED, NULL, NULL,
     "query with one parameter, $1, which is the name of the client as in clients: an id from a "
     "header as it is, jwt:alice for a claim, cookie:h:HASH or query:h:HASH"},
    {"quotas.timeout", &type_duration, OF(quotas.timeout_us), "1s", MS(10), SEC(60), 0, NULL, NULL,
     "maximum time that a request waits for the quota of its client, and maximum time of a query "
     "(10ms to 1m)"},
    {"quotas.cache", &type_duration, OF(quotas.cache_us), "30m", SEC(1), HOURS(24 * 31), 0, NULL,
     NULL, "time for which a database result is cached (1s to 31d)"},
    {"quotas.unknown_client", &type_enum, OF(quotas.unknown_client), "default", 0, 0, 0,
     unknown_client_names, NULL, "how weir treats an id that has no row"},
    {"quotas.on_failure", &type_enum, OF(quotas.on_failure), "default", 0, 0, 0,
     quota_failure_names, NULL,
     "how weir treats an id if the database is unavailable and no row is cached"},
};
/* clang-format on */

const struct option_group options_limits = {rows, COUNT_OF(rows)};
