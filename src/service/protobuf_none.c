/* protobuf_none.c - stubs for builds without protobuf-c. Policies with rate_limit_service are then
 * rejected, so these functions are not called. */
#include "config.h"

#ifndef HAVE_PROTOBUF_C

#include "service/call_reader.h"
#include "service/call_response.h"
#include "service/health_message.h"

bool service_has_protobuf(void)
{
    return false;
}

const char *call_read_protobuf(struct call_memory *memory, struct slice message,
                               struct rate_limit_call *call)
{
    (void)memory, (void)message, (void)call;
    return "weir was built without protobuf-c";
}

bool health_request_read(struct call_memory *memory, struct slice message, struct slice *service)
{
    (void)memory, (void)message, (void)service;
    return false;
}

bool call_response_write_protobuf(struct call_memory *memory, const struct call_response *response,
                                  struct text *out)
{
    (void)memory, (void)response, (void)out;
    return false;
}

bool health_response_write(unsigned status, struct text *out)
{
    (void)status, (void)out;
    return false;
}

#endif
