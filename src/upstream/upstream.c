#include "upstream/upstream.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "upstream/http2_upstream.h"
#include "upstream/upstream_internal.h"

enum {
    /* Sockets per epoll_wait. The limit is higher than for clients (proxy/worker.c): requests in
     * progress complete before new ones start. This keeps the requests in flight, and the upstream
     * connections in use, few with any number of clients. */
    LINKS_PER_BATCH = 256
};

const struct upstream_server *link_server(const struct link *link)
{
    return link->server->endpoint->settings;
}

const char *link_server_text(const struct link *link)
{
    return link->server->endpoint->text;
}

/* ---- taking a link --------------------------------------------------------------------------- */

/* Returns a link to the server, or NULL with errno. */
static struct link *take_from(struct server *server, struct link_owner *owner, bool fresh,
                              struct upstream_tries *tries)
{
    struct link *link = NULL;

    if (server->pool->settings->protocol != UPSTREAM_HTTP1)
        return http2_take(server, owner, fresh, tries);
    if (!fresh && (link = server_take_pooled(server, owner)))
        return link;
    server_tried(server, tries);
    return http1_take(server, owner);
}

bool upstream_worker_close_pooled(struct upstream_worker *w)
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

/* Retries after a lack of descriptors: frees pooled connections and pipes, else uses the process's
 * reserve. NULL with errno on failure. */
static struct link *take_again(struct server *server, struct link_owner *owner,
                               struct upstream_tries *tries)
{
    int error = errno;

    if (upstream_worker_close_pooled(server->pool->pools->worker)) {
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

static enum link_failure dial_failure(const struct server *server)
{
    return link_failure_of(errno, &server->endpoint->address);
}

struct link *upstream_take(struct upstream_pools *pools, unsigned upstream,
                           struct link_owner *owner, bool fresh, struct upstream_tries *tries,
                           enum link_failure *failure)
{
    struct pool *pool = &pools->all[upstream];
    struct link *link;

    servers_refresh(pools);
    if (tries->servers)
        servers_forget_replaced(pool, tries);
    if (!tries->counted)
        recent_add(&pool->retries, RETRIES_REQUEST, clock_cached_us());
    tries->counted = true;
    for (struct server *server; (server = servers_choose(pool, tries));) {
        if ((link = take_from(server, owner, fresh, tries)))
            return link;
        if (descriptors_lack(errno) && (link = take_again(server, owner, tries)))
            return link;
        int error = errno;
        *failure = dial_failure(server);
        if (*failure == LINK_FAILED_NO_PORTS) /* another server has ports of its own */
            server_report_no_port(server);
        else if (*failure != LINK_FAILED_CONNECT)
            return NULL;
        else {
            counter_add(&server->counts[(unsigned)SERVER_ERROR_FIRST + SERVER_ERROR_CONNECT], 1);
            server_eject(server, strerror(error));
        }
        if (!(pool->settings->retry.on & RETRY_ON_CONNECT))
            break;
    }
    *failure = servers_any(pool) ? LINK_FAILED_CONNECT : LINK_FAILED_NO_SERVER;
    return NULL;
}

/* ---- probes of ejected servers --------------------------------------------------------------- */

static bool dial_probe(struct server *server)
{
    if (server->pool->settings->protocol != UPSTREAM_HTTP1)
        return http2_dial(server, true) != NULL;
    return http1_probe(server);
}

static void probe(struct deadline *deadline)
{
    struct server *server = CONTAINER_OF(deadline, struct server, probe);

    if (dial_probe(server))
        return;
    if (descriptors_lack(errno))
        descriptors_note_lack(errno);
    int error = errno;
    if (dial_failure(server) == LINK_FAILED_CONNECT)
        server_eject(server, strerror(error));
    else
        server_probe_again(server);
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
    deadline_queue_init(deadlines, &w->queue.probe, probe);
    http2_upstreams_init(w, deadlines);
    return poller_init(&w->poller, base, LINKS_PER_BATCH) == 0;
}

void upstream_worker_clear(struct upstream_worker *w)
{
    poller_clear(&w->poller);
    http2_upstreams_free(w);
    iobuf_put(w->io.buffers, &w->last_head);
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
    iobuf_put(w->io.buffers, &w->last_head);
}

void upstream_worker_wake(struct upstream_worker *w)
{
    event_active(&w->wake, EV_TIMEOUT, 1);
}
