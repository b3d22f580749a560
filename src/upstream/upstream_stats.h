/* upstream_stats.h - what one worker counts about servers. Only the worker writes the counters. The
 * admin listener reads them with relaxed atomics, so values may be slightly old. */
#ifndef WEIR_UPSTREAM_UPSTREAM_STATS_H
#define WEIR_UPSTREAM_UPSTREAM_STATS_H

#include "base/metric.h"
#include "http2/session.h"
#include "upstream/server_stats.h"

/* Reasons for which a worker ejects a server: name, label in metrics */
#define EJECTIONS(X)                                                                               \
    X(EJECTION_CONNECT, "connect")   /* a connection or the TLS handshake failed */                \
    X(EJECTION_FAILURES, "failures") /* eject.failures consecutive requests failed */              \
    X(EJECTION_RATE, "failure_rate") /* eject.failure_rate of the recent requests failed */

enum ejection {
#define X(name, label) name,
    EJECTIONS(X)
#undef X
        EJECTION_COUNT
};

/* Value of the label `cause`. */
const char *upstream_http2_error_name(unsigned cause);
/* Value of the label `reason`. */
const char *ejection_name(unsigned reason);

/* clang-format off: a row per metric; see base/metric.h */
#define UPSTREAM_METRICS(ONE, EACH, TIMES)                                                         \
    ONE(connections_open, "gauge", "weir_upstream_connections",                                    \
        "Connections to upstream servers open now.")                                               \
    ONE(connections_opened, "counter", "weir_upstream_connections_opened_total",                   \
        "Connections opened to upstream servers.")                                                 \
    ONE(reused, "counter", "weir_upstream_reused_total", "Requests sent on a reused connection.")  \
    ONE(retries_over_budget, "counter", "weir_upstream_retries_over_budget_total",                 \
        "Requests not sent to another server because upstreams.NAME.retry.budget was used up.")    \
    EACH(ejections, EJECTION_COUNT, 0, "reason", ejection_name, "weir_upstream_ejections_total",   \
         "Times that a worker stopped sending requests to a server, by reason.")                   \
    EACH(http2_errors, HTTP2_CAUSE_COUNT, 0, "cause", upstream_http2_error_name,                   \
         "weir_upstream_http2_errors_total",                                                       \
         "HTTP/2 connections ended and streams reset because of a server, by cause.")
/* clang-format on */

struct upstream_stats {
    UPSTREAM_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
    struct server_stats servers;
};

#endif
