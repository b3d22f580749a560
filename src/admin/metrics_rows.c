/* metrics_rows.c - counters by rule, limit or server: sums over the workers' counter tables. */
#include "admin/metrics.h"
#include "base/row_histogram.h"

static const struct counter_table *table_of(const struct worker *worker, enum metric_rows rows)
{
    switch (rows) {
    case ROWS_RULES: return &worker_stats(worker)->by_rule;
    case ROWS_RULE_DURATIONS: return &worker_stats(worker)->rule_durations;
    case ROWS_PRIORITIES: return &worker_stats(worker)->by_priority;
    case ROWS_DOMAINS: return &worker_stats(worker)->by_domain;
    case ROWS_HANDSHAKE_FAILURES: return &worker_stats(worker)->handshake_failures;
    case ROWS_LIMITS: return &worker_limiter_stats(worker)->by_limit;
    case ROWS_SERVERS: return &worker_upstream_stats(worker)->servers.counts;
    case ROWS_SERVER_FIRST: return &worker_upstream_stats(worker)->servers.first;
    case ROWS_SERVER_LAST: break;
    }
    return &worker_upstream_stats(worker)->servers.last;
}

uint64_t metric_row_sum(const struct admin_view *view, enum metric_rows rows, unsigned row,
                        unsigned column)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_table_read(table_of(view->workers[w], rows), row, column);
    return sum;
}

struct metric_requests metric_requests(const struct admin_view *view)
{
    struct metric_requests requests = {0};

    for (unsigned row = 0; row < view->rules->count; row++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++) {
            uint64_t sum = metric_row_sum(view, ROWS_RULES, row, v);
            requests.all += sum;
            requests.rejected += verdict_rejects(v) ? sum : 0;
        }
    return requests;
}

void metric_row_histogram(struct evbuffer *out, const char *family, const char *labels,
                          const struct admin_view *view, enum metric_rows rows, unsigned row)
{
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1], total = 0, below = 0;

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        total += counts[i] = metric_row_sum(view, rows, row, i);
    if (total == 0)
        return;
    for (unsigned i = 0; i < ROW_HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(out, "%s_bucket{%s,le=\"%g\"} %llu\n", family, labels,
                            (double)row_histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(below += counts[i]));
    evbuffer_add_printf(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %.6f\n%s_count{%s} %llu\n",
                        family, labels, (unsigned long long)total, family, labels,
                        (double)metric_row_sum(view, rows, row, ROW_HISTOGRAM_SUM) / 1e6, family,
                        labels, (unsigned long long)total);
}
