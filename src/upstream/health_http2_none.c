/* health_http2_none.c - weir without libnghttp2. */
#include "upstream/health_http2.h"

struct health_http2 *health_http2_begin(struct iobuf_pool *pool, struct iobuf **out,
                                        struct slice request, bool secure)
{
    (void)pool, (void)out, (void)request, (void)secure;
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

void health_http2_free(struct health_http2 *h)
{
    (void)h;
}
