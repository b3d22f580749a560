/* stats.h - the counters of one worker. Only the worker writes them. The admin listener reads
 * them with relaxed atomics, so values may be slightly old. */
#ifndef WEIR_PROXY_STATS_H
#define WEIR_PROXY_STATS_H

#include "base/counter_table.h"
#include "base/metric.h"
#include "http2/session.h"
#include "limit/decision.h"
#include "policy/identity_token.h"
#include "proxy/cause.h"

enum {
    RESPONSE_CLASSES = 6
}; /* 0: ended without a response; 1 to 5: the first digit of the status */
/* What weir has read along of contents; see weir.8 for the results. */
enum content_direction { CONTENT_OF_REQUEST, CONTENT_OF_RESPONSE, CONTENT_DIRECTIONS };
enum content_result {
    CONTENT_READ,
    CONTENT_NONE,
    CONTENT_INVALID,
    CONTENT_TOO_LARGE,
    CONTENT_COMPRESSED,
    CONTENT_INCOMPLETE,
    CONTENT_RESULTS
};
/* Results of calls of the rate limit service: the code of the response, or the gRPC status. Those
 * after OVER_LIMIT are errors. */
#define SERVICE_CODES(X)                                                                           \
    X(OK)                                                                                          \
    X(OVER_LIMIT)                                                                                  \
    X(CANCELLED)                                                                                   \
    X(UNKNOWN)                                                                                     \
    X(INVALID_ARGUMENT)                                                                            \
    X(DEADLINE_EXCEEDED)                                                                           \
    X(PERMISSION_DENIED)                                                                           \
    X(RESOURCE_EXHAUSTED)                                                                          \
    X(UNIMPLEMENTED)                                                                               \
    X(INTERNAL)                                                                                    \
    X(UNAVAILABLE)
enum service_code {
#define X(name) SERVICE_##name,
    SERVICE_CODES(X)
#undef X
        SERVICE_CODE_COUNT
};
extern const char *const service_code_name[SERVICE_CODE_COUNT];

extern const char *const content_direction_name[CONTENT_DIRECTIONS];
extern const char *const content_result_name[CONTENT_RESULTS];
extern const char *const response_class_name[RESPONSE_CLASSES];

/* clang-format off: a row per metric; see base/metric.h */
#define WORKER_METRICS(ONE, EACH, TIMES)                                                           \
    EACH(responses, RESPONSE_CLASSES, 0, "class", response_class_name, "weir_responses_total",     \
         "Responses by status class; none: the connection ended before a response.")               \
    EACH(errors, CAUSE_COUNT, CAUSE_NONE + 1, "cause", cause_label, "weir_errors_total",           \
         "Requests that ended without an upstream response or a rejection, by cause.")             \
    TIMES(upstream_latency, "weir_upstream_latency_seconds",                                       \
          "Time from sending a request upstream to its response header.")                          \
    TIMES(upstream_total, "weir_upstream_total_seconds",                                           \
          "Time from sending a request upstream to the last byte of its response.")                \
    TIMES(held, "weir_held_seconds", "Time for which leaky_bucket delayed requests.")              \
    TIMES(request_duration, "weir_request_duration_seconds",                                       \
          "Time from reading a request header to writing the end of the response.")                \
    TIMES(service_duration, "weir_rate_limit_service_duration_seconds",                            \
          "Time from reading the header of a call of the rate limit service to its decision.")     \
    ONE(retired_policies, "gauge", "weir_retired_policies",                                        \
        "Policies from before a reload that requests in progress still use, per worker.")          \
    ONE(connections_open, "gauge", "weir_connections", "Client connections open now.")             \
    ONE(connections_lingering, "gauge", "weir_connections_lingering",                              \
        "Client connections whose request was answered early, while weir discards its remaining "  \
        "content.")                                                                                \
    ONE(connections_accepted, "counter", "weir_connections_accepted_total",                        \
        "Client connections accepted.")                                                            \
    ONE(connections_refused, "counter", "weir_connections_refused_total",                          \
        "Client connections closed at once by a limit of size_limits.")                            \
    ONE(connections_evicted, "counter", "weir_connections_evicted_total",                          \
        "Client connections closed to make room for new ones: silent, idle or lingering ones, "    \
        "ones with an incomplete request head, or whose client takes responses too slowly.")       \
    ONE(proxy_headers_refused, "counter", "weir_proxy_header_errors_total",                        \
        "Connections closed because of the PROXY protocol: not a trusted proxy, or no valid "      \
        "header in time.")                                                                         \
    ONE(tls_handshakes_failed, "counter", "weir_tls_handshake_errors_total",                       \
        "Client connections closed because their TLS handshake failed, or took too long.")         \
    ONE(http2_connections, "counter", "weir_http2_connections_total",                              \
        "Client connections that became HTTP/2 ones.")                                             \
    EACH(http2_errors, HTTP2_CAUSE_COUNT, 0, "cause", http2_cause_name, "weir_http2_errors_total", \
         "HTTP/2 connections closed and streams reset because of the client, by cause.")           \
    ONE(requests_active, "gauge", "weir_requests_active", "Requests in progress.")                 \
    ONE(requests_held, "gauge", "weir_requests_held",                                              \
        "Requests that leaky_bucket is delaying now.")                                             \
    ONE(responses_paused, "counter", "weir_responses_paused_total",                                \
        "Times that weir stopped to read a response since its client did not take it, while "      \
        "buffers used 90 % of size_limits.memory or more.")                                        \
    EACH(upstream_retries, RETRY_CAUSE_COUNT, RETRY_NONE + 1, "cause", retry_label,                \
         "weir_upstream_retries_total",                                                            \
         "Requests sent to another server, or again on a fresh connection, "                       \
         "by cause.")                                                                              \
    ONE(lines_left_out, "counter", "weir_access_lines_left_out_total",                             \
        "Access lines of rejections that log.sample has left out.")                                \
    ONE(bytes_from_clients, "counter", "weir_received_content_bytes_total",                        \
        "Bytes of request content received.")                                                      \
    ONE(bytes_to_clients, "counter", "weir_sent_content_bytes_total",                              \
        "Bytes of response content sent.")
/* clang-format on */

struct worker_stats {
    WORKER_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
    counter_t quota_hits, quota_refused; /* shown only if the policy has, or had, quotas */
    counter_t content_inspected[CONTENT_DIRECTIONS][CONTENT_RESULTS];
    struct token_stats tokens;
    struct counter_table handshake_failures; /* listener, enum tls_failure (net/tls.h) */
    struct counter_table by_rule;            /* rule->row, verdict */
    struct counter_table by_priority;        /* priority->row, verdict */
    struct counter_table rule_durations;     /* rule->row; row_histogram_add() */
    struct counter_table by_domain; /* rate_limit_domain->row, 0: unknown; enum service_code */
};

#endif
