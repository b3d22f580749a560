#include "upstream/upstream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/magic.h"
#include "upstream/http2_upstream.h"
#include "upstream/upstream_internal.h"

enum {
    CHECKED_AT_ONCE = 64, /* maximum number of pooled connections checked per poll(2) */
    /* Sockets per epoll_wait. The limit is higher than for clients (proxy/worker.c): requests in
     * progress complete before new ones start. This keeps the requests in flight, and the upstream
     * connections in use, few with any number of clients. */
    LINKS_PER_BATCH = 256
};

const char *link_server_text(const struct link *link)
{
    return link->server->endpoint->text;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Closes pooled pipes, and up to OF_A_SERVER of the longest-idle connections of every server.
 * False: there were none. */
static bool close_some_pooled(struct upstream_worker *w)
{
    enum { OF_A_SERVER = 4 };
    bool any = w->io.buffers->pipes.kept > 0;

    pipe_pool_clear(&w->io.buffers->pipes);
    for (unsigned i = 0; i < w->pools->policy->upstream_count; i++)
        for (unsigned s = 0; s < w->pools->all[i].slots; s++) {
            struct server *server = w->pools->all[i].servers[s];
            struct connection *c;
            for (unsigned n = 0;
                 server && n < OF_A_SERVER && (c = TAILQ_LAST(&server->pooled, pooled)); n++) {
                connection_close(c);
                any = true;
            }
            any |= server && http2_retire_idle(server);
        }
    return any;
}

/* Checks the most recently used pooled connections with one poll(2), and closes those with
 * unexpected data or closed by the server. It checks as many as the last loop iteration needed or,
 * if more, as many as this one has needed so far. */
static void check_pooled(struct server *server, uint64_t iteration)
{
    struct pollfd polls[CHECKED_AT_ONCE];
    struct connection *connections[CHECKED_AT_ONCE];
    unsigned most = server->needed > server->taken_count ? server->needed : server->taken_count,
             n = 0;

    most = most < 1 ? 1 : most > CHECKED_AT_ONCE ? CHECKED_AT_ONCE : most;
    for (struct connection *c = TAILQ_FIRST(&server->pooled); c && n < most;
         c = TAILQ_NEXT(c, entry)) {
        connections[n] = c;
        polls[n++] = (struct pollfd){.fd = c->stream.fd, .events = POLLIN | POLLRDHUP};
    }
    int ready = poll(polls, n, 0);
    for (unsigned i = 0; i < n; i++)
        if ((ready < 0 || polls[i].revents) && connection_is_stale(connections[i]))
            connection_close(connections[i]);
        else
            connections[i]->empty_iteration = iteration;
}

/* Updates the number of connections that the previous loop iteration needed. */
static void count_needed(struct server *server, uint64_t iteration)
{
    if (server->taken_iteration != iteration) {
        server->taken_iteration = iteration;
        server->needed = server->taken_count;
        server->taken_count = 0;
    }
}

/* Bytes after the last response would be read as this request's response, and their event may still
 * be pending. So only a connection that was found empty in this loop iteration is taken. */
struct link *upstream_take_pooled(struct server *server, struct link_owner *owner)
{
    uint64_t iteration = server->pool->pools->worker->iteration;
    struct connection *c;

    count_needed(server, iteration);
    while ((c = TAILQ_FIRST(&server->pooled)) && c->empty_iteration != iteration)
        check_pooled(server, iteration);
    if (!c)
        return NULL;
    server->taken_count += c->pooled_iteration != iteration;
    TAILQ_REMOVE(&server->pooled, c, entry);
    server->pooled_count--;
    server->outstanding++;
    deadline_cancel(&c->link.deadline);
    c->state = CONNECTION_BUSY;
    c->link.reused = true;
    c->link.noted = c->link.failed = false;
    c->link.owner = owner;
    counter_add(&c->link.worker->stats.reused, 1);
    return &c->link;
}

/* A new connection is made only if none is idle, and the most recently used one is taken first. So
 * the pool holds as many as were busy at once within CONNECTION_IDLE_US. No more can be busy than
 * there are client connections. */
void connection_release(struct connection *c, bool reusable)
{
    struct server *server = c->link.server;
    struct upstream_worker *w = c->link.worker;

    MAGIC_CHECK(c, CONNECTION_MAGIC);
    if (!reusable || c->state != CONNECTION_BUSY || stream_holds_input(&c->stream) ||
        c->stream.in || stream_holds_output(&c->stream) || c->stream.eof ||
        !server_keeps_idle(server) || (w->pooled_max && server->pooled_count >= w->pooled_max)) {
        connection_close(c);
        return;
    }
    server->outstanding--;
    server->pooled_count++;
    c->state = CONNECTION_POOLED;
    c->link.owner = NULL;
    c->scanned = 0;
    c->pooled_iteration = w->iteration;
    c->empty_iteration = c->stream.drained && !c->stream.layer ? w->iteration : 0;
    TAILQ_INSERT_HEAD(&server->pooled, c, entry);
    stream_want_read(&c->stream, true);
    deadline_arm(&w->queue.pooled, &c->link.deadline, clock_cached_us(), CONNECTION_IDLE_US);
}

bool server_keeps_idle(const struct server *server)
{
    const struct upstream_pools *pools = server->pool->pools;
    return !pools->worker->stopping && !server->gone && pools == pools->worker->pools;
}

/* ---- taking a link --------------------------------------------------------------------------- */

/* Returns a link to the server, or NULL with errno. */
static struct link *take_from(struct server *server, struct link_owner *owner, bool fresh,
                              struct upstream_tries *tries)
{
    struct link *link = NULL;

    if (server->pool->settings->protocol != UPSTREAM_HTTP1)
        return http2_take(server, owner, fresh, tries);
    if (!fresh && (link = upstream_take_pooled(server, owner)))
        return link;
    server_tried(server, tries);
    struct connection *c = connection_dial(server, &(struct connection_use){.owner = owner});
    return c ? &c->link : NULL;
}

/* Retries after a lack of descriptors: frees pooled connections and pipes, else uses the process's
 * reserve. NULL with errno on failure. */
static struct link *take_again(struct server *server, struct link_owner *owner,
                               struct upstream_tries *tries)
{
    int error = errno;

    if (close_some_pooled(server->pool->pools->worker)) {
        descriptors_note_lack(error);
        struct link *link = take_from(server, owner, true, tries);
        if (link || !descriptors_lack(errno))
            return link;
    }
    if (descriptors_give(DESCRIPTOR_FOR_SERVER, error))
        return take_from(server, owner, true, tries);
    errno = error;
    return NULL;
}

struct link *upstream_take(struct upstream_pools *pools, unsigned upstream,
                           struct link_owner *owner, bool fresh, struct upstream_tries *tries,
                           enum link_failure *failure)
{
    struct pool *pool = &pools->all[upstream];
    struct link *link;

    servers_refresh(pools);
    if (!tries->counted)
        recent_add(&pool->retries, RETRIES_REQUEST, clock_cached_us());
    tries->counted = true;
    if (!servers_any(pool)) {
        *failure = LINK_FAILED_NO_SERVER;
        return NULL;
    }
    for (struct server *server; (server = servers_choose(pool, tries));) {
        if ((link = take_from(server, owner, fresh, tries)))
            return link;
        if (descriptors_lack(errno) && (link = take_again(server, owner, tries)))
            return link;
        if (errno == ENOMEM || errno == ENOBUFS || descriptors_lack(errno)) {
            *failure = descriptors_lack(errno) ? LINK_FAILED_NO_DESCRIPTORS : LINK_FAILED_NO_MEMORY;
            return NULL;
        }
        server_eject(server, strerror(errno));
        if (!(pool->settings->retry.on & RETRY_ON_CONNECT))
            break;
    }
    *failure = LINK_FAILED_CONNECT;
    return NULL;
}

/* ---- a worker's connections ------------------------------------------------------------------ */

static void wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg; /* upstream_worker_flush() follows */
}

bool upstream_worker_init(struct upstream_worker *w, struct event_base *base,
                          struct deadlines *deadlines, const struct body_io *io)
{
    w->io = *io;
    event_assign(&w->wake, base, -1, 0, wake, w);
    TAILQ_INIT(&w->unused_servers);
    connections_init(w, deadlines);
    http2_upstreams_init(w, deadlines);
    return poller_init(&w->poller, base, LINKS_PER_BATCH) == 0;
}

void upstream_worker_clear(struct upstream_worker *w)
{
    poller_clear(&w->poller);
    http2_upstreams_free(w);
}

void upstream_worker_use(struct upstream_worker *w, struct upstream_pools *pools,
                         unsigned pooled_max)
{
    w->pools = pools;
    w->pooled_max = pooled_max;
}

void upstream_worker_stop(struct upstream_worker *w)
{
    w->stopping = true;
    upstream_pools_retire(w->pools);
}

void upstream_worker_flush(struct upstream_worker *w)
{
    http2_upstreams_flush(w);
}

bool upstream_worker_has_work(const struct upstream_worker *w)
{
    return http2_upstreams_have_work(w);
}

void upstream_worker_wake(struct upstream_worker *w)
{
    event_active(&w->wake, EV_TIMEOUT, 1);
}

void upstream_worker_free_closed(struct upstream_worker *w)
{
    http2_upstreams_free_ended(w);
    for (struct connection *c; (c = TAILQ_FIRST(&w->closed));) {
        TAILQ_REMOVE(&w->closed, c, entry);
        MAGIC_WIPE(c);
        free(c);
    }
    servers_free_unused(w); /* closed connections point at them */
}
