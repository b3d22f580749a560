/* http2_none.c - weir without libnghttp2: no connection becomes an HTTP/2 one. */
#include "downstream/http2.h"

void http2_begin(struct client *client, struct slice bytes)
{
    (void)bytes;
    client_close(client);
}

void http2_readable(struct client *client)
{
    (void)client;
}

void http2_writable(struct client *client)
{
    (void)client;
}

void http2_head_timed_out(struct client *client)
{
    (void)client;
}

void http2_idle_passed(struct client *client)
{
    (void)client;
}

void http2_stop(struct client *client)
{
    (void)client;
}

void http2_cut(struct client *client)
{
    (void)client;
}

void http2_end(struct client *client)
{
    (void)client;
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
