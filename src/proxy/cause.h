/* cause.h - failure causes of requests: one table of statuses, metric labels and texts. Causes
 * before CAUSE_UPSTREAM_CONNECT are the client's; the others are failures of the upstream or of
 * weir. */
#ifndef WEIR_PROXY_CAUSE_H
#define WEIR_PROXY_CAUSE_H

#include <stdint.h>

/* name; status sent if no response has started (0: no response is possible); label in metrics
 * and logs; text */
#define CAUSES(X)                                                                                            \
    X(CAUSE_NONE, 0, "none", "")                                                                             \
    X(CAUSE_BAD_REQUEST, 400, "bad_request", "the request is malformed")                                     \
    X(CAUSE_BAD_IDENTITY, 400, "bad_identity", "the client's identity is malformed")                         \
    X(CAUSE_BAD_CONTENT, 400, "bad_content", "the request's content is malformed")                           \
    X(CAUSE_UNKNOWN_CLIENT, 403, "unknown_client", "the client is unknown, or cannot be looked up now")      \
    X(CAUSE_ADDRESS_BLOCKED, 403, "address_blocked", "this address is turned away")                          \
    X(CAUSE_HEAD_TIMEOUT, 408, "request_header_timeout", "the request's head took too long")                 \
    X(CAUSE_CONTENT_TIMEOUT, 408, "request_body_timeout", "the request's content took too long")             \
    X(CAUSE_CONTENT_TOO_LARGE, 413, "request_body_too_large", "the request's content is too large")          \
    X(CAUSE_TARGET_TOO_LONG, 414, "target_too_long", "the request's target is too long")                     \
    X(CAUSE_HEAD_TOO_LARGE, 431, "request_header_too_large", "the request's head is too large")              \
    X(CAUSE_METHOD_NOT_ALLOWED, 405, "method_not_allowed", "TRACE is not allowed")                           \
    X(CAUSE_CLIENT_GONE, 0, "client_gone", "the client went away")                                           \
    X(CAUSE_CLIENT_STALLED, 0, "client_stalled", "the client does not read its answer")                      \
    X(CAUSE_UPSTREAM_CONNECT, 502, "upstream_connect", "no server of the upstream could be reached")         \
    X(CAUSE_UPSTREAM_TLS, 502, "upstream_tls", "no server of the upstream proved over TLS who it is")        \
    X(CAUSE_NO_SERVER, 503, "upstream_no_server",                                                            \
      "no server of the upstream passes its health checks, or its name is not resolved")                     \
    X(CAUSE_UPSTREAM_CLOSED, 502, "upstream_closed",                                                         \
      "the server closed the connection before its answer ended")                                            \
    X(CAUSE_UPSTREAM_BAD, 502, "upstream_bad_response", "the server's answer is malformed")                  \
    X(CAUSE_CONNECT_TIMEOUT, 504, "upstream_connect_timeout",                                                \
      "the server did not accept a connection in time")                                                      \
    X(CAUSE_RESPONSE_TIMEOUT, 504, "upstream_timeout", "the server did not answer in time")                  \
    X(CAUSE_EXCHANGE_TIMEOUT, 504, "exchange_timeout", "the exchange took longer than timeouts.exchange")    \
    X(CAUSE_NO_MEMORY, 503, "no_memory", "there is no memory for this request")                              \
    X(CAUSE_NO_DESCRIPTORS, 503, "no_descriptors",                                                           \
      "there is no file descriptor for a connection to a server")                                            \
    X(CAUSE_SHUTDOWN, 503, "shutdown", "weir is stopping")

enum cause {
#define X(name, status, label, text) name,
    CAUSES(X)
#undef X
        CAUSE_COUNT
};

extern const uint16_t cause_status[CAUSE_COUNT];
extern const char *const cause_label[CAUSE_COUNT];
extern const char *const cause_text[CAUSE_COUNT];

#endif
