/* call_reader.h - calls of the rate limit service, from protobuf and from proto3 JSON.
 *
 * This directory owns the messages of Envoy's rate limit service and of gRPC health checking. It
 * has no sockets, and decides nothing. In reading order:
 *
 *   wire.proto                    the messages; the build makes C of it
 *   call_memory.h, call_reader.h  from bytes to a call (policy/rate_limit_call.h)
 *   call_response.h               from the result of a call to bytes
 *   grpc_message.h                the frame of a gRPC message
 *   health_message.h              messages of grpc.health.v1 */
#ifndef WEIR_SERVICE_CALL_READER_H
#define WEIR_SERVICE_CALL_READER_H

#include "policy/rate_limit_call.h"
#include "service/call_memory.h"

enum { CALL_CONTENT_MAX = 64 * 1024 };

/* Reads a RateLimitRequest and checks it. The call is valid until call_memory_reset(), and as long
 * as `message`. Returns NULL, or why the call is malformed: static text, with which it is answered
 * (INVALID_ARGUMENT), unless memory->lacks. */
MUST_CHECK const char *call_read_protobuf(struct call_memory *memory, struct slice message,
                                          struct rate_limit_call *call);

/* The same for the JSON mapping of proto3: names in lowerCamelCase or as in the .proto file,
 * integers as numbers or strings, enumerations as names or numbers; null is absent; unknown and
 * repeated names are mistakes. Source: https://protobuf.dev/programming-guides/json/. */
MUST_CHECK const char *call_read_json(struct call_memory *memory, struct slice text,
                                      struct rate_limit_call *call);

/* Returns false if weir was built without protobuf-c. */
bool service_has_protobuf(void);

#endif
