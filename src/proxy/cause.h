/* cause.h - the failure causes of requests, in one table, and the causes of retries. */
#ifndef WEIR_PROXY_CAUSE_H
#define WEIR_PROXY_CAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* Causes of a retry (retry.h): name, label in metrics */
#define RETRY_CAUSES(X)                                                                            \
    X(RETRY_NONE, "none")               /* the first try */                                        \
    X(RETRY_IDLE_CLOSED, "idle_closed") /* server closed a reused connection; on a new one */      \
    X(RETRY_GOING_AWAY, "going_away")   /* HTTP/2: server closes the connection, has not begun */  \
    X(RETRY_REFUSED, "refused")         /* HTTP/2: server has not begun, REFUSED_STREAM */         \
    X(RETRY_CONNECT, "connect")         /* no connection, or no TLS handshake */                   \
    X(RETRY_RESET, "reset")             /* connection ended before any byte of the response */     \
    X(RETRY_TIMEOUT, "timeout")         /* no byte of the response within response_timeout */      \
    X(RETRY_502, "502")                                                                            \
    X(RETRY_503, "503")                                                                            \
    X(RETRY_504, "504")

enum retry_cause {
#define X(name, label) name,
    RETRY_CAUSES(X)
#undef X
        RETRY_CAUSE_COUNT
};

extern const char *const retry_label[RETRY_CAUSE_COUNT];

/* Whose fault a failure is. */
enum fault {
    FAULT_NONE,
    FAULT_CLIENT,   /* logged at level debug only */
    FAULT_SERVER,   /* the server used; counts against it (exchange_note_failure()) */
    FAULT_UPSTREAM, /* no server could be used, or it is not known whose fault the failure is */
    FAULT_WEIR      /* no memory, no descriptor, no quota, shutdown */
};

/* name
 * status   sent if no response has started; 0: no response is possible
 * fault
 * refund   the charge is refunded if nothing was sent to a server
 * retry    the request may be sent to another server, under the rules for this cause (retry.c)
 * label    in metrics and logs
 * text     in logs and in the response */
#define CAUSES(X)                                                                                  \
    X(CAUSE_NONE, 0, FAULT_NONE, false, RETRY_NONE, "none", "")                                    \
    X(CAUSE_BAD_REQUEST, 400, FAULT_CLIENT, false, RETRY_NONE, "bad_request",                      \
      "the request is malformed")                                                                  \
    X(CAUSE_BAD_IDENTITY, 400, FAULT_CLIENT, false, RETRY_NONE, "bad_identity",                    \
      "the client's identity is malformed")                                                        \
    X(CAUSE_BAD_CONTENT, 400, FAULT_CLIENT, false, RETRY_NONE, "bad_content",                      \
      "the request content is malformed")                                                          \
    X(CAUSE_INVALID_TOKEN, 401, FAULT_CLIENT, false, RETRY_NONE, "invalid_token",                  \
      "the token is not valid")                                                                    \
    X(CAUSE_UNKNOWN_CLIENT, 403, FAULT_CLIENT, false, RETRY_NONE, "unknown_client",                \
      "the client is unknown")                                                                     \
    X(CAUSE_ADDRESS_BLOCKED, 403, FAULT_CLIENT, false, RETRY_NONE, "address_blocked",              \
      "this address is blocked")                                                                   \
    X(CAUSE_CLIENT_BLOCKED, 403, FAULT_CLIENT, false, RETRY_NONE, "client_blocked",                \
      "this client is blocked")                                                                    \
    X(CAUSE_ASKER_NOT_TRUSTED, 403, FAULT_CLIENT, false, RETRY_NONE, "decisions_untrusted",        \
      "this peer is not in decisions.trusted")                                                     \
    X(CAUSE_CALLER_NOT_TRUSTED, 403, FAULT_CLIENT, false, RETRY_NONE, "service_untrusted",         \
      "this peer is not in rate_limit_service.trusted")                                            \
    X(CAUSE_BAD_CALL, 400, FAULT_CLIENT, false, RETRY_NONE, "bad_call", "the call is malformed")   \
    X(CAUSE_NO_RESOURCE, 404, FAULT_CLIENT, false, RETRY_NONE, "unknown_path",                     \
      "the rate limit service has no such path or method")                                         \
    X(CAUSE_UNKNOWN_SERVICE, 404, FAULT_CLIENT, false, RETRY_NONE, "unknown_service",              \
      "weir has no service of this name")                                                          \
    X(CAUSE_WRONG_METHOD, 405, FAULT_CLIENT, false, RETRY_NONE, "wrong_method",                    \
      "the path takes another method")                                                             \
    X(CAUSE_NO_GRPC_CALL, 415, FAULT_CLIENT, false, RETRY_NONE, "no_grpc_call",                    \
      "the path takes gRPC calls: HTTP/2 and the type application/grpc")                           \
    X(CAUSE_TOO_MANY_WATCHES, 429, FAULT_CLIENT, false, RETRY_NONE, "too_many_watches",            \
      "too many clients watch the health")                                                         \
    X(CAUSE_CALL_NOT_SUPPORTED, 501, FAULT_CLIENT, false, RETRY_NONE, "call_not_supported",        \
      "weir does not support this call")                                                           \
    X(CAUSE_HEAD_TIMEOUT, 408, FAULT_CLIENT, false, RETRY_NONE, "request_header_timeout",          \
      "the request header took too long")                                                          \
    X(CAUSE_CONTENT_TIMEOUT, 408, FAULT_CLIENT, false, RETRY_NONE, "request_body_timeout",         \
      "the request content took too long")                                                         \
    X(CAUSE_CONTENT_TOO_LARGE, 413, FAULT_CLIENT, false, RETRY_NONE, "request_body_too_large",     \
      "the request content is too large")                                                          \
    X(CAUSE_TARGET_TOO_LONG, 414, FAULT_CLIENT, false, RETRY_NONE, "target_too_long",              \
      "the request target is too long")                                                            \
    X(CAUSE_HEAD_TOO_LARGE, 431, FAULT_CLIENT, false, RETRY_NONE, "request_header_too_large",      \
      "the request header is too large")                                                           \
    X(CAUSE_METHOD_NOT_ALLOWED, 405, FAULT_CLIENT, false, RETRY_NONE, "method_not_allowed",        \
      "TRACE is not allowed")                                                                      \
    X(CAUSE_CLIENT_REQUESTS, 429, FAULT_CLIENT, false, RETRY_NONE, "client_requests",              \
      "this address has too many requests under way")                                              \
    X(CAUSE_CLIENT_GONE, 0, FAULT_CLIENT, false, RETRY_NONE, "client_gone",                        \
      "the client closed the connection")                                                          \
    X(CAUSE_CLIENT_STALLED, 0, FAULT_CLIENT, false, RETRY_NONE, "client_stalled",                  \
      "the client does not read its response")                                                     \
    X(CAUSE_VERIFICATION_ENDED, 0, FAULT_CLIENT, false, RETRY_NONE, "verification_ended",          \
      "the client's certificate or revocation list has expired, or a file has changed")            \
    X(CAUSE_LOOP, 508, FAULT_UPSTREAM, false, RETRY_NONE, "loop",                                  \
      "the request has come back to this weir: an upstream leads to it")                           \
    X(CAUSE_UPSTREAM_CONNECT, 502, FAULT_UPSTREAM, true, RETRY_CONNECT, "upstream_connect",        \
      "no server of the upstream could be reached")                                                \
    X(CAUSE_UPSTREAM_TLS, 502, FAULT_UPSTREAM, true, RETRY_CONNECT, "upstream_tls",                \
      "no TLS handshake with a server of the upstream succeeded")                                  \
    X(CAUSE_NO_SERVER, 503, FAULT_UPSTREAM, true, RETRY_NONE, "upstream_no_server",                \
      "no server of the upstream passes its health checks, or its name is not resolved")           \
    X(CAUSE_UPSTREAM_CLOSED, 502, FAULT_SERVER, true, RETRY_RESET, "upstream_closed",              \
      "the server closed the connection before the end of its response")                           \
    X(CAUSE_UPSTREAM_BAD, 502, FAULT_SERVER, true, RETRY_NONE, "upstream_bad_response",            \
      "the server's response is malformed")                                                        \
    X(CAUSE_REQUEST_REFUSED, 502, FAULT_UPSTREAM, true, RETRY_NONE, "upstream_refused_request",    \
      "the server reset the stream because of the request")                                        \
    X(CAUSE_STATUS_502, 502, FAULT_UPSTREAM, true, RETRY_502, "upstream_502",                      \
      "a server responded with 502, and no other one could be reached")                            \
    X(CAUSE_STATUS_503, 503, FAULT_UPSTREAM, true, RETRY_503, "upstream_503",                      \
      "a server responded with 503, and no other one could be reached")                            \
    X(CAUSE_STATUS_504, 504, FAULT_UPSTREAM, true, RETRY_504, "upstream_504",                      \
      "a server responded with 504, and no other one could be reached")                            \
    X(CAUSE_CONNECT_TIMEOUT, 504, FAULT_UPSTREAM, true, RETRY_CONNECT, "upstream_connect_timeout", \
      "the server did not accept a connection in time")                                            \
    X(CAUSE_RESPONSE_TIMEOUT, 504, FAULT_SERVER, true, RETRY_TIMEOUT, "upstream_timeout",          \
      "the server did not respond in time")                                                        \
    X(CAUSE_EXCHANGE_TIMEOUT, 504, FAULT_UPSTREAM, true, RETRY_NONE, "exchange_timeout",           \
      "the exchange took longer than timeouts.exchange")                                           \
    X(CAUSE_CALL_TIMEOUT, 504, FAULT_CLIENT, false, RETRY_NONE, "grpc_timeout",                    \
      "the deadline of the gRPC call (grpc-timeout) has passed")                                   \
    X(CAUSE_NO_MEMORY, 503, FAULT_WEIR, true, RETRY_CONNECT, "no_memory", "weir is out of memory") \
    X(CAUSE_MEMORY_LIMIT, 0, FAULT_WEIR, true, RETRY_NONE, "memory_limit",                         \
      "the request held memory when size_limits.memory was reached")                               \
    X(CAUSE_NO_DESCRIPTORS, 503, FAULT_WEIR, true, RETRY_NONE, "no_descriptors",                   \
      "weir has no file descriptor for a connection to a server")                                  \
    X(CAUSE_REPLY_TOO_LARGE, 503, FAULT_WEIR, false, RETRY_NONE, "reply_too_large",                \
      "the response to the call is larger than 80 KiB: shorten names and metadata of descriptors") \
    X(CAUSE_QUOTA_UNAVAILABLE, 503, FAULT_WEIR, false, RETRY_NONE, "quota_unavailable",            \
      "the client's quota cannot be looked up at the moment")                                      \
    X(CAUSE_SHUTDOWN, 503, FAULT_WEIR, true, RETRY_NONE, "shutdown", "weir is stopping")

enum cause {
#define X(name, status, fault, refund, retry, label, text) name,
    CAUSES(X)
#undef X
        CAUSE_COUNT
};

struct cause_row {
    uint16_t status;
    enum fault fault;
    bool refund;
    enum retry_cause retry;
    const char *text;
};

extern const struct cause_row cause_table[CAUSE_COUNT];
extern const char *const cause_label[CAUSE_COUNT];

#endif
