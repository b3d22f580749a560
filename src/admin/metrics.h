/* metrics.h - the counters of all workers as Prometheus text (exposition format 0.0.4). */
#ifndef WEIR_ADMIN_METRICS_H
#define WEIR_ADMIN_METRICS_H

#include <event2/buffer.h>

#include "upstream/endpoint_set.h"
#include "worker/worker.h"

/* The data that the admin listener shows. Owned and updated by the main thread, whose loop runs
 * the listener. */
struct admin_view {
    struct policy *policy;             /* current policy */
    struct endpoint_set *endpoint_set; /* its upstream servers */
    uint64_t started_us;               /* monotonic */
    uint64_t started_wall_us, policy_loaded_wall_us;
    bool ready, stopping; /* all workers serve; weir is stopping */
    bool worker_stuck;    /* one has not completed a loop iteration since the last check */
    uint64_t reloads_good, reloads_failed;
    bool last_reload_failed;
    const struct counter_names *names; /* [enum worker_names] */
    const struct quotas *quotas;
    const struct key_fetcher *keys;
    const struct recent_counts *recent; /* NULL: not yet */
    struct clients_api *clients;        /* this and the next two are admin_new()'s */
    struct events *events;
    struct chart_history *history;
    struct worker *const *workers;
    unsigned worker_count;
};

/* The output and the data source of functions that write metrics. */
struct metric_output {
    struct evbuffer *out;
    const struct admin_view *view;
};

/* Evaluates to the sum of a counter over all workers. `stats_of`: worker_stats,
 * worker_upstream_stats or worker_limiter_stats. */
#define METRIC_SUM(view, stats_of, member)                                                         \
    ({                                                                                             \
        uint64_t sum_ = 0;                                                                         \
        for (unsigned w_ = 0; w_ < (view)->worker_count; w_++)                                     \
            sum_ += counter_read(&stats_of((view)->workers[w_])->member);                          \
        sum_;                                                                                      \
    })

/* Returns the sum of a counter of a table over all workers. */
uint64_t metric_row_sum(const struct admin_view *view, enum worker_table table, unsigned row,
                        unsigned column);
/* Returns whether metrics have the row: not those of limits and servers that the policy has no
 * longer, unless a request is in progress on the server. */
bool metric_row_is_shown(const struct admin_view *view, enum worker_names names, unsigned row);
/* Requests by rules, and those that were rejected. Rows of rules that are not in the policy any
 * more count, too: the sums never fall. */
struct metric_requests {
    uint64_t all, rejected;
};
struct metric_requests metric_requests(const struct admin_view *view);
/* Calls of the rate limit service in all workers, by their code. */
struct metric_calls {
    uint64_t all, over_limit, errors;
};
struct metric_calls metric_calls(const struct admin_view *view);
/* Returns the duration in seconds below which the share of the durations lies: interpolated in its
 * bucket as by histogram_quantile() of Prometheus, at most the last bound. -1: there are none.
 * `counts` has one count per bound, and one more above the last. */
double percentile_seconds(const uint64_t *counts, const uint64_t *bounds_us, unsigned buckets,
                          double share);

/* Appends the metrics that WORKER_METRICS, UPSTREAM_METRICS and LIMITER_METRICS declare. */
void metrics_write_table(struct evbuffer *out, const struct admin_view *view);
/* Appends what is counted by rule, limit, server and so on. */
void metrics_write_rows(struct evbuffer *out, const struct admin_view *view);
/* Appends the process's resource usage, with the names of Prometheus' own client libraries. */
void metrics_write_process(struct evbuffer *out, const struct admin_view *view);
/* Appends the counts of tokens, if the policy reads any. */
void metrics_write_tokens(struct evbuffer *out, const struct admin_view *view);
/* Appends failed handshakes of listeners with TLS. */
void metrics_write_tls(struct evbuffer *out, const struct admin_view *view);
/* Appends the policy's load time, reload counts, and certificate expiry times. */
void metrics_write_policy(struct evbuffer *out, const struct admin_view *view);

/* Appends the sums over all workers, which keep counting meanwhile. */
void metrics_write(struct evbuffer *out, const struct admin_view *view);

#endif
