/* health_http2_none.c - weir without libnghttp2. */
#include "upstream/health_http2.h"

struct health_http2 *health_http2_begin(struct iobuf_pool *pool, struct iobuf **out,
                                        struct slice request, const char *grpc, bool secure)
{
    (void)pool, (void)out, (void)request, (void)grpc, (void)secure;
    return NULL;
}

void health_http2_receive(struct health_http2 *h, struct slice bytes)
{
    (void)h, (void)bytes;
}

unsigned health_http2_status(const struct health_http2 *h, const char **why)
{
    (void)h;
    *why = NULL;
    return 0;
}

bool health_http2_serving(const struct health_http2 *h, const char **why)
{
    (void)h;
    *why = NULL;
    return false;
}

void health_http2_free(struct health_http2 *h)
{
    (void)h;
}
