/* upstream_stats.h - what one worker counts about servers. Only the worker writes the counters. The
 * admin listener reads them with relaxed atomics, so values may be slightly old. */
#ifndef WEIR_UPSTREAM_UPSTREAM_STATS_H
#define WEIR_UPSTREAM_UPSTREAM_STATS_H

#include "base/counter_table.h"
#include "base/metric.h"
#include "http2/session.h"

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

/* Values of the label `reason`. */
extern const char *const ejection_label[EJECTION_COUNT];

/* Failures of single tries, also of those that were repeated: name, label in metrics */
#define SERVER_ERRORS(X)                                                                           \
    X(SERVER_ERROR_CONNECT, "connect")                 /* no connection */                         \
    X(SERVER_ERROR_CONNECT_TIMEOUT, "connect_timeout") /* none within connect_timeout */           \
    X(SERVER_ERROR_TLS, "tls")                         /* the TLS handshake failed */              \
    X(SERVER_ERROR_TIMEOUT, "timeout")                 /* no response within response_timeout */   \
    X(SERVER_ERROR_CLOSED, "closed")                   /* it ended before its response did */      \
    X(SERVER_ERROR_BAD_RESPONSE, "bad_response")       /* its response is malformed */

enum server_error {
#define X(name, label) name,
    SERVER_ERRORS(X)
#undef X
        SERVER_ERROR_COUNT
};

/* Values of the label `cause`. */
extern const char *const server_error_label[SERVER_ERROR_COUNT];

/* Columns of server_stats.counts. */
enum server_column {
    SERVER_RESPONSES = 0, /* by class: 1xx to 5xx */
    SERVER_CLASSES = 5,
    SERVER_IN_FLIGHT = SERVER_RESPONSES + SERVER_CLASSES, /* a gauge */
    SERVER_RETRIES,                                       /* requests sent again elsewhere */
    SERVER_EJECTIONS,
    SERVER_ERROR_FIRST,
    SERVER_COLUMNS = SERVER_ERROR_FIRST + SERVER_ERROR_COUNT
};

/* clang-format off: a row per metric; see base/metric.h */
#define UPSTREAM_METRICS(ONE, EACH, TIMES)                                                         \
    ONE(connections_open, "gauge", "weir_upstream_connections",                                    \
        "Connections to upstream servers open now.")                                               \
    ONE(connections_opened, "counter", "weir_upstream_connections_opened_total",                   \
        "Connections opened to upstream servers.")                                                 \
    ONE(reused, "counter", "weir_upstream_reused_total", "Requests sent on a reused connection.")  \
    ONE(retries_over_budget, "counter", "weir_upstream_retries_over_budget_total",                 \
        "Requests not sent to another server because upstreams.NAME.retry.budget was used up.")    \
    EACH(ejections, EJECTION_COUNT, 0, "reason", ejection_label, "weir_upstream_ejections_total",  \
         "Times that a worker stopped sending requests to a server, by reason.")                   \
    EACH(http2_errors, HTTP2_CAUSE_COUNT, 0, "cause", http2_cause_name,                            \
         "weir_upstream_http2_errors_total",                                                       \
         "HTTP/2 connections ended and streams reset because of a server, by cause.")
/* clang-format on */

/* Counts of each server of the policy, as written there: a row per upstream and server. The
 * addresses of a host name share a row, so that the number of rows does not depend on DNS. Rows
 * outlive reloads (base/counter_table.h). */
struct server_stats {
    struct counter_table counts;
    /* From sending a request to the first byte of its response, and to the last one. */
    struct counter_table first, last; /* row_histogram_add() */
};

struct upstream_stats {
    UPSTREAM_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
    struct server_stats servers;
};

#endif
