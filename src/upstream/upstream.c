#include "upstream/upstream.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/magic.h"
#include "net/listener.h"
#include "net/tls.h"
#include "upstream/upstream_internal.h"

enum {
    LINK_MAGIC = 0x4c494e4b,
    POOLED_IDLE_US = 60 * 1000000, /* idle timeout of a pooled link */
    CHECKED_AT_ONCE = 64,          /* maximum number of pooled links checked per poll(2) */
    /* Sockets per epoll_wait; more than for clients (downstream/client.c): requests in progress
     * complete before new ones start. This keeps the requests in flight, and the upstream
     * connections in use, few with any number of clients. */
    LINKS_PER_BATCH = 256
};

const char *link_server_text(const struct link *link)
{
    return link->server->endpoint->text;
}

/* ---- link lifecycle -------------------------------------------------------------------------- */

void link_close(struct link *link)
{
    struct upstream_worker *w = link->worker;

    if (link->state == LINK_CLOSED)
        return;
    if (link->state == LINK_POOLED) {
        TAILQ_REMOVE(&link->server->pooled, link, link);
        link->server->pooled_count--;
    } else
        link->server->outstanding--;
    if (link->server->probing == link)
        link->server->probing = NULL;
    link->state = LINK_CLOSED;
    link->owner = NULL;
    deadline_cancel(&link->deadline);
    stream_close(&link->stream, w->io.buffers);
    counter_subtract(&w->stats.connections_open, 1);
    TAILQ_INSERT_TAIL(&w->closed_links, link, link);
    server_free_if_unused(link->server);
}

static void link_connected(struct link *link)
{
    deadline_cancel(&link->deadline);
    if (link->server->probing == link)
        link->server->probing = NULL;
    link->state = LINK_BUSY;
    stream_want_write(&link->stream, false);
    stream_want_read(&link->stream, true);
}

/* Handles a failed connection. A request goes to another server; a probe is repeated later. */
static void connect_failed(struct link *link, enum link_failure failure, const char *why)
{
    struct link_owner *owner = link->owner;
    struct server *server = link->server;

    link_close(link);
    server_eject(server, why);
    if (owner)
        owner->ops->connect_failed(owner, failure);
}

/* Ends the ejection, and pools the connection for the next request. */
static void probe_succeeded(struct link *link)
{
    server_admit(link->server, "accepts connections");
    link_connected(link);
    upstream_release(link, true);
}

static void link_is_up(struct link *link)
{
    if (link->state == LINK_PROBING)
        probe_succeeded(link);
    else {
        link_connected(link);
        link->owner->ops->connected(link->owner);
    }
}

static void continue_handshake(struct link *link)
{
    char why[TLS_WHY_MAX];

    switch (tls_handshake(&link->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE: link_is_up(link); break;
    case TLS_FAILED:
        tls_connect_failure(&link->stream, why);
        tls_resumption_clear(&link->server->resumption);
        connect_failed(link, LINK_FAILED_TLS, why);
    }
}

static void begin_tls(struct link *link)
{
    struct server *server = link->server;
    const struct client_tls *tls = &server->pool->settings->tls;
    const char *host = tls->server_name ? tls->server_name : server->endpoint->settings->host;

    stream_want_write(&link->stream, false);
    /* A unix socket without server_name is not verified. */
    if (tls_connect(&link->stream, tls->client, host ? host : "localhost", &server->resumption))
        continue_handshake(link);
    else
        connect_failed(link, LINK_FAILED_NO_MEMORY, "no memory for TLS");
}

static void link_finish_connect(struct link *link)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(link->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error)
        connect_failed(link, LINK_FAILED_CONNECT, strerror(error));
    else if (link->server->pool->settings->tls.on)
        begin_tls(link);
    else
        link_is_up(link);
}

/* Returns whether an idle link or its socket holds unexpected data or has ended. TLS session
 * tickets and key updates (RFC 8446 section 4.6) are not unexpected. */
static bool is_stale(struct link *link)
{
    enum { RECORDS_MAX = 8 }; /* more records than a server sends at once */
    char byte;

    for (unsigned i = 0; i < RECORDS_MAX; i++) {
        if (link->stream.layer && stream_read(&link->stream, &byte, 1) != STREAM_AGAIN)
            return true;
        if (recv(link->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
            return errno != EAGAIN && errno != EWOULDBLOCK;
        if (!link->stream.layer)
            return true;
    }
    return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_BUSY)
        link->owner->ops->readable(link->owner);
    else if (link->state == LINK_CONNECTING || link->state == LINK_PROBING)
        continue_handshake(link);
    else if (link->state == LINK_POOLED && (!link->stream.layer || is_stale(link)))
        link_close(link); /* closed by the server, or unexpected data */
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_CONNECTING || link->state == LINK_PROBING)
        link_finish_connect(link);
    else if (link->state == LINK_BUSY)
        http1_link_writable(link);
}

static void connect_timed_out(struct deadline *deadline)
{
    struct link *link = CONTAINER_OF(deadline, struct link, deadline);
    connect_failed(link, LINK_FAILED_TIMEOUT,
                   link->stream.layer ? "no TLS handshake within connect_timeout"
                                      : "no connection within connect_timeout");
}

static void response_timed_out(struct deadline *deadline)
{
    struct link_owner *owner = CONTAINER_OF(deadline, struct link, deadline)->owner;
    owner->ops->timed_out(owner);
}

static void idle_timed_out(struct deadline *deadline)
{
    link_close(CONTAINER_OF(deadline, struct link, deadline));
}

/* Connects to `server`. The link is connecting or, on a unix socket, connected. Without an
 * owner it is a probe. NULL with errno on failure. */
static struct link *dial(struct upstream_worker *w, struct server *server, struct link_owner *owner)
{
    const struct address *to = &server->endpoint->address;
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct link *link = fd < 0 ? NULL : calloc(1, sizeof *link);

    if (!link) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    socket_set_options(fd, to);
    bool at_once = connect(fd, &to->any, to->length) == 0;
    if (!at_once && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        free(link);
        errno = error;
        return NULL;
    }
    MAGIC_SET(link, LINK_MAGIC);
    link->state = owner ? LINK_CONNECTING : LINK_PROBING;
    link->ops = &http1_link_ops;
    link->worker = w;
    link->server = server;
    link->owner = owner;
    stream_open(&link->stream, &w->poller, fd, on_readable, on_writable, link);
    server->outstanding++;
    server->probing = owner ? server->probing : link;
    counter_add(&w->stats.connections_opened, 1);
    counter_add(&w->stats.connections_open, 1);
    if (at_once && !server->pool->settings->tls.on)
        link_connected(link);
    else {
        stream_want_write(&link->stream, true);
        deadline_arm(&w->queue.connect, &link->deadline, clock_us(),
                     server->pool->settings->connect_timeout_us);
    }
    return link;
}

static void probe(struct deadline *deadline)
{
    struct server *server = CONTAINER_OF(deadline, struct server, probe);
    struct link *link = dial(server->pool->pools->worker, server, NULL);

    if (!link && descriptors_lack(errno)) { /* the failure is local, not the server's */
        descriptors_note_lack(errno);
        deadline_arm(&server->pool->pools->worker->queue.probe, &server->probe, clock_us(),
                     server->ejected_us);
    } else if (!link)
        server_eject(server, strerror(errno));
    else if (link->state == LINK_BUSY)
        probe_succeeded(link);
}

/* Closes pooled pipes, and up to OF_A_SERVER of the longest-idle links of every server. False:
 * there were none. */
static bool close_some_pooled(struct upstream_worker *w)
{
    enum { OF_A_SERVER = 4 };
    bool any = w->io.buffers->pipes.kept > 0;

    pipe_pool_clear(&w->io.buffers->pipes);
    for (unsigned i = 0; i < w->pools->policy->upstream_count; i++)
        for (unsigned s = 0; s < w->pools->all[i].slots; s++) {
            struct server *server = w->pools->all[i].servers[s];
            struct link *link;
            for (unsigned n = 0;
                 server && n < OF_A_SERVER && (link = TAILQ_LAST(&server->pooled, pooled)); n++) {
                link_close(link);
                any = true;
            }
        }
    return any;
}

/* Checks the most recently used pooled links with one poll(2), and closes those with unexpected
 * data or closed by the server. It checks as many links as the last loop iteration needed or, if
 * more, as many as this one has needed so far. */
static void check_pooled(struct server *server, uint64_t iteration)
{
    struct pollfd polls[CHECKED_AT_ONCE];
    struct link *links[CHECKED_AT_ONCE];
    unsigned most = server->needed > server->taken_count ? server->needed : server->taken_count,
             n = 0;

    most = most < 1 ? 1 : most > CHECKED_AT_ONCE ? CHECKED_AT_ONCE : most;
    for (struct link *link = TAILQ_FIRST(&server->pooled); link && n < most;
         link = TAILQ_NEXT(link, link)) {
        links[n] = link;
        polls[n++] = (struct pollfd){.fd = link->stream.fd, .events = POLLIN | POLLRDHUP};
    }
    int ready = poll(polls, n, 0);
    for (unsigned i = 0; i < n; i++)
        if ((ready < 0 || polls[i].revents) && is_stale(links[i]))
            link_close(links[i]);
        else
            links[i]->empty_iteration = iteration;
}

/* Updates the number of links that the previous loop iteration needed. */
static void count_needed(struct server *server, uint64_t iteration)
{
    if (server->taken_iteration != iteration) {
        server->taken_iteration = iteration;
        server->needed = server->taken_count;
        server->taken_count = 0;
    }
}

/* Takes a pooled link; NULL: none. Bytes after the last response would be read as this request's
 * response, and their event may still be pending. So only a link that was found empty in this loop
 * iteration is taken. */
static struct link *take_pooled(struct server *server, struct link_owner *owner)
{
    uint64_t iteration = server->pool->pools->worker->iteration;
    struct link *link;

    count_needed(server, iteration);
    while ((link = TAILQ_FIRST(&server->pooled)) && link->empty_iteration != iteration)
        check_pooled(server, iteration);
    if (!link)
        return NULL;
    server->taken_count += link->pooled_iteration != iteration;
    TAILQ_REMOVE(&server->pooled, link, link);
    server->pooled_count--;
    server->outstanding++;
    deadline_cancel(&link->deadline);
    link->state = LINK_BUSY;
    link->reused = true;
    link->noted = link->failed = false;
    link->owner = owner;
    counter_add(&link->worker->stats.reused, 1);
    return link;
}

/* Retries after a lack of descriptors: frees pooled links and pipes, else uses the process's
 * reserve. NULL with errno on failure. */
static struct link *dial_again(struct upstream_worker *w, struct server *server,
                               struct link_owner *owner)
{
    int error = errno;

    if (close_some_pooled(w)) {
        descriptors_note_lack(error);
        struct link *link = dial(w, server, owner);
        if (link || !descriptors_lack(errno))
            return link;
    }
    if (descriptors_give(DESCRIPTOR_FOR_SERVER, error))
        return dial(w, server, owner);
    errno = error;
    return NULL;
}

struct link *upstream_take(struct upstream_pools *pools, unsigned upstream,
                           struct link_owner *owner, bool fresh, struct upstream_tries *tries,
                           enum link_failure *failure)
{
    struct upstream_worker *worker = pools->worker;
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
        if (!fresh && (link = take_pooled(server, owner)))
            return link;
        tries->servers |= (uint64_t)1 << server->slot;
        if ((link = dial(worker, server, owner)))
            return link;
        if (descriptors_lack(errno) && (link = dial_again(worker, server, owner)))
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

/* A new link is made only if none is idle, and the most recently used link is taken first. So
 * the pool holds as many links as were busy at once within POOLED_IDLE_US. No more can be busy than
 * there are client connections. */
void upstream_release(struct link *link, bool reusable)
{
    struct server *server = link->server;
    struct upstream_worker *w = link->worker;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (!reusable || link->state != LINK_BUSY || stream_holds_input(&link->stream) ||
        link->stream.in || stream_holds_output(&link->stream) || link->stream.eof || w->stopping ||
        server->gone || server->pool->pools != w->pools ||
        (w->pooled_max && server->pooled_count >= w->pooled_max)) {
        link_close(link);
        return;
    }
    server->outstanding--;
    server->pooled_count++;
    link->state = LINK_POOLED;
    link->owner = NULL;
    link->scanned = 0;
    link->pooled_iteration = w->iteration;
    link->empty_iteration = link->stream.drained && !link->stream.layer ? w->iteration : 0;
    TAILQ_INSERT_HEAD(&server->pooled, link, link);
    stream_want_read(&link->stream, true);
    deadline_arm(&w->queue.pooled, &link->deadline, clock_cached_us(), POOLED_IDLE_US);
}

/* A server that closes before it receives the request answers with RST, or has not acknowledged
 * it. A server that has read the request and then closes sends FIN after its acknowledgement. */
bool upstream_closed_idle(const struct link *link)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (!link->reused)
        return false;
    if (getsockopt(link->stream.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return !link->stream.eof; /* a unix socket */
    return info.tcpi_state != TCP_CLOSE_WAIT || info.tcpi_unacked > 0;
}

/* ---- a worker's links ------------------------------------------------------------------------ */

bool upstreams_init(struct upstream_worker *w, struct event_base *base, struct deadlines *deadlines,
                    const struct body_io *io)
{
    w->io = *io;
    TAILQ_INIT(&w->closed_links);
    TAILQ_INIT(&w->unused_servers);
    deadline_queue_init(deadlines, &w->queue.connect, connect_timed_out);
    deadline_queue_init(deadlines, &w->queue.response, response_timed_out);
    deadline_queue_init(deadlines, &w->queue.pooled, idle_timed_out);
    deadline_queue_init(deadlines, &w->queue.probe, probe);
    return poller_init(&w->poller, base, LINKS_PER_BATCH) == 0;
}

void upstreams_clear(struct upstream_worker *w)
{
    poller_clear(&w->poller);
}

void upstreams_use(struct upstream_worker *w, struct upstream_pools *pools, unsigned pooled_max)
{
    w->pools = pools;
    w->pooled_max = pooled_max;
}

void upstreams_stop(struct upstream_worker *w)
{
    w->stopping = true;
    upstream_retire(w->pools);
}

void upstreams_free_closed(struct upstream_worker *w)
{
    for (struct link *link; (link = TAILQ_FIRST(&w->closed_links));) {
        TAILQ_REMOVE(&w->closed_links, link, link);
        MAGIC_WIPE(link);
        free(link);
    }
    servers_free_unused(w); /* closed links point at them */
}
