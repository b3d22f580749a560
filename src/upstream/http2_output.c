/* http2_output.c - what a worker's HTTP/2 connections share, and their output. */
#include <stdlib.h>

#include "upstream/http2_upstream_internal.h"

enum {
    PUSH_AT = IOBUF_READ_MAX / 2 /* output held for which weir writes before the iteration ends */
};

struct http2_upstreams *http2_upstreams_of(struct upstream_worker *w)
{
    struct http2_upstreams *u = w->http2;

    if (u || !(u = malloc(sizeof *u)))
        return u;
    if (!(u->scratch = http2_scratch_new())) {
        free(u);
        return NULL;
    }
    TAILQ_INIT(&u->dirty);
    TAILQ_INIT(&u->ready);
    TAILQ_INIT(&u->ended);
    u->dirty_count = 0;
    u->free_links = (struct free_list){0};
    return w->http2 = u;
}

void http2_upstream_touch(struct http2_connection *h)
{
    struct http2_upstreams *u = h->connection->link.worker->http2;

    if (h->dirty)
        return;
    h->dirty = true;
    TAILQ_INSERT_TAIL(&u->dirty, h, dirty_entry);
    u->dirty_count++;
}

bool http2_upstream_write(struct http2_connection *h)
{
    struct stream *s = &h->connection->stream;
    enum sent sent = stream_flush(s, h->connection->link.worker->io.buffers);

    if (sent == SENT_PART)
        stream_want_write(s, true);
    h->lost |= sent == SENT_FAILED;
    return sent == SENT_ALL;
}

void http2_upstream_push(struct http2_connection *h)
{
    if (iobuf_held(h->connection->stream.out) >= PUSH_AT)
        (void)http2_upstream_write(h);
}
