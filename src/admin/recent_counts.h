/* recent_counts.h - what has happened within the last seconds, from counters that only grow: the
 * problems that are rates (admin/problems.h) begin and end with it.
 *
 * Two copies of the counters are kept, each 5 s apart. The difference between the counters and the
 * older copy covers the last 5 to 10 s. Main thread only. */
#ifndef WEIR_ADMIN_RECENT_COUNTS_H
#define WEIR_ADMIN_RECENT_COUNTS_H

#include "admin/metrics.h"

struct recent_counts;

/* Begins with the counters of now. NULL: no memory. */
struct recent_counts *recent_counts_new(const struct admin_view *view);
void recent_counts_free(struct recent_counts *recent);

/* Call about once a second. */
void recent_counts_update(struct recent_counts *recent, const struct admin_view *view);

/* Requests to one server, and how many of them have failed or were answered with 5xx. */
struct recent_server {
    uint64_t all, failed;
    double first_seconds; /* median time to the first byte of a response; -1: no response */
    double usual_seconds; /* the same of all responses before; 0: not known yet */
};
struct recent_server recent_of_server(const struct recent_counts *recent,
                                      const struct admin_view *view, unsigned row);

struct metric_requests recent_requests(const struct recent_counts *recent,
                                       const struct admin_view *view);

/* Decisions by Redis. */
struct recent_decisions {
    uint64_t all, late;   /* late: not within redis.timeout */
    double worst_seconds; /* 99th percentile of the time to the reply; -1: no reply */
};
struct recent_decisions recent_decisions(const struct recent_counts *recent,
                                         const struct admin_view *view);

/* Log lines that were lost. */
uint64_t recent_lost_lines(const struct recent_counts *recent);

#endif
