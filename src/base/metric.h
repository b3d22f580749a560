/* metric.h - declares a metric once: the member that counts it and its row in /metrics.
 *
 *     #define WORKER_METRICS(ONE, EACH, TIMES)                                                 \
 *         ONE(requests_active, "gauge", "weir_requests_active", "Requests in progress.")       \
 *         EACH(errors, CAUSE_COUNT, 1, "cause", cause_label, "weir_errors_total", "Failures.") \
 *         TIMES(held, "weir_held_seconds", "Time for which leaky_bucket delayed requests.")
 *
 *     struct worker_stats {
 *         WORKER_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
 *     };
 *
 *     counter_add(&stats->errors[cause], 1);
 *
 * ONE   a counter or gauge without labels
 * EACH  a counter per value of a label: member, number of values, first one shown, label, names of
 *       the values
 * TIMES a histogram of durations
 *
 * admin/metrics_table.c writes the rows; each is the sum over all workers. */
#ifndef WEIR_BASE_METRIC_H
#define WEIR_BASE_METRIC_H

#include "base/histogram.h"

#define METRIC_ONE(member, type, name, help)                         counter_t member;
#define METRIC_EACH(member, values, first, label, names, name, help) counter_t member[values];
#define METRIC_TIMES(member, name, help)                             struct histogram member;

#endif
