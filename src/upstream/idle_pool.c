/* idle_pool.c - idle connections of HTTP/1.1, kept per server for later requests. */
#include <poll.h>

#include "base/clock.h"
#include "base/magic.h"
#include "upstream/upstream_internal.h"

enum { CHECKED_AT_ONCE = 64 /* maximum number of connections checked per poll(2) */ };

/* Checks the most recently used pooled connections with one poll(2), and closes those with
 * unexpected data, those that the server has closed, and those past their use_until_us. It checks
 * as many as the last loop iteration needed or, if more, as many as this one has needed so far. */
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
    uint64_t now = clock_cached_us();
    for (unsigned i = 0; i < n; i++)
        if (now >= connections[i]->use_until_us ||
            ((ready < 0 || polls[i].revents) && connection_is_stale(connections[i])))
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
struct link *server_take_pooled(struct server *server, struct link_owner *owner)
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
    c->link.outcome = REQUEST_UNNOTED;
    c->link.owner = owner;
    counter_add(&c->link.worker->stats.reused, 1);
    return &c->link;
}

/* A new connection is made only if none is idle, and the most recently used one is taken first. So
 * the pool holds as many as were busy at once within CONNECTION_IDLE_US. No more can be busy than
 * there are client connections.
 *
 * use_until_us is checked when a connection is taken, without a deadline: only deadlines of one
 * length are cheap to arm. */
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
    uint64_t now = clock_cached_us();
    server->outstanding--;
    server->pooled_count++;
    c->state = CONNECTION_POOLED;
    c->link.owner = NULL;
    c->scanned = 0;
    c->pooled_iteration = w->iteration;
    c->empty_iteration = c->stream.drained && !c->stream.layer ? w->iteration : 0;
    c->use_until_us = now + c->idle_max_us;
    TAILQ_INSERT_HEAD(&server->pooled, c, entry);
    stream_want_read(&c->stream, true);
    deadline_arm(&w->queue.pooled, &c->link.deadline, now, CONNECTION_IDLE_US);
}

bool server_keeps_idle(const struct server *server)
{
    return server_is_in_use(server) && !server->pool->pools->worker->stopping;
}
