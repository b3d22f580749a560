/* options_limits.c - rows of the option table: shadow, limits, plans, clients and quotas. */
#include "config/option_rows.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};
static const char *const unknown_client_names[] = {
    [UNKNOWN_CLIENT_DEFAULT] = "default", [UNKNOWN_CLIENT_DENY] = "deny", NULL};

#define LIMIT(m) offsetof(struct limit, m)
#define DEDUP(m) offsetof(struct dedup_settings, m)

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"shadow", &type_bool, OF(shadow), "false", 0, 0, 0, NULL, NULL,
     "what holds for limits that do not say: true to try a whole policy"},

    {"limits", &type_limits, 0, "", 0, LIMITS_MAX, 0, NULL, NULL, "how much in which time, by name"},
    {"limits.NAME.script", &type_script, 0, NULL, 0, 0, REQUIRED, NULL, NULL,
     "token_bucket, leaky_bucket, gcra, fixed_window, rolling_window, sliding_window_log, "
     "sliding_window_counter, lockout, concurrency, or the path of your own .lua file"},
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
    {"limits.NAME.granted_header", &type_granted_header, LIMIT(granted_header), "", 1, 128, 0, NULL,
     limit_has_granted_header,
     "with best_effort: a request header that tells the server how much was granted"},
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
    {"limits.NAME.near", &type_share, LIMIT(near), "20%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "requests that leave less than this share of the limit count in weir_limit_near_total"},
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
     limit_has_own_options,
     "lockout: rest, a duration; what a script of your own is given beside the limit's numbers, in this "
     "order"},
    {"limits.NAME.lease", &type_lease, 0, "auto", SEC(1), HOURS(1), DERIVED, NULL, NULL,
     "auto (from a limit of 1000 on), off, or how many units a worker may take at once for a busy client, "
     "where only one limit applies; "
     "concurrency: for how long the places of a weir count that no longer renews them, 10s unless given"},

    {"plans", &type_plans, 0, "", 0, PLANS_MAX, 0, NULL, NULL, "numbers that several clients share, by name"},
    {"plans.NAME.limits", &type_plan_limits, 0, "", 0, 0, 0, NULL, NULL,
     "other numbers for single limits, by their names"},
    {"plans.NAME.limits.NAME.limit", &type_number, LIMIT(limit), "limits.NAME.limit", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of the limit"},
    {"plans.NAME.limits.NAME.period", &type_period, 0, "limits.NAME.period", PERIOD_MIN_US, PERIOD_MAX_US,
     DERIVED, NULL, NULL, "in place of its period, if the limit is counted per client"},
    {"plans.NAME.limits.NAME.burst", &type_number, LIMIT(burst), "limits.NAME.burst", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of its burst"},

    {"clients", &type_clients, 0, "", 0, CLIENTS_MAX, 0, NULL, NULL,
     "what is different for one client: an id from a header, or ip: and an address or range"},
    {"clients.ID.blocked", &type_bool, offsetof(struct client, blocked), "false", 0, 0, 0, NULL,
     client_is_blocked, "true: the client's requests are answered with 403"},
    {"clients.ID.plan", &type_plan, 0, "", 0, 0, 0, NULL, client_has_plan, "the name of a plan"},
    {"clients.ID.quota", &type_quota, 0, "", 0, LIMIT_MAX, 0, NULL, client_has_quota,
     "0: prohibited; unlimited, or -1; a number: in place of limit and burst of every limit that is per "
     "client"},
    {"clients.ID.limits", &type_client_limits, 0, "", 0, 0, 0, NULL, client_has_limits,
     "other numbers for single limits, by their names"},
    {"clients.ID.limits.NAME.limit", &type_number, LIMIT(limit), "limits.NAME.limit", 1, LIMIT_MAX, DERIVED,
     NULL, NULL, "in place of the limit"},
    {"clients.ID.limits.NAME.period", &type_period, 0, "limits.NAME.period", PERIOD_MIN_US, PERIOD_MAX_US,
     DERIVED, NULL, NULL, "in place of its period, if the limit is counted per client"},
    {"clients.ID.limits.NAME.burst", &type_number, LIMIT(burst), "limits.NAME.burst", 1, LIMIT_MAX, DERIVED,
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
};
/* clang-format on */

const struct option_group options_limits = {rows, COUNT_OF(rows)};
