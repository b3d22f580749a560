/* opening.c - the start of a connection on a socket: PROXY protocol header and TLS handshake, if
 * its listener uses them. The deadline of the first request's head covers both. */
#include <stdlib.h>
#include <unistd.h>

#include "downstream/http2.h"
#include "downstream/peer_counts.h"
#include "downstream/proxy_header_reader.h"
#include "downstream/socket_client.h"
#include "net/tls.h"

static const struct listen_settings *settings_of(const struct socket_client *c)
{
    return &c->client.worker->policy->listen[c->listener]; /* reloads keep listeners in order */
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Not logged one by one: anybody can cause failed handshakes. */
static void refuse_handshake(struct socket_client *c)
{
    counter_add(&c->client.worker->stats.tls_handshakes_failed, 1);
    if (c->stream.layer && tls_end_for_plain_http(&c->stream)) {
        c->client.origin.secure = false;
        socket_client_use(c, &http1_protocol);
        http1_refuse(c, "plain HTTP was sent to a TLS port; use https://");
    } else
        client_close(&c->client);
}

static void handshake(struct socket_client *c)
{
    switch (tls_handshake(&c->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE:
        if (tls_chose_http2(&c->stream))
            http2_begin(c, SLICE_NONE);
        else
            socket_client_use(c, &http1_protocol);
        break;
    case TLS_FAILED: refuse_handshake(c); break;
    }
}

/* Starts the TLS handshake, or requests reading on a listener without TLS. */
static void secure(struct socket_client *c)
{
    struct tls_server *tls = settings_of(c)->tls;

    c->client.origin.secure = tls != NULL;
    if (tls && !tls_accept(&c->stream, tls)) {
        refuse_handshake(c);
        return;
    }
    if (!tls) {
        c->may_be_http2 = settings_of(c)->http2;
        socket_client_use(c, &http1_protocol);
    }
    stream_want_read(&c->stream, true);
}

/* ---- PROXY protocol header ------------------------------------------------------------------- */

static void refuse_proxy_header(struct socket_client *c)
{
    counter_add(&c->client.worker->stats.proxy_headers_refused, 1);
    client_close(&c->client);
}

static void read_proxy_header(struct socket_client *c)
{
    struct client_origin *origin = &c->client.origin;
    struct worker *w = c->client.worker;
    struct proxy_header header;
    struct address peer;

    switch (proxy_header_receive(&c->stream, &w->buffers, &header)) {
    case RECEIVE_PARTIAL: return;
    case RECEIVE_BAD: refuse_proxy_header(c); return;
    case RECEIVE_CLOSED: client_close(&c->client); return;
    case RECEIVE_WHOLE: break;
    }
    if (header.source.length)
        origin->peer = peer_of_address(&header.source);
    origin->peer_unknown = header.source.length == 0 && !header.local;
    if (peer_count(w, address_of_peer(&origin->peer, &peer), &c->client.counted))
        secure(c);
    else
        client_close(&c->client);
}

/* ---- the protocol ---------------------------------------------------------------------------- */

/* During the handshake the stream has a layer. */
static void readable(struct socket_client *c, bool closed)
{
    (void)closed;
    if (c->stream.layer)
        handshake(c);
    else
        read_proxy_header(c);
}

static void timed_out(struct client *client)
{
    struct socket_client *c = socket_client_of(client);

    if (c->stream.layer)
        refuse_handshake(c);
    else
        refuse_proxy_header(c);
}

static const struct socket_protocol opening = {.client = {.has_input = socket_client_has_input,
                                                          .head_timed_out = timed_out,
                                                          .stop = socket_client_stop,
                                                          .memory = socket_client_memory,
                                                          .shed = socket_client_shed,
                                                          .end = socket_client_end,
                                                          .free = socket_client_free},
                                               .readable = readable};

bool socket_client_open(struct worker *w, int fd, const struct address *peer, unsigned listener,
                        bool counted)
{
    struct socket_client *c = free_list_take(&w->downstream->free_clients);

    if (!c && !(c = malloc(sizeof *c))) {
        close(fd);
        return false;
    }
    memset(c, 0, sizeof *c);
    socket_client_use(c, &opening);
    client_begin(&c->client, w, peer, counted);
    c->downstream =
        (struct downstream){.ops = &http1_ops, .worker = w, .origin = &c->client.origin};
    c->listener = (uint16_t)listener;
    c->client.origin.decides = settings_of(c)->decides;
    socket_client_watch(c, fd);
    if (!settings_of(c)->proxy_protocol)
        secure(c);
    return true;
}
