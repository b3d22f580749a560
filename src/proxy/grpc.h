/* grpc.h - gRPC calls: their deadline, and weir's own responses to them.
 *
 * A gRPC client reads the outcome of a call from grpc-status, not from the HTTP status. weir
 * therefore responds to a call with a Trailers-Only response: HTTP status 200, grpc-status,
 * grpc-message. The status that other clients would get remains x->record.status: metrics and the
 * access log show it. Source: "gRPC over HTTP2" (doc/PROTOCOL-HTTP2.md in github.com/grpc/grpc). */
#ifndef WEIR_PROXY_GRPC_H
#define WEIR_PROXY_GRPC_H

#include "proxy/exchange_state.h"

/* Codes of google.rpc.Code. */
enum grpc_code {
    GRPC_OK,
    GRPC_CANCELLED,
    GRPC_UNKNOWN,
    GRPC_INVALID_ARGUMENT,
    GRPC_DEADLINE_EXCEEDED,
    GRPC_NOT_FOUND,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL,
    GRPC_UNAVAILABLE,
    GRPC_UNAUTHENTICATED = 16
};

/* Returns whether the request is a gRPC call: POST over HTTP/2 with the type application/grpc or
 * application/grpc+... */
bool grpc_is_call(const struct exchange *x, const struct request_head *head);

/* Returns whether the messages of the call are protobuf: the type is application/grpc or
 * application/grpc+proto. */
bool grpc_is_protobuf(const struct request_head *head);

/* Returns grpc-timeout in microseconds; 0: none, or it is malformed. The field is forwarded
 * unchanged: weir tells the server of the end by a reset. */
uint64_t grpc_timeout(const struct request_head *head);

/* Returns the grpc-status of weir's own response to a call, from record.status and the decision. */
enum grpc_code grpc_status(const struct exchange *x);

/* Writes the fields of a Trailers-Only response: type, grpc-status, grpc-message and, for a
 * rejection, grpc-retry-pushback-ms: milliseconds until a retry can be admitted; -1: never. */
void grpc_fields_write(struct text *out, const struct exchange *x);

#endif
