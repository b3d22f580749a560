/* metrics_table.c - the metrics that WORKER_METRICS, UPSTREAM_METRICS and
 * LIMITER_METRICS declare. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"

enum shape { SHAPE_ONE, SHAPE_EACH, SHAPE_TIMES };
enum owner { OF_WORKER, OF_UPSTREAMS, OF_LIMITER };

struct metric_row {
    enum owner owner;
    enum shape shape;
    const char *name, *type, *help;
    size_t offset;         /* of the first counter, or of the histogram */
    unsigned first, count; /* of the label's values */
    const char *label;
    const char *const *values;
};

#define ONE_OF(owner, stats, member, type, name, help)                                             \
    {owner, SHAPE_ONE, name, type, help, offsetof(stats, member), 0, 1, 0, 0},
#define EACH_OF(owner, stats, member, values, first, label, label_values, name, help)              \
    {owner, SHAPE_EACH, name,  "counter",   help, offsetof(stats, member),                         \
     first, values,     label, label_values},
#define TIMES_OF(owner, stats, member, name, help)                                                 \
    {owner, SHAPE_TIMES, name, "histogram", help, offsetof(stats, member), 0, 0, 0, 0},

#define WORKER_ONE(...)     ONE_OF(OF_WORKER, struct worker_stats, __VA_ARGS__)
#define WORKER_EACH(...)    EACH_OF(OF_WORKER, struct worker_stats, __VA_ARGS__)
#define WORKER_TIMES(...)   TIMES_OF(OF_WORKER, struct worker_stats, __VA_ARGS__)
#define UPSTREAM_ONE(...)   ONE_OF(OF_UPSTREAMS, struct upstream_stats, __VA_ARGS__)
#define UPSTREAM_EACH(...)  EACH_OF(OF_UPSTREAMS, struct upstream_stats, __VA_ARGS__)
#define UPSTREAM_TIMES(...) TIMES_OF(OF_UPSTREAMS, struct upstream_stats, __VA_ARGS__)
#define LIMITER_ONE(...)    ONE_OF(OF_LIMITER, struct limiter_stats, __VA_ARGS__)
#define LIMITER_EACH(...)   EACH_OF(OF_LIMITER, struct limiter_stats, __VA_ARGS__)
#define LIMITER_TIMES(...)  TIMES_OF(OF_LIMITER, struct limiter_stats, __VA_ARGS__)

static const struct metric_row rows[] = {
    WORKER_METRICS(WORKER_ONE, WORKER_EACH, WORKER_TIMES)
        UPSTREAM_METRICS(UPSTREAM_ONE, UPSTREAM_EACH, UPSTREAM_TIMES)
            LIMITER_METRICS(LIMITER_ONE, LIMITER_EACH, LIMITER_TIMES)};

/* Returns the first counter of a row, or its histogram. */
static const void *counters_of(const struct metric_row *row, const struct worker *worker)
{
    const void *stats = row->owner == OF_WORKER      ? (const void *)worker_stats(worker)
                        : row->owner == OF_UPSTREAMS ? (const void *)worker_upstream_stats(worker)
                                                     : worker_limiter_stats(worker);
    return (const char *)stats + row->offset;
}

/* Sums the `i`th counter of a row over all workers. */
static uint64_t sum_at(const struct admin_view *view, const struct metric_row *row, size_t i)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_read((const counter_t *)counters_of(row, view->workers[w]) + i);
    return sum;
}

static void write_histogram(struct evbuffer *out, const struct admin_view *view,
                            const struct metric_row *row)
{
    uint64_t counts[HISTOGRAM_BUCKETS + 1] = {0}, total = 0,
                                        sum_us = sum_at(view, row,
                                                        offsetof(struct histogram, sum_us) /
                                                            sizeof(counter_t));

    for (unsigned w = 0; w < view->worker_count; w++)
        histogram_add_to(counters_of(row, view->workers[w]), counts);
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(out, "%s_bucket{le=\"%g\"} %llu\n", row->name,
                            (double)histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(total += counts[i]));
    total += counts[HISTOGRAM_BUCKETS];
    evbuffer_add_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.6f\n%s_count %llu\n", row->name,
                        (unsigned long long)total, row->name, (double)sum_us / 1e6, row->name,
                        (unsigned long long)total);
}

void metrics_write_table(struct evbuffer *out, const struct admin_view *view)
{
    for (const struct metric_row *row = rows; row < rows + COUNT_OF(rows); row++) {
        metric_head(out, row->name, row->type, row->help);
        switch (row->shape) {
        case SHAPE_ONE: metric_sample(out, row->name, "", sum_at(view, row, 0)); break;
        case SHAPE_EACH:
            for (unsigned i = row->first; i < row->count; i++)
                metric_labelled(out, row->name, sum_at(view, row, i),
                                LABELS(row->label, row->values[i]));
            break;
        case SHAPE_TIMES: write_histogram(out, view, row); break;
        }
    }
}
