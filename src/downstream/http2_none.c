/* http2_none.c - weir without libnghttp2: no connection becomes an HTTP/2 one. */
#include "downstream/http2.h"

void http2_begin(struct client *client, struct slice bytes)
{
    (void)bytes;
    client_close(client);
}

void http2_flush(struct worker *worker)
{
    (void)worker;
}

void http2_worker_free(struct worker *worker)
{
    (void)worker;
}

void http2_init(struct worker *worker)
{
    (void)worker;
}
