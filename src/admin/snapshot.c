#include "admin/snapshot.h"

#include "admin/snapshot_parts.h"
#include "admin/status_api.h"
#include "admin/top_api.h"
#include "base/clock.h"

static void requests(struct snapshot *s)
{
    uint64_t ended = 0, failed = 0, rejected[VERDICT_COUNT] = {0};

    for (unsigned i = 0; i < RESPONSE_CLASSES; i++)
        ended += METRIC_SUM(s->view, worker_stats, responses[i]);
    for (unsigned c = CAUSE_NONE + 1; c < CAUSE_COUNT; c++)
        failed += METRIC_SUM(s->view, worker_stats, errors[c]);
    for (unsigned r = 0; r < s->view->policy->rule_count; r++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++)
            rejected[v] += metric_row_sum(s->view, TABLE_RULES, s->view->policy->rules[r].row, v);
    json_begin(&s->json, "requests", '{');
    snapshot_counter(s, "ended", ended);
    snapshot_counter(s, "failed", failed);
    json_begin(&s->json, "responses", '{');
    for (unsigned i = 0; i < RESPONSE_CLASSES; i++)
        snapshot_counter(s, response_class_name[i],
                         METRIC_SUM(s->view, worker_stats, responses[i]));
    json_end(&s->json, '}');
    json_put_u64(&s->json, "active", METRIC_SUM(s->view, worker_stats, requests_active));
    json_put_u64(&s->json, "held", METRIC_SUM(s->view, worker_stats, requests_held));
    json_put_u64(&s->json, "connections", METRIC_SUM(s->view, worker_stats, connections_open));
    json_put_u64(&s->json, "upstream_connections",
                 METRIC_SUM(s->view, worker_upstream_stats, connections_open));
    json_end(&s->json, '}');
    json_begin(&s->json, "decisions", '{');
    for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++)
        snapshot_counter(s, verdict_label[v], rejected[v]);
    json_end(&s->json, '}');
}

static void latencies(struct snapshot *s)
{
    json_begin(&s->json, "latency", '{');
    snapshot_latency(s, "requests", SNAPSHOT_REQUESTS);
    snapshot_latency(s, "upstream", SNAPSHOT_UPSTREAM);
    snapshot_latency(s, "upstream_total", SNAPSHOT_UPSTREAM_TOTAL);
    snapshot_latency(s, "redis", SNAPSHOT_REDIS);
    json_end(&s->json, '}');
}

static void rate_limit_service(struct snapshot *s)
{
    struct metric_calls calls = metric_calls(s->view);

    if (!s->view->policy->rate_limit_service.is_set) {
        json_put_null(&s->json, "rate_limit_service");
        return;
    }
    json_begin(&s->json, "rate_limit_service", '{');
    snapshot_counter(s, "calls", calls.all);
    snapshot_counter(s, "over_limit", calls.over_limit);
    snapshot_counter(s, "errors", calls.errors);
    snapshot_latency(s, "latency", SNAPSHOT_CALLS);
    json_end(&s->json, '}');
}

static void redis(struct snapshot *s)
{
    uint64_t failures = 0;

    if (!policy_needs_redis(s->view->policy)) {
        json_put_null(&s->json, "redis");
        return;
    }
    for (unsigned c = 0; c < REDIS_FAILURE_COUNT; c++)
        failures += METRIC_SUM(s->view, worker_limiter_stats, redis_failures[c]);
    json_begin(&s->json, "redis", '{');
    status_write_redis(&s->json, s->view);
    snapshot_counter(s, "calls", METRIC_SUM(s->view, worker_limiter_stats, redis_calls));
    snapshot_counter(s, "decisions", METRIC_SUM(s->view, worker_limiter_stats, redis_requests));
    snapshot_counter(s, "failures", failures);
    json_end(&s->json, '}');
}

static void workers(struct snapshot *s)
{
    json_begin(&s->json, "workers", '[');
    for (unsigned w = 0; w < s->view->worker_count; w++) {
        const struct worker_stats *stats = worker_stats(s->view->workers[w]);
        json_begin(&s->json, NULL, '{');
        json_put_u64(&s->json, "connections", counter_read(&stats->connections_open));
        json_put_u64(&s->json, "requests_active", counter_read(&stats->requests_active));
        json_put_bool(&s->json, "redis_ready", worker_redis_ready(s->view->workers[w]));
        json_end(&s->json, '}');
    }
    json_end(&s->json, ']');
}

static void top(struct snapshot *s)
{
    double seconds = 0, longest = 0;

    json_begin(&s->json, "top", '{');
    for (enum top_by by = 0; by < TOP_BY_COUNT; by++) {
        top_write(&s->json, top_by_label[by], s->view, by, SNAPSHOT_TOP, &seconds);
        longest = seconds > longest ? seconds : longest;
    }
    json_put_number(&s->json, "seconds", longest);
    json_end(&s->json, '}');
}

void snapshot_write(struct text *out, const struct admin_view *view,
                    struct snapshot_history *history)
{
    uint64_t now = clock_us();
    struct snapshot s = {json_writer_growing(out), view, history,
                         snapshot_history_begin(history, now)};

    json_begin(&s.json, NULL, '{');
    json_put_seconds(&s.json, "time", (int64_t)clock_wall_us());
    if (s.interval_s > 0)
        json_put_number(&s.json, "interval_seconds", s.interval_s);
    else
        json_put_null(&s.json, "interval_seconds");
    status_write_process(&s.json, view);
    requests(&s);
    latencies(&s);
    rate_limit_service(&s);
    redis(&s);
    workers(&s);
    snapshot_decisions(&s);
    status_write_upstreams(&s.json, view);
    snapshot_servers(&s);
    top(&s);
    json_end(&s.json, '}');
    snapshot_history_end(history, now);
}
