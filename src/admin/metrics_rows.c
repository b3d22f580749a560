/* metrics_rows.c - counters by rule, limit or server: sums over the workers' counter tables. */
#include "admin/metrics.h"
#include "base/row_histogram.h"

uint64_t metric_row_sum(const struct admin_view *view, enum worker_table table, unsigned row,
                        unsigned column)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_table_read(worker_table(view->workers[w], table), row, column);
    return sum;
}

struct metric_requests metric_requests(const struct admin_view *view)
{
    struct metric_requests requests = {0};

    for (unsigned row = 0; row < view->names[NAMES_RULES].count; row++)
        for (unsigned v = 0; v < VERDICT_NOT_CHARGED; v++) {
            uint64_t sum = metric_row_sum(view, TABLE_RULES, row, v);
            requests.all += sum;
            requests.rejected += verdict_rejects(v) ? sum : 0;
        }
    return requests;
}

void metric_row_histogram(struct evbuffer *out, const char *family, const char *labels,
                          const struct admin_view *view, enum worker_table table, unsigned row)
{
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1], total = 0, below = 0;

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        total += counts[i] = metric_row_sum(view, table, row, i);
    if (total == 0)
        return;
    for (unsigned i = 0; i < ROW_HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(out, "%s_bucket{%s,le=\"%g\"} %llu\n", family, labels,
                            (double)row_histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(below += counts[i]));
    evbuffer_add_printf(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %.6f\n%s_count{%s} %llu\n",
                        family, labels, (unsigned long long)total, family, labels,
                        (double)metric_row_sum(view, table, row, ROW_HISTOGRAM_SUM) / 1e6, family,
                        labels, (unsigned long long)total);
}
