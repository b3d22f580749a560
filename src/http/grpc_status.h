/* grpc_status.h - the outcome of a gRPC call, from trailers or from the header of a Trailers-Only
 * response ("gRPC over HTTP2", doc/PROTOCOL-HTTP2.md in github.com/grpc/grpc). */
#ifndef WEIR_HTTP_GRPC_STATUS_H
#define WEIR_HTTP_GRPC_STATUS_H

#include "http/head.h"

enum { GRPC_STATUS_NONE = -1, GRPC_STATUS_MAX = INT32_MAX };

/* Returns grpc-status; GRPC_STATUS_NONE: absent or not a decimal number. */
static inline int grpc_status_of(const struct fields *fields)
{
    const struct field *field = fields_next_named(fields, SLICE("grpc-status"), NULL);
    uint64_t status;

    if (!field || !slice_to_u64(field->value, GRPC_STATUS_MAX, &status))
        return GRPC_STATUS_NONE;
    return (int)status;
}

#endif
