/* http2_upstream_none.c - weir without libnghttp2: the policy reader refuses protocol http2 and
 * auto. */
#include <errno.h>

#include "upstream/http2_upstream.h"

struct link *http2_take(struct server *server, struct link_owner *owner, bool fresh,
                        struct upstream_tries *tries)
{
    (void)server, (void)owner, (void)fresh, (void)tries;
    errno = ENOSYS;
    return NULL;
}

struct connection *http2_dial(struct server *server, bool probe)
{
    (void)server, (void)probe;
    errno = ENOSYS;
    return NULL;
}

void http2_connection_up(struct http2_connection *h)
{
    (void)h;
}

void http2_connect_failed(struct http2_connection *h, enum link_failure failure)
{
    (void)h, (void)failure;
}

void http2_connection_readable(struct http2_connection *h)
{
    (void)h;
}

void http2_connection_writable(struct http2_connection *h)
{
    (void)h;
}

void http2_connection_idle(struct http2_connection *h)
{
    (void)h;
}

bool http2_retire_idle(struct server *server)
{
    (void)server;
    return false;
}

void http2_close_all(struct pool *pool)
{
    (void)pool;
}

void http2_upstreams_init(struct upstream_worker *worker, struct deadlines *deadlines)
{
    (void)worker, (void)deadlines;
}

void http2_upstreams_free(struct upstream_worker *worker)
{
    (void)worker;
}

void http2_upstreams_flush(struct upstream_worker *worker)
{
    (void)worker;
}

bool http2_upstreams_have_work(const struct upstream_worker *worker)
{
    (void)worker;
    return false;
}

void http2_upstreams_free_ended(struct upstream_worker *worker)
{
    (void)worker;
}
