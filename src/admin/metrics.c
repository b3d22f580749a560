/* metrics.c - the order of the families, and those that no counter of a worker holds. */
#include "admin/metrics.h"

#include "admin/metrics_text.h"
#include "admin/redis_memory.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "config.h"
#include "limit/grants.h"
#include "redis/cluster.h"
#include "redis/sentinel.h"

static void inspected_contents(const struct metric_output *s)
{
    const char *name = "weir_content_inspected_total";

    metric_head(s->out, name, "counter",
                "Contents that weir read for limits, by direction and result.");
    for (unsigned d = 0; d < CONTENT_DIRECTIONS; d++)
        for (unsigned r = 0; r < CONTENT_RESULTS; r++)
            metric_labelled(
                s->out, name, METRIC_SUM(s->view, worker_stats, content_inspected[d][r]),
                LABELS("direction", content_direction_name[d], "result", content_result_name[r]));
}

static void upstream_server(const struct metric_output *s, const struct upstream *upstream,
                            const struct endpoint *endpoint)
{
    char at[ADDRESS_TEXT_MAX];
    bool up = endpoint_is_healthy(endpoint) &&
              atomic_load_explicit(&endpoint->ejected, memory_order_relaxed) == 0;

    metric_labelled(s->out, "weir_upstream_server_up", up,
                    LABELS("upstream", upstream->name, "server", endpoint->settings->text,
                           "address", address_format(&endpoint->address, at)));
}

/* A host name that has not been resolved has no sample. */
static void upstream_servers(const struct metric_output *s)
{
    const struct policy *policy = s->view->policy;

    metric_head(s->out, "weir_upstream_server_up", "gauge",
                "0 while the server's health checks fail or a worker has ejected it; otherwise 1.");
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count = endpoint_set_list(s->view->endpoint_set, u, endpoints);
        for (unsigned i = 0; i < count; i++) {
            upstream_server(s, &policy->upstreams[u], endpoints[i]);
            endpoint_drop(endpoints[i]);
        }
    }
}

static void redis_cluster(const struct metric_output *s)
{
    struct redis_cluster_report seen = redis_cluster_seen();
    const char *redirects = "weir_redis_redirects_total";

    metric_single(s->out, "weir_redis_cluster_masters", "gauge",
                  "Masters in the last slot map of the cluster.", seen.masters);
    metric_single(s->out, "weir_redis_cluster_slots", "gauge", "Slots of 16384 that have a master.",
                  seen.slots);
    metric_single(s->out, "weir_redis_cluster_maps_total", "counter",
                  "Slot maps of the cluster read.", seen.maps);
    metric_head(s->out, redirects, "counter",
                "Calls that a cluster node redirected to another node.");
    metric_sample(s->out, redirects, "{kind=\"moved\"}", seen.moved);
    metric_sample(s->out, redirects, "{kind=\"ask\"}", seen.asked);
}

static void redis_breaker(const struct metric_output *s)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    uint64_t workers[COUNT_OF(states)] = {0};

    for (unsigned w = 0; w < s->view->worker_count; w++)
        workers[worker_redis_breaker(s->view->workers[w])]++;
    metric_head(s->out, "weir_redis_breaker_workers", "gauge",
                "Workers by circuit breaker state. closed: Redis is used; half_open: slow start; "
                "open: Redis is not used.");
    for (unsigned i = 0; i < COUNT_OF(states); i++)
        metric_labelled(s->out, "weir_redis_breaker_workers", workers[i],
                        LABELS("state", states[i]));
}

static void leases(const struct metric_output *s)
{
    static const char name[] = "weir_lease_units_total";
    uint64_t used = METRIC_SUM(s->view, worker_limiter_stats, lease_used),
             returned = METRIC_SUM(s->view, worker_limiter_stats, lease_returned),
             lost = METRIC_SUM(s->view, worker_limiter_stats, lease_lost),
             taken = METRIC_SUM(s->view, worker_limiter_stats, lease_taken),
             ended = used + returned + lost; /* read before `taken`, so that it is never larger */

    metric_head(s->out, name, "counter",
                "Leased units. used: admitted a request; returned: given back to Redis; lost: "
                "neither, they stay charged.");
    metric_sample(s->out, name, "{result=\"used\"}", used);
    metric_sample(s->out, name, "{result=\"returned\"}", returned);
    metric_sample(s->out, name, "{result=\"lost\"}", lost);
    metric_single(s->out, "weir_lease_units_held", "gauge",
                  "Leased units that are charged but not used yet.",
                  taken > ended ? taken - ended : 0);
}

/* In a cluster, one sample per master. No sample if INFO is not permitted. */
static void redis_memory(const struct metric_output *s)
{
    const struct redis_memory_part *parts;
    unsigned count = redis_memory_parts(&parts);
    static const struct {
        const char *name, *help;
        size_t offset;
    } metrics[] = {{"weir_redis_memory_used_bytes",
                    "Memory used by Redis (used_memory of INFO), updated every 10 s.",
                    offsetof(struct redis_memory_part, used)},
                   {"weir_redis_memory_max_bytes",
                    "Memory that Redis may use (maxmemory); 0: no limit is set.",
                    offsetof(struct redis_memory_part, max)}};

    for (unsigned m = 0; m < COUNT_OF(metrics) && count; m++) {
        metric_head(s->out, metrics[m].name, "gauge", metrics[m].help);
        for (unsigned i = 0; i < count; i++) {
            char labels[ADDRESS_TEXT_MAX + 16] = "";
            if (s->view->policy->redis.cluster.count)
                snprintf(labels, sizeof labels, "{node=\"%s\"}", parts[i].node);
            metric_sample(s->out, metrics[m].name, labels,
                          *(const uint64_t *)((const char *)&parts[i] + metrics[m].offset));
        }
    }
}

/* Left out if the policy needs no Redis, to avoid false alarms. */
static void redis_connections(const struct metric_output *s)
{
    uint64_t ready = 0;

    for (unsigned w = 0; w < s->view->worker_count; w++)
        ready += worker_redis_ready(s->view->workers[w]);
    metric_single(s->out, "weir_redis_ready_workers", "gauge",
                  "Workers whose connection to Redis is ready.", ready);
    redis_breaker(s);
    if (ready) /* else the numbers are old */
        redis_memory(s);
    if (s->view->policy->redis.sentinel.master)
        metric_single(s->out, "weir_redis_master_changes_total", "counter",
                      "Number of times that the sentinels named another master.",
                      redis_sentinel_changes());
    if (s->view->policy->redis.cluster.count)
        redis_cluster(s);
}

static void worker_connections(const struct metric_output *s)
{
    metric_head(s->out, "weir_worker_connections", "gauge",
                "Client connections open now, by worker.");
    for (unsigned w = 0; w < s->view->worker_count; w++)
        evbuffer_add_printf(
            s->out, "weir_worker_connections{worker=\"%u\"} %llu\n", w,
            (unsigned long long)counter_read(&worker_stats(s->view->workers[w])->connections_open));
}

static void redis(const struct metric_output *s)
{
    leases(s);
    metric_single(s->out, "weir_grants", "gauge", "Grants in effect.", grants_active());
    if (policy_needs_redis(s->view->policy))
        redis_connections(s);
    metric_single(s->out, "weir_workers", "gauge", "Worker threads.", s->view->worker_count);
    worker_connections(s);
}

/* Appended if the policy has, or had, quotas. */
static void quotas(const struct metric_output *s)
{
    const struct quota_stats *stats = quotas_stats(s->view->quotas);
    struct quota_cache *table = quotas_cache(s->view->quotas);

    if (!stats)
        return;
    metric_head(s->out, "weir_quota_queries_total", "counter",
                "Quota queries sent to PostgreSQL, by result.");
    for (unsigned r = 0; r < QUERY_RESULTS; r++)
        metric_labelled(s->out, "weir_quota_queries_total", counter_read(&stats->queries[r]),
                        LABELS("result", quota_query_label[r]));
    if (policy_looks_up_quotas(s->view->policy)) /* else the value is old: a false alarm */
        metric_single(s->out, "weir_quota_database_up", "gauge",
                      "1 while PostgreSQL answers the query.",
                      atomic_load_explicit(&stats->database_up, memory_order_relaxed));
    metric_single(s->out, "weir_quota_process_hits_total", "counter",
                  "Requests whose quota was in the local cache.",
                  METRIC_SUM(s->view, worker_stats, quota_hits));
    metric_single(s->out, "weir_quota_redis_hits_total", "counter",
                  "Quotas found in the cache in Redis.", counter_read(&stats->redis_hits));
    metric_single(s->out, "weir_quota_expired_total", "counter",
                  "Expired quotas used because PostgreSQL was unavailable.",
                  counter_read(&stats->expired));
    metric_single(s->out, "weir_quota_unusable_total", "counter",
                  "Rows of the database with a quota or a plan that cannot be used.",
                  counter_read(&stats->unusable));
    metric_single(s->out, "weir_quota_refused_total", "counter",
                  "Requests that did not wait for a quota because too many others did.",
                  counter_read(&stats->refused) + METRIC_SUM(s->view, worker_stats, quota_refused));
    metric_single(s->out, "weir_quota_clients", "gauge", "Quotas in the local cache.",
                  quota_cache_count(table, QUOTA_FOUND));
    metric_single(s->out, "weir_quota_unknown_ids", "gauge",
                  "Ids in the local cache that have no quota.",
                  quota_cache_count(table, QUOTA_ABSENT));
}

void metrics_write(struct evbuffer *out, const struct admin_view *view)
{
    struct metric_output s = {out, view};

    metric_head(out, "weir_build_info", "gauge", "The running version.");
    evbuffer_add_printf(out, "weir_build_info{version=\"%s\"} 1\n", PACKAGE_VERSION);
    metrics_write_rows(out, view);
    inspected_contents(&s);
    metrics_write_table(out, view);
    upstream_servers(&s);
    redis(&s);
    quotas(&s);
    metrics_write_tokens(out, view);
    metrics_write_tls(out, view);
    metrics_write_policy(out, view);
    metric_single(out, "weir_descriptor_shortages_total", "counter",
                  "Number of times that the process ran out of file descriptors.",
                  descriptors_shortages());
    metric_single(out, "weir_log_lines_dropped_total", "counter",
                  "Log lines dropped because the log file was too slow or could not be written.",
                  log_dropped());
    metrics_write_process(out, view);
}
