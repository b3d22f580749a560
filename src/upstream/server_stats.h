/* server_stats.h - what one worker counts of each server of the policy, as written there: a row per
 * upstream and server. The addresses of a host name share a row, so that the number of rows does
 * not depend on DNS. Rows outlive reloads (base/counter_table.h). */
#ifndef WEIR_UPSTREAM_SERVER_STATS_H
#define WEIR_UPSTREAM_SERVER_STATS_H

#include "base/counter_table.h"

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

/* Value of the label `cause`. */
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

struct server_stats {
    struct counter_table counts;
    /* From sending a request to the first byte of its response, and to the last one. */
    struct counter_table first, last; /* row_histogram_add() */
};

#endif
