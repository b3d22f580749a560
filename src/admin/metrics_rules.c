/* metrics_rules.c - durations of requests by rule. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "base/row_histogram.h"
#include "base/text.h"

static uint64_t sum_of(const struct admin_view *view, unsigned row, unsigned column)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_table_read(&worker_stats(view->workers[w])->rule_durations, row, column);
    return sum;
}

static void write_rule(struct evbuffer *out, const struct admin_view *view, unsigned row,
                       const char *rule)
{
    static const char family[] = "weir_rule_duration_seconds";
    uint64_t counts[ROW_HISTOGRAM_BUCKETS + 1], total = 0, below = 0;

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        total += counts[i] = sum_of(view, row, i);
    if (total == 0)
        return;
    for (unsigned i = 0; i < ROW_HISTOGRAM_BUCKETS; i++)
        evbuffer_add_printf(out, "%s_bucket{rule=\"%s\",le=\"%g\"} %llu\n", family, rule,
                            (double)row_histogram_bounds_us[i] / 1e6,
                            (unsigned long long)(below += counts[i]));
    evbuffer_add_printf(out,
                        "%s_bucket{rule=\"%s\",le=\"+Inf\"} %llu\n%s_sum{rule=\"%s\"} %.6f\n"
                        "%s_count{rule=\"%s\"} %llu\n",
                        family, rule, (unsigned long long)total, family, rule,
                        (double)sum_of(view, row, ROW_HISTOGRAM_SUM) / 1e6, family, rule,
                        (unsigned long long)total);
}

void metrics_write_rules(struct evbuffer *out, const struct admin_view *view)
{
    char label[1024];

    metric_head(out, "weir_rule_duration_seconds", "histogram",
                "Time from reading a request header to writing the end of the response, by rule.");
    for (unsigned row = 0; row < view->rules->count; row++) {
        struct text text = text_over(label, sizeof label);
        label_value(&text, view->rules->name[row]);
        text_char(&text, 0);
        if (!text.failed)
            write_rule(out, view, row, label);
    }
}
