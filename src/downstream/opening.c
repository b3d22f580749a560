/* opening.c - the start of a connection on a socket: PROXY protocol header and TLS handshake, if
 * its listener uses them. The deadline of the first request's head covers both. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "downstream/http2.h"
#include "downstream/peer_counts.h"
#include "downstream/socket_client.h"
#include "net/tls.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns false if the process has no memory left for it (size_limits.memory). */
static bool take_memory(struct socket_client *c)
{
    struct buffer_memory *memory = &c->client.worker->buffers.memory;

    if (c->in_handshake)
        return true;
    if (!memory_has_room(memory))
        return false;
    memory_take(memory, TLS_HANDSHAKE_BYTES);
    c->in_handshake = true;
    return true;
}

static void give_memory(struct socket_client *c)
{
    if (c->in_handshake)
        memory_give(&c->client.worker->buffers.memory, TLS_HANDSHAKE_BYTES);
    c->in_handshake = false;
}

static size_t memory_of(const struct client *client, uint64_t now_us, uint64_t *still_us)
{
    size_t buffers = socket_client_memory(client, now_us, still_us);
    return buffers + (socket_client_of(client)->in_handshake ? TLS_HANDSHAKE_BYTES : 0);
}

static void end_client(struct client *client)
{
    give_memory(socket_client_of(client));
    socket_client_end(client);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Failures with a remedy are logged. */
static void report_failure(struct socket_client *c, enum tls_failure failure, const char *subject)
{
    struct worker *w = c->client.worker;
    struct address peer;

    counter_add(&w->stats.tls_handshakes_failed, 1);
    counter_add(counter_table_row(&w->stats.handshake_failures, c->listener) + failure, 1);
    tls_failure_log(w->downstream->tls_throttle, failure,
                    address_of_peer(&c->client.origin.peer, &peer),
                    &socket_client_listener(c)->address, subject);
}

static void refuse_handshake(struct socket_client *c)
{
    const char *subject;
    enum tls_failure failure = tls_accept_failure(&c->stream, &subject);

    if (tls_end_for_plain_http(&c->stream)) {
        report_failure(c, TLS_FAILURE_PLAIN_HTTP, NULL);
        c->client.origin.secure = false;
        socket_client_use(c, &http1_protocol);
        http1_refuse(c, "plain HTTP was sent to a TLS port; use https://");
        return;
    }
    report_failure(c, failure, subject);
    if (tls_failure_table[failure].remedy) {
        /* The client has sent or will send a request after its certificate, and must receive the
         * alert. */
        tls_end(&c->stream);
        linger_begin(c, UINT64_MAX);
    } else
        client_close(&c->client);
}

static void fail_handshake(struct socket_client *c, enum tls_failure failure)
{
    report_failure(c, failure, NULL);
    client_close(&c->client);
}

static void handshake_done(struct socket_client *c)
{
    struct client_origin *origin = &c->client.origin;
    bool has;

    origin->certificate = tls_client_certificate(&c->stream, &has);
    if (has && (!origin->certificate || !client_await_expiry(&c->client)))
        fail_handshake(c, TLS_FAILURE_OTHER);
    else if (c->client.ends) /* it was verified by files that are not valid any more */
        client_close(&c->client);
    else if (tls_chose_http2(&c->stream))
        http2_begin(c, SLICE_NONE);
    else
        socket_client_use(c, &http1_protocol);
}

/* The client has closed or reset a connection without a byte, as checks of ports do. */
static bool has_left(const struct socket_client *c)
{
    char byte;
    ssize_t n = recv(c->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void handshake(struct socket_client *c)
{
    if (!c->in_handshake && has_left(c)) {
        fail_handshake(c, TLS_FAILURE_CLOSED);
        return;
    }
    if (!c->in_handshake &&
        !peer_may_handshake(c->client.worker, c->listener, &c->client.origin.peer)) {
        fail_handshake(c, TLS_FAILURE_TOO_MANY);
        return;
    }
    if (!take_memory(c)) {
        fail_handshake(c, TLS_FAILURE_MEMORY);
        return;
    }
    enum tls_handshake state = tls_handshake(&c->stream);
    if (state != TLS_AGAIN)
        give_memory(c);
    switch (state) {
    case TLS_AGAIN: break;
    case TLS_DONE: handshake_done(c); break;
    case TLS_FAILED: refuse_handshake(c); break;
    }
}

/* Starts the TLS handshake, or requests reading on a listener without TLS. */
static void begin_handshake(struct socket_client *c)
{
    struct tls_server *tls = listen_tls_server(socket_client_listener(c)->tls);

    c->client.origin.secure = tls != NULL;
    if (tls && !tls_accept(&c->stream, tls)) {
        fail_handshake(c, TLS_FAILURE_OTHER);
        return;
    }
    if (!tls) {
        c->may_be_http2 = socket_client_listener(c)->http2;
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
        client_origin_set_peer(origin, &header.source);
    origin->peer_unknown = header.source.length == 0 && !header.local;
    if (peer_count(w, address_of_peer(&origin->peer, &peer), &c->client.counted))
        begin_handshake(c);
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
        fail_handshake(c, TLS_FAILURE_TIMEOUT);
    else
        refuse_proxy_header(c);
}

/* The process has no memory: size_limits.memory. */
static unsigned shed(struct client *client)
{
    struct socket_client *c = socket_client_of(client);

    if (c->in_handshake)
        report_failure(c, TLS_FAILURE_MEMORY, NULL);
    return socket_client_shed(client);
}

static const struct socket_protocol opening = {.client = {.has_input = socket_client_has_input,
                                                          .head_timed_out = timed_out,
                                                          .stop = socket_client_stop,
                                                          .memory = memory_of,
                                                          .shed = shed,
                                                          .is_verified = socket_client_is_verified,
                                                          .end = end_client,
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
    c->client.origin.decides = socket_client_listener(c)->decides;
    c->client.origin.serves_limits = socket_client_listener(c)->serves_limits;
    socket_client_watch(c, fd);
    if (!socket_client_listener(c)->proxy_protocol)
        begin_handshake(c);
    return true;
}
