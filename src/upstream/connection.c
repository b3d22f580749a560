/* connection.c - connections to servers: connecting, TLS, events, closing. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/magic.h"
#include "net/listener.h"
#include "net/tls.h"
#include "upstream/upstream_internal.h"

/* ---- end ------------------------------------------------------------------------------------- */

void connection_close(struct connection *c)
{
    struct upstream_worker *w = c->link.worker;
    struct server *server = c->link.server;

    if (c->state == CONNECTION_CLOSED)
        return;
    if (c->state == CONNECTION_POOLED) {
        TAILQ_REMOVE(&server->pooled, c, entry);
        server->pooled_count--;
    } else if (c->http2)
        server->http2.count--;
    else
        server->outstanding--;
    if (server->probing == c)
        server->probing = NULL;
    c->state = CONNECTION_CLOSED;
    c->link.owner = NULL;
    deadline_cancel(&c->link.deadline);
    stream_close(&c->stream, w->io.buffers);
    counter_subtract(&w->stats.connections_open, 1);
    TAILQ_INSERT_TAIL(&w->closed, c, entry);
    server_free_if_unused(server);
}

/* Handles a failed connection. A request goes to another server; a probe is repeated later. */
void connection_failed(struct connection *c, enum link_failure failure, const char *why)
{
    struct link_owner *owner = c->link.owner;

    if (owner)
        server_stats_unconnected(&c->link, failure);
    connection_close(c);
    if (failure != LINK_FAILED_NO_MEMORY)
        server_eject(c->link.server, why);
    else
        server_probe_again(c->link.server);
    c->events->failed(c, owner, failure);
}

/* ---- connecting ------------------------------------------------------------------------------ */

void server_report_no_port(const struct server *server)
{
    uint64_t suppressed;

    if (log_throttle_allows(&server->pool->pools->worker->port_throttle, clock_us(), &suppressed))
        log_warn("upstream %s: server %s: no local port is left for another connection; raise "
                 "net.ipv4.ip_local_port_range, or let the server keep connections open%s",
                 server->pool->settings->name, server->endpoint->text,
                 log_throttle_more(suppressed).text);
}

static void opened(struct connection *c)
{
    if (!c->http2)
        deadline_cancel(&c->link.deadline);
    if (c->link.server->probing == c)
        c->link.server->probing = NULL;
    c->state = CONNECTION_BUSY;
    c->link.ready = true;
    stream_want_write(&c->stream, false);
    stream_want_read(&c->stream, true);
}

static void connection_is_up(struct connection *c)
{
    opened(c);
    c->events->up(c);
}

static void continue_handshake(struct connection *c)
{
    char why[TLS_WHY_MAX];

    switch (tls_handshake(&c->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE: connection_is_up(c); break;
    case TLS_FAILED:
        tls_connect_failure(&c->stream, why);
        tls_resumption_clear(&c->link.server->resumption);
        connection_failed(
            c, tls_connect_was_closed(&c->stream) ? LINK_FAILED_CLOSED : LINK_FAILED_TLS, why);
    }
}

static void begin_tls(struct connection *c)
{
    struct server *server = c->link.server;
    const struct client_tls *tls = &server->pool->settings->tls;
    const char *host = tls->server_name ? tls->server_name : server->endpoint->settings->host;

    stream_want_write(&c->stream, false);
    /* A unix socket without server_name is not verified. */
    if (tls_connect(&c->stream, tls->client, host ? host : "localhost", &server->resumption) &&
        (!c->http2 ||
         tls_client_offer_http2(&c->stream, server->pool->settings->protocol == UPSTREAM_AUTO)))
        continue_handshake(c);
    else
        connection_failed(c, LINK_FAILED_NO_MEMORY, "no memory for TLS");
}

static void finish_connect(struct connection *c)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(c->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error)
        connection_failed(c, LINK_FAILED_CONNECT, strerror(error));
    else if (c->link.server->pool->settings->tls.on)
        begin_tls(c);
    else
        connection_is_up(c);
}

static void connect_timed_out(struct deadline *deadline)
{
    struct connection *c = CONTAINER_OF(deadline, struct connection, link.deadline);
    connection_failed(c, LINK_FAILED_TIMEOUT,
                      c->state == CONNECTION_BUSY
                          ? "no HTTP/2 SETTINGS that allow a stream within connect_timeout"
                      : c->stream.layer ? "no TLS handshake within connect_timeout"
                                        : "no connection within connect_timeout");
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool is_connecting(const struct connection *c)
{
    return c->state == CONNECTION_CONNECTING || c->state == CONNECTION_PROBING;
}

static void on_connection_readable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(c, CONNECTION_MAGIC);
    if (c->state == CONNECTION_BUSY)
        c->events->readable(c);
    else if (is_connecting(c))
        continue_handshake(c);
    else if (c->state == CONNECTION_POOLED && (!c->stream.layer || connection_is_stale(c)))
        connection_close(c); /* closed by the server, or unexpected data */
}

static void on_connection_writable(evutil_socket_t fd, short what, void *arg)
{
    struct connection *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(c, CONNECTION_MAGIC);
    if (is_connecting(c))
        finish_connect(c);
    else if (c->state == CONNECTION_BUSY)
        c->events->writable(c);
}

static void response_timed_out(struct deadline *deadline)
{
    struct link_owner *owner = CONTAINER_OF(deadline, struct link, deadline)->owner;
    owner->ops->timed_out(owner);
}

static void idle_timed_out(struct deadline *deadline)
{
    struct connection *c = CONTAINER_OF(deadline, struct connection, link.deadline);

    c->events->idle(c);
}

/* ---- dialing --------------------------------------------------------------------------------- */

struct connection *connection_dial(struct server *server, const struct connection_use *use)
{
    struct upstream_worker *w = server->pool->pools->worker;
    const struct address *to = &server->endpoint->address;
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct connection *c = fd < 0 ? NULL : calloc(1, sizeof *c);

    if (!c) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    socket_set_options(fd, to);
    bool at_once = connect(fd, &to->any, to->length) == 0;
    if (!at_once && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        free(c);
        errno = error;
        return NULL;
    }
    MAGIC_SET(c, CONNECTION_MAGIC);
    c->state = use->probe ? CONNECTION_PROBING : CONNECTION_CONNECTING;
    c->events = use->events;
    c->http2 = use->http2;
    c->link.worker = w;
    c->link.server = server;
    c->link.owner = use->owner;
    stream_open(&c->stream, &w->poller, fd, on_connection_readable, on_connection_writable, c);
    if (use->http2)
        server->http2.count++;
    else
        server->outstanding++;
    server->probing = use->probe ? c : server->probing;
    counter_add(&w->stats.connections_opened, 1);
    counter_add(&w->stats.connections_open, 1);
    if (at_once && !use->http2 && !server->pool->settings->tls.on)
        opened(c);
    else {
        stream_want_write(&c->stream, true);
        deadline_arm(&w->queue.connect, &c->link.deadline, clock_us(),
                     server->pool->settings->connect_timeout_us);
    }
    return c;
}

void connections_init(struct upstream_worker *w, struct deadlines *deadlines)
{
    TAILQ_INIT(&w->closed);
    deadline_queue_init(deadlines, &w->queue.connect, connect_timed_out);
    deadline_queue_init(deadlines, &w->queue.response, response_timed_out);
    deadline_queue_init(deadlines, &w->queue.pooled, idle_timed_out);
}

void connections_free_closed(struct upstream_worker *w)
{
    for (struct connection *c; (c = TAILQ_FIRST(&w->closed));) {
        TAILQ_REMOVE(&w->closed, c, entry);
        MAGIC_WIPE(c);
        free(c);
    }
}

/* ---- HTTP/1.1: the state of the connection --------------------------------------------------- */

/* TLS session tickets and key updates (RFC 8446 section 4.6) are not unexpected. */
bool connection_is_stale(struct connection *c)
{
    enum { RECORDS_MAX = 8 }; /* more records than a server sends at once */
    char byte;

    for (unsigned i = 0; i < RECORDS_MAX; i++) {
        if (c->stream.layer && stream_read(&c->stream, &byte, 1) != STREAM_AGAIN)
            return true;
        if (recv(c->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
            return errno != EAGAIN && errno != EWOULDBLOCK;
        if (!c->stream.layer)
            return true;
    }
    return true;
}

/* A server that closes before it receives the request answers with RST, or has not acknowledged
 * it. A server that has read the request and then closes sends FIN after its acknowledgement. */
bool connection_closed_idle(const struct connection *c)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (!c->link.reused)
        return false;
    if (getsockopt(c->stream.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return !c->stream.eof; /* a unix socket */
    return info.tcpi_state != TCP_CLOSE_WAIT || info.tcpi_unacked > 0;
}
