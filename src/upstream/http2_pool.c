/* http2_pool.c - a server's HTTP/2 connections, and the links that wait for one. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "upstream/http2_upstream_internal.h"

/* ---- connections ----------------------------------------------------------------------------- */

struct connection *http2_dial(struct server *server, bool probe)
{
    struct http2_connection *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->server = server;
    h->probe = probe;
    TAILQ_INIT(&h->links);
    h->connection = connection_dial(
        server,
        &(struct connection_use){.events = &http2_connection_events, .http2 = h, .probe = probe});
    if (!h->connection) {
        int error = errno;
        free(h);
        errno = error;
        return NULL;
    }
    TAILQ_INSERT_TAIL(&server->http2.connections, h, entry);
    server->http2.connecting++;
    return h->connection;
}

void http2_connection_free(struct http2_connection *h)
{
    h->server->http2.connecting -= !h->open;
    TAILQ_REMOVE(&h->server->http2.connections, h, entry);
    http2_session_free(h->session);
    free(h);
}

static bool takes_stream(const struct http2_connection *h)
{
    return h->open && !h->draining && !h->lost && http2_session_capacity(h->session) > 0 &&
           http2_session_streams(h->session) < HTTP2_UPSTREAM_STREAMS_MAX;
}

static struct http2_connection *with_room(const struct server *server)
{
    struct http2_connection *h;

    TAILQ_FOREACH (h, &server->http2.connections, entry)
        if (takes_stream(h))
            return h;
    return NULL;
}

/* Returns whether a connection may get room for a link. */
static bool may_get_room(const struct server *server)
{
    struct http2_connection *h;

    TAILQ_FOREACH (h, &server->http2.connections, entry)
        if (!h->draining && !h->lost && (!h->session || http2_session_accepts(h->session)))
            return true;
    return false;
}

/* Dials as many connections as the waiting links need. Returns false, with errno, on failure. */
static bool dial_enough(struct server *server)
{
    struct http2_server *s = &server->http2;
    unsigned max = server->pool->pools->worker->pooled_max;
    unsigned streams = s->is_http1 ? 1 : s->streams ? s->streams : HTTP2_UPSTREAM_STREAMS_MAX;

    while ((uint64_t)s->connecting * streams < s->waiting_count && (!max || s->count < max))
        if (!http2_dial(server, false))
            return false;
    return true;
}

bool http2_retire_idle(struct server *server)
{
    struct http2_connection *h;
    bool any = false;

    TAILQ_FOREACH (h, &server->http2.connections, entry)
        if (h->open && TAILQ_EMPTY(&h->links) && !h->draining) {
            http2_connection_idle(h);
            any = true;
        }
    return any;
}

static void close_all(struct server *server)
{
    for (struct http2_connection *h; (h = TAILQ_FIRST(&server->http2.connections));)
        http2_connection_close(h);
}

void http2_close_all(struct pool *pool)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i])
            close_all(pool->servers[i]);
    for (struct server *server = TAILQ_FIRST(&pool->leaving), *next; server; server = next) {
        next = TAILQ_NEXT(server, link);
        close_all(server);
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

struct link *http2_take(struct server *server, struct link_owner *owner, bool fresh,
                        struct upstream_tries *tries)
{
    struct link *pooled;
    struct http2_link *l;
    struct http2_connection *h = with_room(server);

    if (!h && server->http2.is_http1 && !fresh && (pooled = server_take_pooled(server, owner)))
        return pooled;
    if (!(l = http2_link_new(server, owner)))
        return NULL;
    if (h && TAILQ_EMPTY(&server->http2.waiting)) {
        http2_link_attach(l, h);
        return &l->link;
    }
    server_tried(server, tries);
    TAILQ_INSERT_TAIL(&server->http2.waiting, l, entry);
    server->http2.waiting_count++;
    deadline_arm(&l->link.worker->queue.http2_wait, &l->link.deadline, clock_us(),
                 server->pool->settings->connect_timeout_us);
    if (dial_enough(server) || may_get_room(server))
        return &l->link;
    int error = errno;
    http2_link_end(l);
    errno = error;
    return NULL;
}

void http2_serve(struct server *server)
{
    struct http2_connection *h;
    struct http2_link *l;

    while ((l = TAILQ_FIRST(&server->http2.waiting)) && (h = with_room(server))) {
        TAILQ_REMOVE(&server->http2.waiting, l, entry);
        server->http2.waiting_count--;
        http2_link_attach(l, h);
        l->link.owner->ops->connected(l->link.owner, &l->link);
    }
    if (dial_enough(server) || may_get_room(server))
        return;
    int error = errno;
    if (descriptors_lack(error) && descriptors_give(DESCRIPTOR_FOR_SERVER, error) &&
        dial_enough(server))
        return;
    enum link_failure failure = link_failure_of(error, &server->endpoint->address);
    if (failure == LINK_FAILED_NO_PORTS && server->http2.waiting_count)
        server_report_no_port(server);
    http2_fail_waiting(server, failure);
}

static void fail_waiting_link(struct http2_link *l, enum link_failure failure)
{
    struct link_owner *owner = l->link.owner;

    server_stats_unconnected(&l->link, failure);
    http2_link_end(l);
    owner->ops->connect_failed(owner, failure);
}

void http2_fail_waiting(struct server *server, enum link_failure failure)
{
    struct http2_link *l;

    if (may_get_room(server))
        return;
    /* Links that arrive meanwhile have dialed. */
    for (unsigned n = server->http2.waiting_count; n && (l = TAILQ_FIRST(&server->http2.waiting));
         n--)
        fail_waiting_link(l, failure);
}

static void wait_passed(struct deadline *deadline)
{
    fail_waiting_link(CONTAINER_OF(deadline, struct http2_link, link.deadline),
                      LINK_FAILED_TIMEOUT);
}

/* ---- protocol auto --------------------------------------------------------------------------- */

void http2_becomes_http1(struct http2_connection *h)
{
    struct connection *c = h->connection;
    struct server *server = h->server;
    struct http2_link *l = TAILQ_FIRST(&server->http2.waiting);

    server->http2.is_http1 = true;
    if (h->probe)
        server_admit(server, "accepts connections");
    c->http2 = NULL;
    http1_adopt(c);
    server->http2.count--;
    server->outstanding++;
    http2_connection_free(h);
    deadline_cancel(&c->link.deadline);
    if (!l)
        connection_release(c, true);
    else {
        c->link.owner = l->link.owner;
        http2_link_end(l);
        c->link.owner->ops->connected(c->link.owner, &c->link);
    }
    http2_serve(server);
}

/* ---- of a worker ----------------------------------------------------------------------------- */

void http2_upstreams_init(struct upstream_worker *w, struct deadlines *deadlines)
{
    deadline_queue_init(deadlines, &w->queue.http2_wait, wait_passed);
    deadline_queue_init(deadlines, &w->queue.http2_silence, http2_silence_passed);
}
