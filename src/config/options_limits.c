/* options_limits.c - rows of the option table: shadow, limits, plans, clients and quotas. */
#include "config/option_rows.h"
#include "policy/shipped_limiter.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};
static const char *const unknown_client_names[] = {
    [UNKNOWN_CLIENT_DEFAULT] = "default", [UNKNOWN_CLIENT_DENY] = "deny", NULL};
static const char *const quota_failure_names[] = {
    [QUOTA_FAILURE_DEFAULT] = "default", [QUOTA_FAILURE_DENY] = "deny", NULL};

static const char *const cost_on_error_names[] = {
    [COST_ON_ERROR_REFUND] = "refund", [COST_ON_ERROR_KEEP] = "keep", NULL};

static const char *const include_usage_names[] = {
    [INCLUDE_USAGE_KEEP] = "keep", [INCLUDE_USAGE_ADD] = "add", NULL};

static const char *const align_names[] = {
    [ALIGN_FIRST_REQUEST] = "first-request", [ALIGN_CLOCK] = "clock", NULL};

static const char *const on_disconnect_names[] = {
    [ON_DISCONNECT_CLOSE] = "close", [ON_DISCONNECT_DRAIN] = "drain", NULL};

#define LIMIT(m)   MEMBER(limit, m)
#define DEDUP(m)   MEMBER(dedup_settings, m)
#define COST(m)    MEMBER(limit_cost, m)
#define WEIGHTS(m) COST(usage.format_weights.m)

/* clang-format off */
static const struct option rows[] = {
    {.path = "shadow", .type = &type_bool, OF(shadow), .fallback = "false",
     .help = "default of limits.NAME.shadow"},

    {.path = "priorities", .type = &type_priorities, .fallback = "", .low = 1, .high = SHARE_WHOLE,
     .help = "shares of the limits that several clients share, by the name of the priority (at "
             "most 8)"},

    {.path = "limits", .type = &type_limits, .fallback = "", .high = LIMITS_MAX,
     .help = "rate limits by name (at most 256)"},
    {.path = "limits.NAME.script", .type = &type_script, .flags = REQUIRED, SHOWS(limit, script),
     .help = "limiter algorithm"},
    {.path = "limits.NAME.limit", .type = &type_number, LIMIT(limit), .low = 1, .high = LIMIT_MAX,
     .flags = REQUIRED,
     .help = "number of units that are admitted per period (1 to 999999999999999)"},
    {.path = "limits.NAME.period", .type = &type_period, .low = PERIOD_MIN_US,
     .high = PERIOD_MAX_US, .flags = REQUIRED, .applies = limit_is_not_in_flight,
     .help = "period of the limit (1ms to 366d)"},
    {.path = "limits.NAME.burst", .type = &type_number, LIMIT(burst), .fallback = "limit",
     .low = 1, .high = LIMIT_MAX, .flags = DERIVED, .applies = limit_has_burst,
     .help = "number of units that are admitted at once after an idle period"},
    {.path = "limits.NAME.per", .type = &type_per, .fallback = "client", .low = 1,
     .high = LIMIT_PER_MAX,
     .help = "attributes that have separate counts (at most 4), or all for one common count"},
    {.path = "limits.NAME.cost", .type = &type_limit_cost, LIMIT(cost), .fallback = "1", .low = 1,
     .high = LIMIT_MAX,
     .help = "cost of a request if its rule sets none (1 to 999999999999999), or a map: the cost in this "
             "limit, whatever the rule sets"},
    {.path = "limits.NAME.cost.reserve", .type = &type_reserve, .fallback = "1", .low = 1,
     .high = LIMIT_MAX,
     .help = "cost that is charged before the response; auto: a quarter of the bytes of the "
             "request's content, plus request_json"},
    {.path = "limits.NAME.cost.request_json", .type = &type_request_json, .fallback = "",
     .low = 1, .high = 8, .flags = DERIVED, SET(limit_cost, request_json.count),
     .help = "JSON paths in the request's content: the first value that is there is reserved"},
    {.path = "limits.NAME.cost.request_header", .type = &type_text, COST(request_header),
     .fallback = "", .low = 1, .high = 128, SET(limit_cost, request_header),
     .help = "request header with the cost of the request, an integer of 1 or more"},
    {.path = "limits.NAME.cost.max", .type = &type_number, COST(max), .low = 1,
     .high = LIMIT_MAX, SET(limit_cost, max),
     .help = "upper bound for the cost before the response"},
    {.path = "limits.NAME.cost.response_header", .type = &type_text, COST(response_header),
     .fallback = "", .low = 1, .high = 128, SET(limit_cost, response_header),
     .help = "response header with the actual cost of the request, an integer of 0 or more"},
    {.path = "limits.NAME.cost.usage", .type = &type_usage, COST(usage),
     SET(limit_cost, usage.kind),
     .help = "content of the response with the actual cost of the request: openai, anthropic, "
             "gemini, a list of JSON paths, or a map of paths to weights"},
    {.path = "limits.NAME.cost.include_usage", .type = &type_enum, COST(include_usage),
     .fallback = "keep", .names = include_usage_names, .applies = cost_is_of_openai,
     .help = "usage of streams (usage: openai): add asks for it where the request does not, and "
             "removes it from the response; keep changes nothing"},
    {.path = "limits.NAME.cost.weights", .type = &type_section, .applies = cost_has_weights,
     .help = "weights of the counts of a format, with up to three decimals"},
    {.path = "limits.NAME.cost.weights.input", .type = &type_weight, WEIGHTS(input),
     .fallback = "1", .help = "weight of input tokens"},
    {.path = "limits.NAME.cost.weights.output", .type = &type_weight, WEIGHTS(output),
     .fallback = "1", .help = "weight of output tokens"},
    {.path = "limits.NAME.cost.weights.cache_read", .type = &type_weight, WEIGHTS(cache_read),
     .fallback = "0", .help = "weight of input tokens that were read from a cache"},
    {.path = "limits.NAME.cost.weights.cache_write", .type = &type_weight, WEIGHTS(cache_write),
     .fallback = "0", .help = "weight of input tokens that were written to a cache"},
    {.path = "limits.NAME.cost.on_error", .type = &type_enum, COST(on_error),
     .fallback = "refund", .names = cost_on_error_names, .applies = cost_is_adjusted,
     .help = "charge of responses with status 4xx or 5xx that state no cost, and of requests "
             "without a response of the server: refund or keep"},
    {.path = "limits.NAME.cost.on_disconnect", .type = &type_enum, COST(on_disconnect),
     .fallback = "close", .names = on_disconnect_names, SET(limit_cost, usage.kind),
     .help = "response to a client that has left: close ends it; drain reads it to its end, to "
             "learn its cost"},
    {.path = "limits.NAME.best_effort", .type = &type_bool, LIMIT(best_effort),
     .fallback = "false", .applies = limit_is_not_in_flight,
     .help = "if true and less than the cost remains, weir charges the remainder and admits the "
             "request"},
    {.path = "limits.NAME.granted_header", .type = &type_own_header, LIMIT(granted_header),
     .fallback = "", .low = 1, .high = 128, SET(limit, granted_header),
     .help = "with best_effort: name of a request header that tells the server how many units "
             "were granted, for example X-Granted"},
    {.path = "limits.NAME.label", .type = &type_label, LIMIT(label), .fallback = "NAME", .low = 1,
     .high = 64, .flags = DERIVED,
     .help = "name of the limit in X-Rate-Limit-Policy: 1 to 64 printable ASCII characters "
             "without quotes and backslashes"},
    {.path = "limits.NAME.align", .type = &type_enum, LIMIT(align),
     .fallback = "first-request", .names = align_names, .applies = limit_has_align,
     .help = "start of the windows of fixed_window"},
    {.path = "limits.NAME.offset", .type = &type_offset, LIMIT(offset_us), .fallback = "0s",
     .high = PERIOD_MAX_US, SET(limit, align),
     .help = "time that is added to the window starts of align: clock"},
    {.path = "limits.NAME.time_zone", .type = &type_time_zone, .fallback = "UTC", .flags = DERIVED,
     SET(limit, calendar), SHOWS(limit, time_zone),
     .help = "time zone of windows of week, month, year, or 1d with align: clock"},
    {.path = "limits.NAME.buckets", .type = &type_script_number, .fallback = "10",
     .flags = DERIVED, .has = shipped_limiter_takes,
     .help = "number of parts into which rolling_window divides its period (2 to 100)"},
    {.path = "limits.NAME.headers", .type = &type_bool, LIMIT(headers), .fallback = "true",
     .help = "if false, the limit is left out of the rate limit headers of responses"},
    {.path = "limits.NAME.near", .type = &type_share, LIMIT(near), .fallback = "20%",
     .high = SHARE_WHOLE,
     .help = "admitted requests that leave less than this share of the limit are counted in the "
             "metric weir_limit_near_total"},
    {.path = "limits.NAME.shadow", .type = &type_bool, LIMIT(shadow), .fallback = "shadow",
     .flags = DERIVED,
     .help = "if true, the limit counts requests but rejects none"},
    {.path = "limits.NAME.enforce", .type = &type_share, LIMIT(enforce), .fallback = "100%",
     .high = SHARE_WHOLE, UNSET(limit, shadow),
     .help = "share of clients for which the limit is enforced (0% to 100%, up to two decimal "
             "places)"},
    {.path = "limits.NAME.count", .type = &type_statuses, LIMIT(counted), .fallback = "all",
     .low = 1, .high = STATUSES_MAX,
     .help = "statuses of upstream responses that are charged: all, or a list of at most 32 "
             "entries from 100 to 599 and 1xx to 5xx"},
    {.path = "limits.NAME.dedup", .type = &type_dedup, LIMIT(dedup), .fallback = "", .low = 1,
     .high = 128,
     .help = "deduplication: repeats of a request are free for this limit"},
    {.path = "limits.NAME.dedup.header", .type = &type_text, DEDUP(header), .low = 1, .high = 128,
     .flags = REQUIRED,
     .help = "request header that identifies a request, such as Idempotency-Key"},
    {.path = "limits.NAME.dedup.repeats", .type = &type_number, DEDUP(repeats), .fallback = "10",
     .low = 1, .high = DEDUP_REPEATS_MAX,
     .help = "number of free repeats of a request (1 to 1000)"},
    {.path = "limits.NAME.on_failure", .type = &type_enum, LIMIT(on_failure),
     .fallback = "redis.on_failure", .flags = DERIVED, .names = on_failure_names,
     .help = "how this limit decides while Redis is unavailable; see redis.on_failure"},
    {.path = "limits.NAME.max_delay", .type = &type_script_duration, .fallback = "0s",
     .flags = DERIVED, .has = shipped_limiter_takes,
     .help = "maximum time that leaky_bucket delays a request instead of rejecting it (1ms to "
             "366d)"},
    {.path = "limits.NAME.options", .type = &type_own_options, .fallback = "[]",
     .high = LIMIT_OPTIONS_MAX, .flags = DERIVED, .applies = limit_has_own_options,
     .help = "for lockout, a map with the duration rest (1ms to 366d, default: the period)"},
    {.path = "limits.NAME.lease", .type = &type_lease, .fallback = "auto", .low = SEC(1),
     .high = HOURS(1), .flags = DERIVED,
     .help = "number of units that a worker may lease from Redis at once for a busy client (1 to "
             "100000)"},

    {.path = "plans", .type = &type_plans, .fallback = "", .high = PLANS_MAX,
     .help = "sets of numbers for several clients, by name (at most 1024)"},
    {.path = "plans.NAME.priority", .type = &type_priority, MEMBER(plan, priority),
     .fallback = "that of the rule", .flags = DERIVED, SET(plan, priority),
     .help = "priority of the requests of the plan's clients"},
    {.path = "plans.NAME.limits", .type = &type_plan_limits, .fallback = "",
     .applies = plan_has_limits,
     .help = "numbers of the plan for single limits, by the name of the limit"},
    {.path = "plans.NAME.limits.NAME.limit", .type = &type_number, LIMIT(limit),
     .fallback = "limits.NAME.limit", .low = 1, .high = LIMIT_MAX, .flags = DERIVED,
     .help = "replaces the limit"},
    {.path = "plans.NAME.limits.NAME.period", .type = &type_period,
     .fallback = "limits.NAME.period", .low = PERIOD_MIN_US, .high = PERIOD_MAX_US,
     .flags = DERIVED,
     .help = "replaces the period of the limit, whose per must contain client: a count that "
             "several clients share has one period"},
    {.path = "plans.NAME.limits.NAME.burst", .type = &type_number, LIMIT(burst),
     .fallback = "limits.NAME.burst", .low = 1, .high = LIMIT_MAX, .flags = DERIVED,
     .help = "replaces the burst of the limit"},

    {.path = "clients", .type = &type_clients, .fallback = "", .high = CLIENTS_MAX,
     .help = "settings for single clients (at most 100000)"},
    {.path = "clients.ID.blocked", .type = &type_bool, MEMBER(configured_client, blocked),
     .fallback = "false", SET(configured_client, blocked),
     .help = "all requests of the client are rejected with 403, whatever their rule"},
    {.path = "clients.ID.plan", .type = &type_plan, .fallback = "", SET(configured_client, client_limits.plan),
     .help = "plan whose numbers apply to this client"},
    {.path = "clients.ID.priority", .type = &type_priority,
     MEMBER(configured_client, client_limits.priority), .fallback = "that of the plan, else of the rule",
     .flags = DERIVED, SET(configured_client, client_limits.priority),
     .help = "priority of the client's requests"},
    {.path = "clients.ID.quota", .type = &type_quota, .fallback = "", .high = LIMIT_MAX,
     .applies = client_has_quota,
     .help = "quota of the client"},
    {.path = "clients.ID.limits", .type = &type_client_limits, .fallback = "",
     .applies = client_has_limits,
     .help = "numbers for single limits, by the name of the limit"},
    {.path = "clients.ID.limits.NAME.limit", .type = &type_number, LIMIT(limit),
     .fallback = "limits.NAME.limit", .low = 1, .high = LIMIT_MAX, .flags = DERIVED,
     .help = "replaces the limit"},
    {.path = "clients.ID.limits.NAME.period", .type = &type_period,
     .fallback = "limits.NAME.period", .low = PERIOD_MIN_US, .high = PERIOD_MAX_US,
     .flags = DERIVED,
     .help = "replaces the period of the limit, as in plans"},
    {.path = "clients.ID.limits.NAME.burst", .type = &type_number, LIMIT(burst),
     .fallback = "limits.NAME.burst", .low = 1, .high = LIMIT_MAX, .flags = DERIVED,
     .help = "replaces the burst of the limit"},

    {.path = "quotas", .type = &type_quotas, .fallback = "", SET(policy, quotas.connection),
     .help = "weir looks up an id when a request matches a rule with limits"},
    {.path = "quotas.postgres", .type = &type_section, .flags = REQUIRED,
     .help = "PostgreSQL database"},
    {.path = "quotas.postgres.connection", .type = &type_quota_connection, OF(quotas), .low = 1,
     .high = 4096, .flags = REQUIRED,
     .help = "connection string in the format of psql(1): postgresql://USER@HOST/DATABASE, or "
             "host=HOST user=USER dbname=DATABASE"},
    {.path = "quotas.postgres.query", .type = &type_quota_query, OF(quotas), .low = 1,
     .high = 16384, .flags = REQUIRED, SHOWS(policy, quotas.query),
     .help = "query with one parameter, $1, which is the name of the client as in clients: an id "
             "from a header as it is, jwt:alice for a claim, cookie:h:HASH or query:h:HASH"},
    {.path = "quotas.timeout", .type = &type_duration, OF(quotas.timeout_us), .fallback = "1s",
     .low = MS(10), .high = SEC(60),
     .help = "maximum time that a request waits for the quota of its client, and maximum time of "
             "a query (10ms to 1m)"},
    {.path = "quotas.cache", .type = &type_duration, OF(quotas.cache_us), .fallback = "30m",
     .low = SEC(1), .high = HOURS(24 * 31),
     .help = "time for which a database result is cached (1s to 31d)"},
    {.path = "quotas.unknown_client", .type = &type_enum, OF(quotas.unknown_client),
     .fallback = "default", .names = unknown_client_names,
     .help = "how weir treats an id that has no row"},
    {.path = "quotas.on_failure", .type = &type_enum, OF(quotas.on_failure), .fallback = "default",
     .names = quota_failure_names,
     .help = "how weir treats an id if the database is unavailable and no row is cached"},
};
/* clang-format on */

const struct option_group options_limits = {rows, COUNT_OF(rows)};
