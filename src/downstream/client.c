#include "downstream/client_internal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "downstream/handoff.h"
#include "downstream/http2.h"
#include "downstream/peer_counts.h"
#include "downstream/proxy_header_reader.h"
#include "net/listener.h"
#include "net/tls.h"
#include "proxy/exchange.h"

enum { CLIENTS_PER_BATCH = 128 }; /* sockets per epoll_wait; see LINKS_PER_BATCH in upstream.c */

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void secure(struct client *c);
static void refuse_handshake(struct client *c);

/* ---- open ------------------------------------------------------------------------------------ */

static const struct listen_settings *settings_of(const struct client *c)
{
    return &c->worker->policy->listen[c->listener]; /* reloads keep listeners in order */
}

bool client_open(struct worker *w, int fd, const struct address *peer, unsigned listener,
                 bool counted)
{
    struct client *c = free_list_take(&w->downstream->free_clients);

    if (!c && !(c = malloc(sizeof *c))) {
        close(fd);
        return false;
    }
    memset(c, 0, sizeof *c);
    MAGIC_SET(c, CLIENT_MAGIC);
    c->worker = w;
    c->protocol = &http1_protocol;
    c->downstream = (struct downstream){.ops = &http1_ops, .worker = w, .origin = &c->origin};
    c->listener = (uint16_t)listener;
    c->state = CLIENT_PROXY_HEADER;
    c->counted = counted;
    c->silent = true;
    c->origin.peer = peer_of_address(peer);
    c->origin.decides = settings_of(c)->decides;
    c->opened_ms = c->since_ms = client_now_ms();
    stream_open(&c->stream, &w->downstream->poller, fd, on_readable, on_writable, c);
    stream_want_read(&c->stream, true);
    client_list_insert(c);
    deadline_arm(&w->downstream->queue.head, &c->deadline, clock_us(),
                 w->policy->timeouts.request_header_us);
    counter_add(&w->stats.connections_open, 1);
    if (!settings_of(c)->proxy_protocol)
        secure(c);
    return true;
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static void handshake(struct client *c)
{
    switch (tls_handshake(&c->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE:
        c->state = CLIENT_HEAD;
        if (tls_chose_http2(&c->stream))
            http2_begin(c, SLICE_NONE);
        break;
    case TLS_FAILED: refuse_handshake(c); break;
    }
}

/* Not logged one by one: anybody can cause failed handshakes. */
static void refuse_handshake(struct client *c)
{
    counter_add(&c->worker->stats.tls_handshakes_failed, 1);
    if (c->stream.layer && tls_end_for_plain_http(&c->stream)) {
        c->origin.secure = false;
        http1_refuse(c, "plain HTTP was sent to a TLS port; use https://");
    } else
        client_close(c);
}

/* Starts the TLS handshake, or request reading on a listener without TLS. */
static void secure(struct client *c)
{
    struct tls_server *tls = settings_of(c)->tls;

    c->state = tls ? CLIENT_HANDSHAKE : CLIENT_HEAD;
    c->origin.secure = tls != NULL;
    c->may_be_http2 = !tls && settings_of(c)->http2;
    if (tls && !tls_accept(&c->stream, tls))
        refuse_handshake(c);
    else
        stream_want_read(&c->stream, true);
}

/* ---- PROXY protocol header ------------------------------------------------------------------- */

static void refuse_proxy_header(struct client *c)
{
    counter_add(&c->worker->stats.proxy_headers_refused, 1);
    client_close(c);
}

/* The deadline of the request head continues: it covers the PROXY header and the first head. */
static void read_proxy_header(struct client *c)
{
    struct proxy_header header;
    struct address peer;

    switch (proxy_header_receive(&c->stream, &c->worker->buffers, &header)) {
    case RECEIVE_PARTIAL: return;
    case RECEIVE_BAD: refuse_proxy_header(c); return;
    case RECEIVE_CLOSED: client_close(c); return;
    case RECEIVE_WHOLE: break;
    }
    if (header.source.length)
        c->origin.peer = peer_of_address(&header.source);
    c->origin.peer_unknown = header.source.length == 0 && !header.local;
    if (peer_count(c->worker, address_of_peer(&c->origin.peer, &peer), &c->counted))
        secure(c);
    else
        client_close(c);
}

/* ---- events and deadlines -------------------------------------------------------------------- */

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    (void)fd;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (c->silent)
        client_speaks(c);
    switch (c->state) {
    case CLIENT_PROXY_HEADER: read_proxy_header(c); break;
    case CLIENT_HANDSHAKE: handshake(c); break;
    case CLIENT_IDLE:
    case CLIENT_HEAD:
    case CLIENT_EXCHANGE: c->protocol->readable(c, what & EV_CLOSED); break;
    case CLIENT_DRAIN:
    case CLIENT_LINGER: linger_readable(c); break;
    case CLIENT_CLOSED: break;
    }
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (c->state == CLIENT_IDLE || c->state == CLIENT_HEAD || c->state == CLIENT_EXCHANGE)
        c->protocol->writable(c);
}

static struct client *of_deadline(struct deadline *deadline)
{
    struct client *c = CONTAINER_OF(deadline, struct client, deadline);
    MAGIC_CHECK(c, CLIENT_MAGIC);
    return c;
}

static void head_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    if (c->state == CLIENT_PROXY_HEADER)
        refuse_proxy_header(c);
    else if (c->state == CLIENT_HANDSHAKE)
        refuse_handshake(c);
    else
        c->protocol->head_timed_out(c);
}

/* On a busy machine the deadline may fire before timely input is read. */
static void idle_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    if (stream_has_input(&c->stream))
        deadline_arm(&c->worker->downstream->queue.idle, &c->deadline, clock_us(),
                     c->worker->policy->timeouts.keepalive_us);
    else
        c->protocol->idle_timed_out(c);
}

bool clients_init(struct worker *w)
{
    if (!(w->downstream = calloc(1, sizeof *w->downstream)))
        return false;
    handoff_init(&w->downstream->handoff);
    TAILQ_INIT(&w->downstream->clients);
    TAILQ_INIT(&w->downstream->silent);
    TAILQ_INIT(&w->downstream->heads);
    TAILQ_INIT(&w->downstream->idle);
    TAILQ_INIT(&w->downstream->closed);
    linger_init(w);
    http2_init(w);
    deadline_queue_init(&w->deadlines, &w->downstream->queue.head, head_passed);
    deadline_queue_init(&w->deadlines, &w->downstream->queue.idle, idle_passed);
    return poller_init(&w->downstream->poller, w->base, CLIENTS_PER_BATCH) == 0;
}

/* ---- stop and free -------------------------------------------------------------------------- */

static void stop_all(struct client_list *list)
{
    struct client *next;

    for (struct client *c = TAILQ_FIRST(list); c; c = next) {
        next = TAILQ_NEXT(c, link);
        c->protocol->stop(c);
    }
}

void clients_stop(struct worker *w)
{
    stop_all(&w->downstream->silent);
    stop_all(&w->downstream->idle);
    stop_all(&w->downstream->heads);
    stop_all(&w->downstream->clients);
    linger_stop(w);
}

void clients_free(struct worker *w)
{
    if (!w->downstream)
        return;
    handoff_clear(&w->downstream->handoff);
    http2_worker_free(w);
    clients_free_closed(w);
    free_list_drop(&w->downstream->free_clients, UINT_MAX);
    poller_clear(&w->downstream->poller);
    free(w->downstream);
    w->downstream = NULL;
}
