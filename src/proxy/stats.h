/* stats.h - the counters of one worker. Only the worker writes them. The admin listener reads
 * them with relaxed atomics, so values may be slightly old. */
#ifndef WEIR_PROXY_STATS_H
#define WEIR_PROXY_STATS_H

#include "base/counter_table.h"
#include "http2/session.h"
#include "limit/decision.h"
#include "policy/identity_token.h"
#include "proxy/cause.h"

/* Reasons for which a worker ejects a server: name, label in metrics */
#define EJECTIONS(X)                                                                                         \
    X(EJECTION_CONNECT, "connect")   /* a connection or the TLS handshake failed */                          \
    X(EJECTION_FAILURES, "failures") /* eject.failures consecutive requests failed */                        \
    X(EJECTION_RATE, "failure_rate") /* eject.failure_rate of the recent requests failed */

enum ejection {
#define X(name, label) name,
    EJECTIONS(X)
#undef X
        EJECTION_COUNT
};

extern const char *const ejection_label[EJECTION_COUNT];

struct worker_stats {
    counter_t connections_accepted;
    counter_t connections_open;
    counter_t connections_lingering; /* response sent; further input is dropped */
    counter_t connections_evicted;   /* closed to make room: silent, idle, lingering or slow head */
    counter_t connections_refused;   /* closed at once: a limit of size_limits */
    counter_t proxy_headers_refused; /* peer not trusted, header malformed or late */
    counter_t tls_handshakes_failed;
    counter_t http2_connections;               /* begun, in all */
    counter_t http2_errors[HTTP2_CAUSE_COUNT]; /* sessions ended and streams reset because of clients */
    counter_t requests_active;
    counter_t requests_held; /* subset of requests_active: held in a queue */
    counter_t upstream_connections_opened;
    counter_t upstream_connections_open;
    counter_t upstream_reused; /* requests sent on a reused connection */
    counter_t upstream_retries[RETRY_CAUSE_COUNT];
    counter_t upstream_retries_over_budget;
    counter_t upstream_ejections[EJECTION_COUNT];
    counter_t bytes_to_clients, bytes_from_clients; /* message bodies, without heads */
    counter_t quota_hits, quota_refused;
    struct token_stats tokens;
    counter_t errors[CAUSE_COUNT];
    counter_t responses[6];              /* by status class; [0]: ended without a response */
    struct counter_table by_rule;        /* rule->row, verdict */
    struct counter_table rule_durations; /* rule->row; see base/row_histogram.h */
    struct histogram upstream_latency;   /* from request sent to response head */
    struct histogram held;               /* time in a queue, of held requests only */
    struct histogram request_duration;   /* from request head read to response written */
};

#endif
