/* metrics_table.c - the metrics that WORKER_METRICS, UPSTREAM_METRICS and
 * LIMITER_METRICS declare. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"

enum shape { SHAPE_ONE, SHAPE_EACH, SHAPE_TIMES };

struct metric_row {
    enum shape shape;
    const char *name, *type, *help;
    size_t offset;         /* of the first counter, or of the histogram */
    unsigned first, count; /* of the label's values */
    const char *label;
    const char *(*name_of)(unsigned value);
};

#define ONE_OF(stats, member, type, name, help)                                                    \
    {SHAPE_ONE, name, type, help, offsetof(stats, member), 0, 1, 0, 0},
#define EACH_OF(stats, member, values, first, label, label_name, name, help)                       \
    {SHAPE_EACH, name, "counter", help, offsetof(stats, member), first, values, label, label_name},
#define TIMES_OF(stats, member, name, help)                                                        \
    {SHAPE_TIMES, name, "histogram", help, offsetof(stats, member), 0, 0, 0, 0},

#define WORKER_ONE(...)     ONE_OF(struct worker_stats, __VA_ARGS__)
#define WORKER_EACH(...)    EACH_OF(struct worker_stats, __VA_ARGS__)
#define WORKER_TIMES(...)   TIMES_OF(struct worker_stats, __VA_ARGS__)
#define UPSTREAM_ONE(...)   ONE_OF(struct upstream_stats, __VA_ARGS__)
#define UPSTREAM_EACH(...)  EACH_OF(struct upstream_stats, __VA_ARGS__)
#define UPSTREAM_TIMES(...) TIMES_OF(struct upstream_stats, __VA_ARGS__)
#define LIMITER_ONE(...)    ONE_OF(struct limiter_stats, __VA_ARGS__)
#define LIMITER_EACH(...)   EACH_OF(struct limiter_stats, __VA_ARGS__)
#define LIMITER_TIMES(...)  TIMES_OF(struct limiter_stats, __VA_ARGS__)

static const struct metric_row worker_rows[] = {
    WORKER_METRICS(WORKER_ONE, WORKER_EACH, WORKER_TIMES)};
static const struct metric_row upstream_rows[] = {
    UPSTREAM_METRICS(UPSTREAM_ONE, UPSTREAM_EACH, UPSTREAM_TIMES)};
static const struct metric_row limiter_rows[] = {
    LIMITER_METRICS(LIMITER_ONE, LIMITER_EACH, LIMITER_TIMES)};

static const void *stats_of_worker(const struct worker *worker)
{
    return worker_stats(worker);
}

static const void *stats_of_upstreams(const struct worker *worker)
{
    return worker_upstream_stats(worker);
}

static const void *stats_of_limiter(const struct worker *worker)
{
    return worker_limiter_stats(worker);
}

/* Sums a counter over all workers. */
static uint64_t sum_at(const struct admin_view *view, const void *(*stats)(const struct worker *),
                       size_t offset)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_read((const counter_t *)((const char *)stats(view->workers[w]) + offset));
    return sum;
}

static void write_histogram(struct evbuffer *out, const struct admin_view *view,
                            const struct metric_row *row,
                            const void *(*stats)(const struct worker *))
{
    uint64_t counts[HISTOGRAM_BUCKETS + 1] = {0}, total = 0,
                                        sum_us = sum_at(view, stats,
                                                        row->offset +
                                                            offsetof(struct histogram, sum_us));

    for (unsigned w = 0; w < view->worker_count; w++)
        histogram_add_to((const void *)((const char *)stats(view->workers[w]) + row->offset),
                         counts);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(out, "%s_bucket{le=\"%g\"} %llu\n", row->name,
                            (double)histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(total += counts[i]));
    total += counts[HISTOGRAM_BUCKETS];
    evbuffer_add_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", row->name,
                        (unsigned long long)total, row->name, (double)sum_us / 1e6, row->name,
                        (unsigned long long)total);
}

static void write_rows(struct evbuffer *out, const struct admin_view *view,
                       const struct metric_row *rows, size_t count,
                       const void *(*stats)(const struct worker *))
{
    for (const struct metric_row *row = rows; row < rows + count; row++) {
        metric_head(out, row->name, row->type, row->help);
        switch (row->shape) {
        case SHAPE_ONE: metric_sample(out, row->name, "", sum_at(view, stats, row->offset)); break;
        case SHAPE_EACH:
            for (unsigned i = row->first; i < row->count; i++)
                metric_labelled(out, row->name,
                                sum_at(view, stats, row->offset + i * sizeof(counter_t)),
                                LABELS(row->label, row->name_of(i)));
            break;
        case SHAPE_TIMES: write_histogram(out, view, row, stats); break;
        }
    }
}

void metrics_write_table(struct evbuffer *out, const struct admin_view *view)
{
    write_rows(out, view, worker_rows, COUNT_OF(worker_rows), stats_of_worker);
    write_rows(out, view, upstream_rows, COUNT_OF(upstream_rows), stats_of_upstreams);
    write_rows(out, view, limiter_rows, COUNT_OF(limiter_rows), stats_of_limiter);
}
