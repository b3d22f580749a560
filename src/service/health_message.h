/* health_message.h - messages of grpc.health.v1
 * (https://github.com/grpc/grpc/blob/master/doc/health-checking.md). */
#ifndef WEIR_SERVICE_HEALTH_MESSAGE_H
#define WEIR_SERVICE_HEALTH_MESSAGE_H

#include "base/text.h"
#include "service/call_memory.h"

enum health_status {
    HEALTH_UNKNOWN,
    HEALTH_SERVING,
    HEALTH_NOT_SERVING,
    HEALTH_SERVICE_UNKNOWN /* Watch only */
};

/* Reads the name of the service from a HealthCheckRequest, valid until call_memory_reset(). Returns
 * false if the message is malformed. */
MUST_CHECK bool health_request_read(struct call_memory *memory, struct slice message,
                                    struct slice *service);
/* Appends a HealthCheckResponse. Returns false if it does not fit. */
MUST_CHECK bool health_response_write(unsigned status, struct text *out);

#endif
