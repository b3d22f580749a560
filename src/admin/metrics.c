#include "admin/metrics.h"

#include "base/descriptors.h"
#include "base/log.h"
#include "clients/redis_memory.h"
#include "config.h"
#include "limit/grants.h"
#include "redis/cluster.h"
#include "redis/sentinel.h"

/* The output and the data source. */
struct source {
    struct evbuffer *out;
    const struct admin_view *view;
};

/* Sums one counter over all workers. */
#define SUM(source, endpoint)                                                                                \
    ({                                                                                                       \
        uint64_t sum_ = 0;                                                                                   \
        for (unsigned w_ = 0; w_ < (source)->view->worker_count; w_++)                                       \
            sum_ += counter_read(&worker_stats((source)->view->workers[w_])->endpoint);                      \
        sum_;                                                                                                \
    })
#define SUM_LIMITER(source, endpoint)                                                                        \
    ({                                                                                                       \
        uint64_t sum_ = 0;                                                                                   \
        for (unsigned w_ = 0; w_ < (source)->view->worker_count; w_++)                                       \
            sum_ += counter_read(&worker_limiter_stats((source)->view->workers[w_])->endpoint);              \
        sum_;                                                                                                \
    })

static void head(const struct source *s, const char *name, const char *type, const char *help)
{
    evbuffer_add_printf(s->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void sample(const struct source *s, const char *name, const char *labels, uint64_t value)
{
    evbuffer_add_printf(s->out, "%s%s %llu\n", name, labels, (unsigned long long)value);
}

static void single(const struct source *s, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    head(s, name, type, help);
    sample(s, name, "", value);
}

void label_value(struct text *t, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            text_char(t, '\\');
        text_char(t, *value == '\n' ? 'n' : *value);
    }
}

/* Appends name{KEY="VALUE",decision="DECISION"} SUM. Decisions that have not occurred are left
 * out, to keep the output of a large policy readable. */
static void decision_sample(const struct source *s, const char *name, const char *key, const char *value,
                            enum verdict verdict, uint64_t sum)
{
    char bytes[1024];
    struct text labels = text_over(bytes, sizeof bytes);

    if (sum == 0 && verdict != VERDICT_ALLOWED && verdict != VERDICT_LIMITED)
        return;
    text_printf(&labels, "{%s=\"", key);
    label_value(&labels, value);
    text_printf(&labels, "\",decision=\"%s\"}", verdict_label[verdict]);
    text_char(&labels, 0);
    if (!labels.failed)
        sample(s, name, bytes, sum);
}

static const struct counter_table *rules_of(const struct worker *worker)
{
    return &worker_stats(worker)->by_rule;
}

static const struct counter_table *limits_of(const struct worker *worker)
{
    return &worker_limiter_stats(worker)->by_limit;
}

static uint64_t sum_of_row(const struct source *s,
                           const struct counter_table *(*counter_table_of)(const struct worker *),
                           unsigned row, unsigned column)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < s->view->worker_count; w++)
        sum += counter_table_read(counter_table_of(s->view->workers[w]), row, column);
    return sum;
}

static void requests_by_rule(const struct source *s)
{
    const char *name = "weir_requests_total";

    head(s, name, "counter", "Requests by the rule that matched and what was decided.");
    for (unsigned r = 0; r < s->view->rules->count; r++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++) /* VERDICT_NOT_CHARGED applies to limits only */
            decision_sample(s, name, "rule", s->view->rules->name[r], v, sum_of_row(s, rules_of, r, v));
}

static void decisions_by_limit(const struct source *s)
{
    const char *name = "weir_limit_decisions_total";

    head(s, name, "counter",
         "Decisions by limit; a request with several limits counts once for each. Allowed: it was admitted; "
         "not_charged: another limit rejected it.");
    for (unsigned l = 0; l < s->view->limits->count; l++)
        for (unsigned v = 0; v < VERDICT_COUNT; v++)
            decision_sample(s, name, "limit", s->view->limits->name[l], v, sum_of_row(s, limits_of, l, v));
}

static void near_limits(const struct source *s)
{
    const char *name = "weir_limit_near_total";

    head(s, name, "counter", "Admitted requests that left less of a limit than its option near.");
    for (unsigned l = 0; l < s->view->limits->count; l++)
        evbuffer_add_printf(s->out, "%s{limit=\"%s\"} %llu\n", name, s->view->limits->name[l],
                            (unsigned long long)sum_of_row(s, limits_of, l, NEAR_COLUMN));
}

static void script_failures(const struct source *s)
{
    const char *name = "weir_script_failures_total";
    static const struct {
        unsigned column;
        const char *cause;
    } causes[] = {{SCRIPT_FAILED_COLUMN, "failed"}, {SCRIPT_LATE_COLUMN, "late"}};

    head(s, name, "counter",
         "Requests of a limit with a script of its own that the script failed, or that had no answer in "
         "time.");
    for (unsigned l = 0; l < s->view->limits->count; l++)
        for (unsigned i = 0; i < COUNT_OF(causes); i++) {
            uint64_t sum = sum_of_row(s, limits_of, l, causes[i].column);
            if (sum)
                evbuffer_add_printf(s->out, "%s{limit=\"%s\",cause=\"%s\"} %llu\n", name,
                                    s->view->limits->name[l], causes[i].cause, (unsigned long long)sum);
        }
}

static void errors_by_cause(const struct source *s)
{
    head(s, "weir_errors_total", "counter",
         "Requests that ended otherwise than with the upstream's answer or a rejection, by cause.");
    for (unsigned c = CAUSE_NONE + 1; c < CAUSE_COUNT; c++)
        evbuffer_add_printf(s->out, "weir_errors_total{cause=\"%s\"} %llu\n", cause_table[c].label,
                            (unsigned long long)SUM(s, errors[c]));
    head(s, "weir_redis_errors_total", "counter",
         "Decisions that Redis did not give, by cause; on_failure decided them.");
    for (unsigned c = 0; c < REDIS_FAILURE_COUNT; c++)
        evbuffer_add_printf(s->out, "weir_redis_errors_total{cause=\"%s\"} %llu\n", redis_failure_label[c],
                            (unsigned long long)SUM_LIMITER(s, redis_failures[c]));
}

static void retries_and_ejections(const struct source *s)
{
    head(s, "weir_upstream_retries_total", "counter",
         "Requests sent to another server, or again on a fresh connection, by cause.");
    for (unsigned c = RETRY_NONE + 1; c < RETRY_CAUSE_COUNT; c++)
        evbuffer_add_printf(s->out, "weir_upstream_retries_total{cause=\"%s\"} %llu\n", retry_label[c],
                            (unsigned long long)SUM(s, upstream_retries[c]));
    single(s, "weir_upstream_retries_over_budget_total", "counter",
           "Requests not sent to another server because upstreams.NAME.retry.budget was used up.",
           SUM(s, upstream_retries_over_budget));
    head(s, "weir_upstream_ejections_total", "counter",
         "Times that a worker stopped sending requests to a server, by reason.");
    for (unsigned r = 0; r < EJECTION_COUNT; r++)
        evbuffer_add_printf(s->out, "weir_upstream_ejections_total{reason=\"%s\"} %llu\n", ejection_label[r],
                            (unsigned long long)SUM(s, upstream_ejections[r]));
}

static void http2(const struct source *s)
{
    single(s, "weir_http2_connections_total", "counter", "Client connections that became HTTP/2 ones.",
           SUM(s, http2_connections));
    head(s, "weir_http2_errors_total", "counter",
         "HTTP/2 connections closed and streams reset because of the client, by cause.");
    for (unsigned c = 0; c < HTTP2_CAUSE_COUNT; c++)
        evbuffer_add_printf(s->out, "weir_http2_errors_total{cause=\"%s\"} %llu\n", http2_cause_name[c],
                            (unsigned long long)SUM(s, http2_errors[c]));
}

static void responses_by_class(const struct source *s)
{
    static const char *const class[] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};

    head(s, "weir_responses_total", "counter",
         "Answers by class of status; none: the client was gone, or cut off before one.");
    for (unsigned i = 0; i < COUNT_OF(class); i++)
        evbuffer_add_printf(s->out, "weir_responses_total{class=\"%s\"} %llu\n", class[i],
                            (unsigned long long)SUM(s, responses[i]));
}

struct histogram_sum {
    uint64_t bucket[HISTOGRAM_BUCKETS + 1], sum_us;
};

static void histogram_add_up(struct histogram_sum *sum, const struct histogram *h)
{
    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++)
        sum->bucket[i] += counter_read(&h->bucket[i]);
    sum->sum_us += counter_read(&h->sum_us);
}

static void histogram_write(const struct source *s, const char *name, const char *help,
                            const struct histogram_sum *sum)
{
    uint64_t total = 0;

    head(s, name, "histogram", help);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        total += sum->bucket[i];
        evbuffer_add_printf(s->out, "%s_bucket{le=\"%g\"} %llu\n", name, (double)histogram_bounds_us[i] / 1e6,
                            (unsigned long long)total);
    }
    total += sum->bucket[HISTOGRAM_BUCKETS];
    evbuffer_add_printf(s->out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", name,
                        (unsigned long long)total, name, (double)sum->sum_us / 1e6, name,
                        (unsigned long long)total);
}

static void latencies(const struct source *s)
{
    struct histogram_sum redis = {0}, upstream = {0}, request = {0}, held = {0};

    for (unsigned w = 0; w < s->view->worker_count; w++) {
        histogram_add_up(&redis, &worker_limiter_stats(s->view->workers[w])->redis_latency);
        histogram_add_up(&upstream, &worker_stats(s->view->workers[w])->upstream_latency);
        histogram_add_up(&held, &worker_stats(s->view->workers[w])->held);
        histogram_add_up(&request, &worker_stats(s->view->workers[w])->request_duration);
    }
    histogram_write(s, "weir_redis_latency_seconds", "From a decision's start to Redis' answer.", &redis);
    histogram_write(s, "weir_upstream_latency_seconds",
                    "From the request sent upstream to the head of its answer.", &upstream);
    histogram_write(s, "weir_held_seconds", "How long held requests were held.", &held);
    histogram_write(s, "weir_request_duration_seconds", "From a request's head read to its answer written.",
                    &request);
}

static void connections(const struct source *s)
{
    single(s, "weir_connections", "gauge", "Client connections open now.", SUM(s, connections_open));
    single(s, "weir_connections_lingering", "gauge",
           "Of these: answered, while the client still sends content that is dropped.",
           SUM(s, connections_lingering));
    single(s, "weir_connections_accepted_total", "counter", "Client connections accepted.",
           SUM(s, connections_accepted));
    single(s, "weir_connections_refused_total", "counter",
           "Client connections closed at once by a limit of size_limits.", SUM(s, connections_refused));
    single(s, "weir_connections_evicted_total", "counter",
           "Client connections closed to make room for new ones: silent, idle or lingering ones, "
           "or ones with an incomplete request head.",
           SUM(s, connections_evicted));
    single(s, "weir_proxy_header_errors_total", "counter",
           "Connections closed for the PROXY protocol's sake: no trusted proxy, or no good header in time.",
           SUM(s, proxy_headers_refused));
    single(s, "weir_tls_handshake_errors_total", "counter",
           "Client connections closed because their TLS handshake failed, or took too long.",
           SUM(s, tls_handshakes_failed));
    single(s, "weir_requests_active", "gauge", "Requests under way now.", SUM(s, requests_active));
    single(s, "weir_requests_held", "gauge", "Requests that a leaky_bucket with max_delay holds now.",
           SUM(s, requests_held));
    single(s, "weir_upstream_connections", "gauge", "Connections to upstream servers open now.",
           SUM(s, upstream_connections_open));
    single(s, "weir_upstream_connections_opened_total", "counter", "Connections opened to upstream servers.",
           SUM(s, upstream_connections_opened));
    single(s, "weir_upstream_reused_total", "counter",
           "Requests sent on a connection that had served before.", SUM(s, upstream_reused));
    retries_and_ejections(s);
    single(s, "weir_received_content_bytes_total", "counter", "Content of requests received.",
           SUM(s, bytes_from_clients));
    single(s, "weir_sent_content_bytes_total", "counter", "Content of answers sent.",
           SUM(s, bytes_to_clients));
}

static void upstream_server(const struct source *s, const struct upstream *upstream,
                            const struct endpoint *endpoint)
{
    char at[ADDRESS_TEXT_MAX], bytes[1024];
    struct text labels = text_over(bytes, sizeof bytes);
    bool up =
        endpoint_is_healthy(endpoint) && atomic_load_explicit(&endpoint->ejected, memory_order_relaxed) == 0;

    text_literal(&labels, "{upstream=\"");
    label_value(&labels, upstream->name);
    text_literal(&labels, "\",server=\"");
    label_value(&labels, endpoint->settings->text);
    text_literal(&labels, "\",address=\"");
    label_value(&labels, address_format(&endpoint->address, at));
    text_literal(&labels, "\"}");
    text_char(&labels, 0);
    if (!labels.failed)
        sample(s, "weir_upstream_server_up", bytes, up);
}

/* A host name that has not been resolved has no sample. */
static void upstream_servers(const struct source *s)
{
    const struct policy *policy = s->view->policy;

    head(s, "weir_upstream_server_up", "gauge",
         "Whether a server gets requests: 0 while its health checks fail, or a worker has ejected it.");
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count = endpoint_set_list(s->view->endpoint_set, u, endpoints);
        for (unsigned i = 0; i < count; i++) {
            upstream_server(s, &policy->upstreams[u], endpoints[i]);
            endpoint_drop(endpoints[i]);
        }
    }
}

static void redis_cluster(const struct source *s)
{
    struct redis_cluster_report seen = redis_cluster_seen();
    const char *redirects = "weir_redis_redirects_total";

    single(s, "weir_redis_cluster_masters", "gauge", "Masters in the cluster's map as it was read last.",
           seen.masters);
    single(s, "weir_redis_cluster_slots", "gauge", "Slots of 16384 that have a master.", seen.slots);
    single(s, "weir_redis_cluster_maps_total", "counter", "Maps of the cluster read.", seen.maps);
    head(s, redirects, "counter", "Calls that a node of the cluster sent to another one.");
    sample(s, redirects, "{kind=\"moved\"}", seen.moved);
    sample(s, redirects, "{kind=\"ask\"}", seen.asked);
}

static void redis_breaker(const struct source *s)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    uint64_t workers[COUNT_OF(states)] = {0};

    for (unsigned w = 0; w < s->view->worker_count; w++)
        workers[worker_redis_breaker(s->view->workers[w])]++;
    head(
        s, "weir_redis_breaker_workers", "gauge",
        "Workers by the state of their circuit breaker: closed: Redis is asked; half_open: with few calls at "
        "once, since it has just come back; open: it is not asked.");
    for (unsigned i = 0; i < COUNT_OF(states); i++)
        evbuffer_add_printf(s->out, "weir_redis_breaker_workers{state=\"%s\"} %llu\n", states[i],
                            (unsigned long long)workers[i]);
}

static void leases(const struct source *s)
{
    static const char name[] = "weir_lease_units_total";
    uint64_t used = SUM_LIMITER(s, lease_used), returned = SUM_LIMITER(s, lease_returned),
             lost = SUM_LIMITER(s, lease_lost), taken = SUM_LIMITER(s, lease_taken),
             ended = used + returned + lost; /* read before `taken`, so that it is never larger */

    head(s, name, "counter",
         "Units that workers took for busy clients before they were asked for: used: a request was admitted "
         "by one; "
         "returned: given back; lost: left to count, or leaked away.");
    sample(s, name, "{result=\"used\"}", used);
    sample(s, name, "{result=\"returned\"}", returned);
    sample(s, name, "{result=\"lost\"}", lost);
    single(s, "weir_lease_units_held", "gauge",
           "Units that workers hold for busy clients: charged, and not used yet.",
           taken > ended ? taken - ended : 0);
}

/* In a cluster, one sample per master. No sample if INFO is not permitted. */
static void redis_memory(const struct source *s)
{
    const struct redis_memory_part *parts;
    unsigned count = redis_memory_parts(&parts);
    static const struct {
        const char *name, *help;
        size_t offset;
    } metrics[] = {{"weir_redis_memory_used_bytes",
                    "Memory that Redis uses (used_memory of INFO), as seen in the last minute.",
                    offsetof(struct redis_memory_part, used)},
                   {"weir_redis_memory_max_bytes",
                    "Memory that Redis may use (maxmemory); 0: no limit is set.",
                    offsetof(struct redis_memory_part, max)}};

    for (unsigned m = 0; m < COUNT_OF(metrics) && count; m++) {
        head(s, metrics[m].name, "gauge", metrics[m].help);
        for (unsigned i = 0; i < count; i++) {
            char labels[ADDRESS_TEXT_MAX + 16] = "";
            if (s->view->policy->redis.cluster.count)
                snprintf(labels, sizeof labels, "{node=\"%s\"}", parts[i].node);
            sample(s, metrics[m].name, labels,
                   *(const uint64_t *)((const char *)&parts[i] + metrics[m].offset));
        }
    }
}

/* Left out if the policy needs no Redis, to avoid false alarms. */
static void redis_connections(const struct source *s)
{
    uint64_t ready = 0;

    for (unsigned w = 0; w < s->view->worker_count; w++)
        ready += worker_redis_ready(s->view->workers[w]);
    single(s, "weir_redis_ready_workers", "gauge", "Workers whose connection to Redis is ready.", ready);
    redis_breaker(s);
    redis_memory(s);
    if (s->view->policy->redis.sentinel.master)
        single(s, "weir_redis_master_changes_total", "counter",
               "How often sentinels have named another master.", redis_sentinel_changes());
    if (s->view->policy->redis.cluster.count)
        redis_cluster(s);
}

static void worker_connections(const struct source *s)
{
    head(s, "weir_worker_connections", "gauge", "Client connections open now, by worker.");
    for (unsigned w = 0; w < s->view->worker_count; w++)
        evbuffer_add_printf(
            s->out, "weir_worker_connections{worker=\"%u\"} %llu\n", w,
            (unsigned long long)counter_read(&worker_stats(s->view->workers[w])->connections_open));
}

static void redis(const struct source *s)
{
    single(s, "weir_redis_calls_total", "counter",
           "Script calls sent to Redis; one carries the decisions of a whole loop turn.",
           SUM_LIMITER(s, redis_calls));
    single(s, "weir_redis_decisions_total", "counter", "Requests whose limits Redis was asked for.",
           SUM_LIMITER(s, redis_requests));
    single(s, "weir_remembered_denials_total", "counter",
           "Rejections from a denial that still holds, without asking Redis.",
           SUM_LIMITER(s, remembered_denials));
    leases(s);
    single(s, "weir_grants", "gauge", "Clients that were granted a quota of their own and have it still.",
           grants_active());
    if (policy_needs_redis(s->view->policy))
        redis_connections(s);
    single(s, "weir_workers", "gauge", "Worker threads.", s->view->worker_count);
    worker_connections(s);
}

/* Appended if the policy has, or had, quotas. */
static void quotas(const struct source *s)
{
    const struct quota_stats *stats = quotas_stats(s->view->quotas);
    struct quota_cache *table = quotas_cache(s->view->quotas);

    if (!stats)
        return;
    head(s, "weir_quota_queries_total", "counter",
         "Queries for a client's quota that PostgreSQL was asked, by result.");
    for (unsigned r = 0; r < QUERY_RESULTS; r++)
        evbuffer_add_printf(s->out, "weir_quota_queries_total{result=\"%s\"} %llu\n", quota_query_label[r],
                            (unsigned long long)counter_read(&stats->queries[r]));
    single(s, "weir_quota_database_up", "gauge", "1 while PostgreSQL answers the query.",
           atomic_load_explicit(&stats->database_up, memory_order_relaxed));
    single(s, "weir_quota_process_hits_total", "counter", "Requests whose client's quota this weir knew.",
           SUM(s, quota_hits));
    single(s, "weir_quota_redis_hits_total", "counter", "Quotas that Redis knew.",
           counter_read(&stats->redis_hits));
    single(s, "weir_quota_expired_total", "counter",
           "Quotas that were used past their time, because PostgreSQL could not be asked.",
           counter_read(&stats->expired));
    single(s, "weir_quota_refused_total", "counter",
           "Requests that did not wait for their client's quota, because too many did.",
           counter_read(&stats->refused) + SUM(s, quota_refused));
    single(s, "weir_quota_clients", "gauge", "Clients whose quota this weir knows.",
           quota_cache_count(table, QUOTA_FOUND));
    single(s, "weir_quota_unknown_ids", "gauge", "Ids that this weir knows to have no quota.",
           quota_cache_count(table, QUOTA_ABSENT));
}

void metrics_write(struct evbuffer *out, const struct admin_view *view)
{
    struct source s = {out, view};

    head(&s, "weir_build_info", "gauge", "The version that runs.");
    evbuffer_add_printf(out, "weir_build_info{version=\"%s\"} 1\n", PACKAGE_VERSION);
    requests_by_rule(&s);
    metrics_write_rules(out, view);
    decisions_by_limit(&s);
    near_limits(&s);
    script_failures(&s);
    responses_by_class(&s);
    if (http2_is_there())
        http2(&s);
    errors_by_cause(&s);
    latencies(&s);
    connections(&s);
    upstream_servers(&s);
    redis(&s);
    quotas(&s);
    metrics_write_tokens(out, view);
    metrics_write_policy(out, view);
    single(&s, "weir_descriptor_shortages_total", "counter",
           "How often the process had no file descriptor left.", descriptors_shortages());
    single(&s, "weir_log_lines_dropped_total", "counter",
           "Log lines dropped because the log file could not keep up, or be written.", log_dropped());
    metrics_write_process(out, view);
}
