#include "admin/snapshot.h"

#include <stdlib.h>

#include "admin/percentile.h"
#include "admin/status.h"
#include "admin/top_api.h"
#include "base/clock.h"
#include "base/row_histogram.h"

/* Counts of one histogram, and of the same a snapshot ago. */
struct buckets {
    uint64_t now[HISTOGRAM_BUCKETS + 1], before[HISTOGRAM_BUCKETS + 1];
};

/* Counters are stored in the order in which a snapshot reads them, which depends on the policy
 * alone. */
struct snapshot_history {
    uint64_t at_us; /* of the snapshot before; 0: none */
    uint64_t *counts;
    size_t room, used, read;
    struct buckets requests, upstream, upstream_total, redis;
};

struct source {
    struct json_writer json;
    const struct admin_view *view;
    struct snapshot_history *history;
    double interval_s; /* 0: no snapshot before */
};

struct snapshot_history *snapshot_history_new(void)
{
    return calloc(1, sizeof(struct snapshot_history));
}

void snapshot_history_free(struct snapshot_history *history)
{
    if (!history)
        return;
    free(history->counts);
    free(history);
}

void snapshot_history_clear(struct snapshot_history *history)
{
    history->at_us = 0;
    history->used = 0;
}

/* --- Counters and rates ----------------------------------------------------------------------- */

/* Stores the counter for the next snapshot. Returns its increase, or -1 if it was not stored. */
static int64_t increase(struct snapshot_history *history, uint64_t total)
{
    size_t i = history->read++;
    int64_t more = i < history->used ? (int64_t)(total - history->counts[i]) : -1;

    if (i == history->room) {
        size_t room = history->room ? 2 * history->room : 256;
        uint64_t *counts = realloc(history->counts, room * sizeof *counts);
        if (!counts)
            return -1;
        history->counts = counts;
        history->room = room;
    }
    history->counts[i] = total;
    return more;
}

/* Writes "key":{"total":N,"per_second":R}. `more`: the result of increase(). */
static void put_counter(struct source *s, const char *key, uint64_t total, int64_t more)
{
    json_begin(&s->json, key, '{');
    json_put_u64(&s->json, "total", total);
    if (more < 0 || s->interval_s <= 0)
        json_put_null(&s->json, "per_second");
    else
        json_put_number(&s->json, "per_second", (double)more / s->interval_s);
    json_end(&s->json, '}');
}

static void counter(struct source *s, const char *key, uint64_t total)
{
    put_counter(s, key, total, increase(s->history, total));
}

#define SUM(s, stats, member)                                                                      \
    ({                                                                                             \
        uint64_t sum_ = 0;                                                                         \
        for (unsigned w_ = 0; w_ < (s)->view->worker_count; w_++)                                  \
            sum_ += counter_read(&stats((s)->view->workers[w_])->member);                          \
        sum_;                                                                                      \
    })

static uint64_t by_rule(const struct source *s, unsigned row, unsigned verdict)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < s->view->worker_count; w++)
        sum += counter_table_read(&worker_stats(s->view->workers[w])->by_rule, row, verdict);
    return sum;
}

static uint64_t by_limit(const struct source *s, unsigned row, unsigned verdict)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < s->view->worker_count; w++)
        sum +=
            counter_table_read(&worker_limiter_stats(s->view->workers[w])->by_limit, row, verdict);
    return sum;
}

/* --- Percentiles ------------------------------------------------------------------------------ */

static void put_percentile(struct source *s, const char *key, double seconds)
{
    if (seconds < 0)
        json_put_null(&s->json, key);
    else
        json_put_number(&s->json, key, seconds);
}

/* Writes the percentiles of `buckets` counts, and of one more above the last bound. */
static void percentiles(struct source *s, const char *key, const uint64_t *counts,
                        const uint64_t *bounds_us, unsigned buckets)
{
    uint64_t total = 0;

    for (unsigned i = 0; i <= buckets; i++)
        total += counts[i];
    json_begin(&s->json, key, '{');
    put_percentile(s, "p50_seconds", percentile_seconds(counts, bounds_us, buckets, 0.5));
    put_percentile(s, "p99_seconds", percentile_seconds(counts, bounds_us, buckets, 0.99));
    json_put_u64(&s->json, "count", total);
    json_end(&s->json, '}');
}

static void latency(struct source *s, const char *key, struct buckets *buckets)
{
    uint64_t counts[HISTOGRAM_BUCKETS + 1] = {0};

    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS && s->interval_s > 0; i++)
        counts[i] = buckets->now[i] - buckets->before[i];
    percentiles(s, key, counts, histogram_bounds_us, HISTOGRAM_BUCKETS);
    memcpy(buckets->before, buckets->now, sizeof buckets->before);
}

static void add_up(struct buckets *buckets, const struct histogram *histogram, bool first)
{
    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++)
        buckets->now[i] = (first ? 0 : buckets->now[i]) + counter_read(&histogram->bucket[i]);
}

static void latencies(struct source *s)
{
    struct snapshot_history *history = s->history;

    for (unsigned w = 0; w < s->view->worker_count; w++) {
        const struct worker_stats *stats = worker_stats(s->view->workers[w]);
        add_up(&history->requests, &stats->request_duration, w == 0);
        add_up(&history->upstream, &stats->upstream_latency, w == 0);
        add_up(&history->upstream_total, &stats->upstream_total, w == 0);
        add_up(&history->redis, &worker_limiter_stats(s->view->workers[w])->redis_latency, w == 0);
    }
    json_begin(&s->json, "latency", '{');
    latency(s, "requests", &history->requests);
    latency(s, "upstream", &history->upstream);
    latency(s, "upstream_total", &history->upstream_total);
    latency(s, "redis", &history->redis);
    json_end(&s->json, '}');
}

/* --- Parts ------------------------------------------------------------------------------------ */

static void requests(struct source *s)
{
    uint64_t ended = 0, failed = 0, rejected[VERDICT_COUNT] = {0};

    for (unsigned i = 0; i < RESPONSE_CLASSES; i++)
        ended += SUM(s, worker_stats, responses[i]);
    for (unsigned c = CAUSE_NONE + 1; c < CAUSE_COUNT; c++)
        failed += SUM(s, worker_stats, errors[c]);
    for (unsigned r = 0; r < s->view->policy->rule_count; r++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++)
            rejected[v] += by_rule(s, s->view->policy->rules[r].row, v);
    json_begin(&s->json, "requests", '{');
    counter(s, "ended", ended);
    counter(s, "failed", failed);
    json_begin(&s->json, "responses", '{');
    for (unsigned i = 0; i < RESPONSE_CLASSES; i++)
        counter(s, response_class_name(i), SUM(s, worker_stats, responses[i]));
    json_end(&s->json, '}');
    json_put_u64(&s->json, "active", SUM(s, worker_stats, requests_active));
    json_put_u64(&s->json, "held", SUM(s, worker_stats, requests_held));
    json_put_u64(&s->json, "connections", SUM(s, worker_stats, connections_open));
    json_put_u64(&s->json, "upstream_connections", SUM(s, worker_upstream_stats, connections_open));
    json_end(&s->json, '}');
    json_begin(&s->json, "decisions", '{');
    for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++)
        counter(s, verdict_label[v], rejected[v]);
    json_end(&s->json, '}');
}

static void redis(struct source *s)
{
    uint64_t failures = 0;

    if (!policy_needs_redis(s->view->policy)) {
        json_put_null(&s->json, "redis");
        return;
    }
    for (unsigned c = 0; c < REDIS_FAILURE_COUNT; c++)
        failures += SUM(s, worker_limiter_stats, redis_failures[c]);
    json_begin(&s->json, "redis", '{');
    status_write_redis(&s->json, s->view);
    counter(s, "calls", SUM(s, worker_limiter_stats, redis_calls));
    counter(s, "decisions", SUM(s, worker_limiter_stats, redis_requests));
    counter(s, "failures", failures);
    json_end(&s->json, '}');
}

static void workers(struct source *s)
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

/* Writes "decisions": allowed and limited always, the others if they have occurred. Every count is
 * read, so that the history has the same order in every snapshot. */
static void decisions(struct source *s, unsigned row, unsigned verdicts,
                      uint64_t (*count)(const struct source *, unsigned row, unsigned verdict))
{
    json_begin(&s->json, "decisions", '{');
    for (unsigned v = 0; v < verdicts; v++) {
        uint64_t total = count(s, row, v);
        if (total || v == VERDICT_ALLOWED || v == VERDICT_LIMITED)
            counter(s, verdict_label[v], total);
        else
            (void)increase(s->history, total);
    }
    json_end(&s->json, '}');
}

static void rules(struct source *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "rules", '[');
    for (unsigned r = 0; r < policy->rule_count && r < SNAPSHOT_RULES_MAX; r++) {
        const struct rule *rule = &policy->rules[r];
        json_begin(&s->json, NULL, '{');
        json_put_text(&s->json, "name", rule->name);
        json_begin(&s->json, "limits", '[');
        for (unsigned i = 0; i < rule->limit_count; i++)
            json_put_text(&s->json, NULL, rule->limits[i]->name);
        json_end(&s->json, ']');
        decisions(s, rule->row, VERDICT_NOT_CHARGED, by_rule);
        json_end(&s->json, '}');
    }
    json_end(&s->json, ']');
}

static uint64_t by_priority(const struct source *s, unsigned row, unsigned verdict)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < s->view->worker_count; w++)
        sum += counter_table_read(&worker_stats(s->view->workers[w])->by_priority, row, verdict);
    return sum;
}

static void priorities(struct source *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "priorities", '[');
    for (unsigned p = 0; p < policy->priority_count; p++) {
        const struct priority *priority = &policy->priorities[p];
        json_begin(&s->json, NULL, '{');
        json_put_text(&s->json, "name", priority->name);
        json_put_number(&s->json, "share", (double)priority->share / SHARE_WHOLE);
        decisions(s, priority->row, VERDICT_NOT_CHARGED, by_priority);
        json_end(&s->json, '}');
    }
    json_end(&s->json, ']');
}

/* The numbers that limits of the policy and of descriptors have. */
static void put_limit(struct source *s, const struct limit *limit)
{
    json_put_text(&s->json, "name", limit->name);
    json_put_text(&s->json, "script", limit->script);
    json_put_i64(&s->json, "limit", limit->limit);
    if (limit->kind == LIMIT_CONCURRENCY)
        json_put_null(&s->json, "period_seconds");
    else
        json_put_seconds(&s->json, "period_seconds", limit->period_us);
    json_put_bool(&s->json, "shadow", limit->enforce == 0);
}

/* One `rate_limit` of descriptors and its decisions. */
struct counted {
    const struct limit *limit;
    uint64_t total[VERDICT_COUNT], all;
    int64_t more[VERDICT_COUNT], lately; /* the results of increase(), and their sum */
};

static struct counted count_rate_limit(struct source *s, const struct limit *limit)
{
    struct counted c = {.limit = limit};

    for (unsigned v = 0; v < VERDICT_COUNT; v++) {
        c.total[v] = by_limit(s, limit->row, v);
        c.more[v] = increase(s->history, c.total[v]);
        c.all += c.total[v];
        c.lately += c.more[v] > 0 ? c.more[v] : 0;
    }
    return c;
}

static bool is_busier(const struct counted *a, const struct counted *b)
{
    return a->lately != b->lately ? a->lately > b->lately : a->all > b->all;
}

/* Policies may have thousands of them: writes those with decisions, and of these the busiest. */
static void rate_limits(struct source *s)
{
    const struct rate_limit_service *service = &s->view->policy->rate_limit_service;
    struct counted busiest[SNAPSHOT_RATE_LIMITS_MAX + 1];
    unsigned count = 0;

    for (unsigned i = 0; i < service->rate_limit_count; i++) {
        struct counted c = count_rate_limit(s, service->rate_limits[i]);
        unsigned at = count;
        if (!c.all)
            continue;
        for (; at && is_busier(&c, &busiest[at - 1]); at--)
            busiest[at] = busiest[at - 1];
        busiest[at] = c;
        count += count < SNAPSHOT_RATE_LIMITS_MAX;
    }
    for (unsigned i = 0; i < count; i++) {
        const struct counted *c = &busiest[i];
        json_begin(&s->json, NULL, '{');
        put_limit(s, c->limit);
        json_begin(&s->json, "decisions", '{');
        for (unsigned v = 0; v < VERDICT_COUNT; v++)
            if (c->total[v] || v == VERDICT_ALLOWED || v == VERDICT_LIMITED)
                put_counter(s, verdict_label[v], c->total[v], c->more[v]);
        json_end(&s->json, '}');
        json_end(&s->json, '}');
    }
}

static void limits(struct source *s)
{
    const struct policy *policy = s->view->policy;

    json_begin(&s->json, "limits", '[');
    for (unsigned l = 0; l < policy->limit_count; l++) {
        const struct limit *limit = &policy->limits[l];
        json_begin(&s->json, NULL, '{');
        put_limit(s, limit);
        decisions(s, limit->row, VERDICT_COUNT, by_limit);
        uint64_t units = by_limit(s, limit->row, UNITS_COLUMN);
        if (limit->own_cost)
            counter(s, "units", units);
        else
            (void)increase(s->history, units);
        json_end(&s->json, '}');
    }
    rate_limits(s);
    json_end(&s->json, ']');
}

/* ---- servers ---- */

static const struct counter_table *server_counts(const struct worker *worker)
{
    return &worker_upstream_stats(worker)->servers.counts;
}

static const struct counter_table *server_first(const struct worker *worker)
{
    return &worker_upstream_stats(worker)->servers.first;
}

static const struct counter_table *server_last(const struct worker *worker)
{
    return &worker_upstream_stats(worker)->servers.last;
}

static void server_latency(struct source *s, const char *key,
                           const struct counter_table *(*table_of)(const struct worker *),
                           unsigned row)
{
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1];

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++) {
        int64_t more = increase(s->history, metric_row_sum(s->view, table_of, row, i));
        counts[i] = more > 0 && s->interval_s > 0 ? (uint64_t)more : 0;
    }
    percentiles(s, key, counts, row_histogram_bounds_us, ROW_HISTOGRAM_BUCKETS);
}

static void server(struct source *s, const struct upstream *upstream,
                   const struct upstream_server *server)
{
    static const char *const classes[SERVER_CLASSES] = {"1xx", "2xx", "3xx", "4xx", "5xx"};
    uint64_t errors = 0;

    for (unsigned i = 0; i < SERVER_ERROR_COUNT; i++)
        errors += metric_row_sum(s->view, server_counts, server->row, SERVER_ERROR_FIRST + i);
    json_begin(&s->json, NULL, '{');
    json_put_text(&s->json, "upstream", upstream->name);
    json_put_text(&s->json, "server", server->text);
    json_begin(&s->json, "responses", '{');
    for (unsigned i = 1; i < SERVER_CLASSES; i++)
        counter(s, classes[i],
                metric_row_sum(s->view, server_counts, server->row, SERVER_RESPONSES + i));
    json_end(&s->json, '}');
    counter(s, "errors", errors);
    counter(s, "retries", metric_row_sum(s->view, server_counts, server->row, SERVER_RETRIES));
    counter(s, "ejections", metric_row_sum(s->view, server_counts, server->row, SERVER_EJECTIONS));
    json_put_u64(&s->json, "in_flight",
                 metric_row_sum(s->view, server_counts, server->row, SERVER_IN_FLIGHT));
    json_begin(&s->json, "latency", '{');
    server_latency(s, "first", server_first, server->row);
    server_latency(s, "last", server_last, server->row);
    json_end(&s->json, '}');
    json_end(&s->json, '}');
}

static void servers(struct source *s)
{
    const struct policy *policy = s->view->policy;
    unsigned left = SNAPSHOT_SERVERS_MAX;

    json_begin(&s->json, "servers", '[');
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        for (unsigned i = 0; i < policy->upstreams[u].server_count && left; i++, left--)
            server(s, &policy->upstreams[u], &policy->upstreams[u].servers[i]);
    }
    json_end(&s->json, ']');
}

static void top(struct source *s)
{
    double seconds = 0;

    json_begin(&s->json, "top", '{');
    for (enum top_by by = 0; by < TOP_BY_COUNT; by++)
        top_write(&s->json, top_by_label[by], s->view, by, SNAPSHOT_TOP, &seconds);
    json_put_number(&s->json, "seconds", seconds);
    json_end(&s->json, '}');
}

void snapshot_write(struct text *out, const struct admin_view *view,
                    struct snapshot_history *history)
{
    uint64_t now = clock_us();
    struct source s = {json_writer_growing(out), view, history,
                       history->at_us ? (double)(now - history->at_us) / 1e6 : 0};

    history->read = 0;
    json_begin(&s.json, NULL, '{');
    json_put_seconds(&s.json, "time", (int64_t)clock_wall_us());
    if (s.interval_s > 0)
        json_put_number(&s.json, "interval_seconds", s.interval_s);
    else
        json_put_null(&s.json, "interval_seconds");
    status_write_process(&s.json, view);
    requests(&s);
    latencies(&s);
    redis(&s);
    workers(&s);
    rules(&s);
    priorities(&s);
    limits(&s);
    status_write_upstreams(&s.json, view);
    servers(&s);
    top(&s);
    json_end(&s.json, '}');
    history->used = history->read < history->room ? history->read : history->room;
    history->at_us = now;
}
