#include "proxy/client_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/listener.h"
#include "net/tls.h"
#include "proxy/exchange.h"
#include "proxy/proxy_header_reader.h"

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void secure(struct client *c);
static void refuse_handshake(struct client *c);
static void read_head(struct client *c);

/* ---- open and close -------------------------------------------------------------------------- */

static const struct listen_settings *settings_of(const struct client *c)
{
    return &c->worker->policy->listen[c->listener]; /* reloads keep listeners in order */
}

bool client_open(struct worker *w, int fd, const struct address *peer, unsigned listener, bool counted)
{
    struct client *c = w->free_clients;

    if (c)
        w->free_clients = TAILQ_NEXT(c, link);
    else if (!(c = malloc(sizeof *c))) {
        close(fd);
        return false;
    }
    memset(c, 0, sizeof *c);
    MAGIC_SET(c, CLIENT_MAGIC);
    c->worker = w;
    c->listener = (uint16_t)listener;
    c->state = CLIENT_PROXY_HEADER;
    c->counted = counted;
    c->silent = true;
    c->peer = peer_of_address(peer);
    c->opened_ms = c->since_ms = client_now_ms();
    stream_open(&c->stream, &w->client_poller, fd, on_readable, on_writable, c);
    stream_want_read(&c->stream, true);
    client_list_insert(c);
    deadline_arm(&w->queue.head, &c->deadline, clock_us(), w->policy->timeouts.request_header_us);
    counter_add(&w->stats.connections_open, 1);
    if (!settings_of(c)->proxy_protocol)
        secure(c);
    return true;
}

void client_close(struct client *c)
{
    struct worker *w = c->worker;
    struct address peer;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (c->state == CLIENT_CLOSED)
        return;
    client_list_remove(c);
    c->state = CLIENT_CLOSED;
    free(c->draining);
    c->draining = NULL;
    deadline_cancel(&c->deadline);
    stream_close(&c->stream, &w->buffers);
    TAILQ_INSERT_TAIL(&w->closed, c, link);
    counter_subtract(&w->stats.connections_open, 1);
    worker_client_closed(w, c->counted ? address_of_peer(&c->peer, &peer) : NULL);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

static void handshake(struct client *c)
{
    switch (tls_handshake(&c->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE: c->state = CLIENT_HEAD; break;
    case TLS_FAILED: refuse_handshake(c); break;
    }
}

/* Not logged one by one: anybody can cause failed handshakes. */
static void refuse_handshake(struct client *c)
{
    counter_add(&c->worker->stats.tls_handshakes_failed, 1);
    client_close(c);
}

/* Starts the TLS handshake, or request reading on a listener without TLS. */
static void secure(struct client *c)
{
    struct tls_server *tls = settings_of(c)->tls;

    c->state = tls ? CLIENT_HANDSHAKE : CLIENT_HEAD;
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
        c->peer = peer_of_address(&header.source);
    c->peer_unknown = header.source.length == 0 && !header.local;
    if (worker_count_peer(c->worker, address_of_peer(&c->peer, &peer), &c->counted))
        secure(c);
    else
        client_close(c);
}

/* ---- between requests ------------------------------------------------------------------------ */

void client_await_request(struct client *c)
{
    struct worker *w = c->worker;

    c->scanned = 0;
    if (w->stopping || (c->stream.eof && !iobuf_held(c->stream.in))) {
        client_close(c);
        return;
    }
    client_enter(c, CLIENT_IDLE);
    c->since_ms = client_now_ms();
    stream_want_read(&c->stream, !c->stream.eof);
    deadline_arm(&w->queue.idle, &c->deadline, clock_cached_us(), w->policy->timeouts.keepalive_us);
    if (iobuf_held(c->stream.in)) { /* through the event loop: no recursion or starvation */
        c->unread = true;
        stream_wake(&c->stream);
    }
}

void client_exchange_ended(struct client *c, enum client_after after, const struct message_body *request)
{
    static const struct linger reset = {.l_onoff = 1, .l_linger = 0};

    MAGIC_CHECK(c, CLIENT_MAGIC);
    deadline_cancel(&c->deadline);
    if (after == CLIENT_RESET)
        (void)setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    c->stream.cut = after == CLIENT_RESET;
    if (after == CLIENT_RESET || after == CLIENT_CLOSE)
        client_close(c);
    else if (after == CLIENT_LINGER_ON)
        linger_begin(c);
    else if (request->ended)
        client_await_request(c);
    else
        linger_drain(c, request);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Received bytes of a request, in either buffer. */
struct head_bytes {
    struct slice all;
    bool kept; /* in stream.in, else in worker->receive */
};

/* Reads bytes of a head. False: nothing new, or the connection is closed. */
static bool receive(struct client *c, struct head_bytes *got)
{
    struct worker *w = c->worker;
    ssize_t n;

    got->kept = c->stream.in != NULL;
    if (c->unread) {
        c->unread = false;
        assert(c->stream.in); /* `unread` is set only if the buffer has bytes */
        got->all = iobuf_slice(c->stream.in);
        return true;
    }
    if (got->kept)
        n = stream_read_in(&c->stream, &w->buffers, IOBUF_LARGE);
    else
        n = stream_read(&c->stream, w->receive, IOBUF_READ_MAX);
    if (n == STREAM_AGAIN)
        return false;
    if (n <= 0) {
        client_close(c); /* no complete request, so no response is due */
        return false;
    }
    got->all = got->kept ? iobuf_slice(c->stream.in) : (struct slice){w->receive, (size_t)n};
    return true;
}

static void take(struct client *c, struct head_bytes *got, size_t n)
{
    if (got->kept)
        stream_take(&c->stream, &c->worker->buffers, n);
    got->all.p += n;
    got->all.n -= n;
}

/* Keeps an incomplete head until the rest arrives. */
static void keep_part(struct client *c, const struct head_bytes *got)
{
    struct worker *w = c->worker;

    if (c->state == CLIENT_IDLE) {
        client_enter(c, CLIENT_HEAD);
        c->since_ms = client_now_ms();
        deadline_arm(&w->queue.head, &c->deadline, clock_us(), w->policy->timeouts.request_header_us);
    }
    if (got->kept)
        return;
    if (!(c->stream.in = iobuf_get(&w->buffers, IOBUF_LARGE)))
        client_close(c);
    else
        iobuf_append(c->stream.in, got->all);
}

/* Rejects a request. `bytes`: the received part of its head. */
static void refuse(struct client *c, struct slice bytes, enum cause cause, uint16_t status, const char *why)
{
    struct request_line line = request_line_peek(bytes);
    client_enter(c, CLIENT_EXCHANGE);
    exchange_refuse(c, cause, status, why, &line);
}

static void refuse_head(struct client *c, struct slice bytes, const struct refusal *refusal)
{
    enum cause cause = refusal->status == 431   ? CAUSE_HEAD_TOO_LARGE
                       : refusal->status == 414 ? CAUSE_TARGET_TOO_LONG
                                                : CAUSE_BAD_REQUEST;
    refuse(c, bytes, cause, refusal->status, refusal->why);
}

/* RFC 9112 section 3: a target that is too long gets 414, any other oversized head 431. */
static void refuse_size(struct client *c, struct slice bytes)
{
    size_t max = c->worker->policy->size_limits.request_header;
    bool in_target = memchr(bytes.p, '\n', bytes.n < max ? bytes.n : max) == NULL;
    enum cause cause = in_target ? CAUSE_TARGET_TOO_LONG : CAUSE_HEAD_TOO_LARGE;
    refuse(c, bytes, cause, cause_status[cause], "see size_limits.request_header");
}

/* Uses a complete head in place, without copying it. */
static void use_head(struct client *c, struct head_bytes *got, struct request_head *head)
{
    struct worker *w = c->worker;
    struct framing framing;
    struct refusal refusal;
    size_t size = head->whole.n;
    struct slice rest = {got->all.p + size, got->all.n - size};

    if (!request_framing(head, &framing, &refusal)) {
        refuse_head(c, got->all, &refusal);
        return;
    }
    if (got->kept) /* the bytes stay valid until the next read, which is after use */
        c->stream.in->start += (uint32_t)size;
    else if (!stream_keep(&c->stream, &w->buffers, rest)) {
        client_close(c);
        return;
    }
    client_enter(c, CLIENT_EXCHANGE);
    deadline_cancel(&c->deadline);
    c->scanned = 0;
    exchange_begin(c, head, &framing);
    if (c->stream.in && !iobuf_held(c->stream.in))
        iobuf_put(&w->buffers, &c->stream.in);
}

static void read_head(struct client *c)
{
    struct head_bytes got;
    struct refusal refusal;
    struct request_head *head = &c->worker->request;
    size_t size, seen = c->scanned, max = c->worker->policy->size_limits.request_header;

    if (!receive(c, &got))
        return;
    if (c->scanned == 0)
        take(c, &got, request_skip_empty_line(got.all));
    if (got.all.n == 0)
        return;
    enum scan scan = request_head_read(got.all, &seen, &size, head, &refusal);
    c->scanned = (uint32_t)seen;
    if (scan == SCAN_PARTIAL ? got.all.n >= max : size > max)
        refuse_size(c, got.all);
    else if (scan == SCAN_REFUSED)
        refuse_head(c, got.all, &refusal);
    else if (scan == SCAN_PARTIAL)
        keep_part(c, &got);
    else
        use_head(c, &got, head);
}

/* ---- events and deadlines -------------------------------------------------------------------- */

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    (void)fd;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (unlikely(c->silent))
        client_speaks(c);
    switch (c->state) {
    case CLIENT_PROXY_HEADER: read_proxy_header(c); break;
    case CLIENT_HANDSHAKE: handshake(c); break;
    case CLIENT_IDLE:
    case CLIENT_HEAD: read_head(c); break;
    case CLIENT_EXCHANGE:
        if (what & EV_CLOSED)
            exchange_client_left(c->exchange);
        else
            exchange_client_readable(c->exchange);
        break;
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
    if (c->state == CLIENT_EXCHANGE)
        exchange_client_writable(c->exchange);
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
    else if (iobuf_held(c->stream.in))
        refuse(c, iobuf_slice(c->stream.in), CAUSE_HEAD_TIMEOUT, cause_status[CAUSE_HEAD_TIMEOUT], NULL);
    else
        client_close(c); /* no bytes were received */
}

/* Returns whether input has arrived in time, and rearms the deadline. On a busy machine the
 * deadline may fire before timely input is read. */
static bool in_time(struct client *c, struct deadline_queue *queue, uint64_t after_us)
{
    if (!stream_has_input(&c->stream))
        return false;
    deadline_arm(queue, &c->deadline, clock_us(), after_us);
    return true;
}

static void content_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    if (!in_time(c, &c->worker->queue.content, c->worker->policy->timeouts.request_body_us))
        exchange_client_timed_out(c->exchange, CAUSE_CONTENT_TIMEOUT);
}

static void idle_passed(struct deadline *deadline)
{
    struct client *c = of_deadline(deadline);
    if (!in_time(c, &c->worker->queue.idle, c->worker->policy->timeouts.keepalive_us))
        client_close(c);
}

static void write_passed(struct deadline *deadline)
{
    exchange_client_timed_out(of_deadline(deadline)->exchange, CAUSE_CLIENT_STALLED);
}

static void tunnel_passed(struct deadline *deadline)
{
    exchange_tunnel_ended(of_deadline(deadline)->exchange);
}

void clients_init(struct worker *w)
{
    TAILQ_INIT(&w->clients);
    TAILQ_INIT(&w->silent);
    TAILQ_INIT(&w->heads);
    TAILQ_INIT(&w->idle);
    TAILQ_INIT(&w->closed);
    linger_init(w);
    deadline_queue_init(&w->deadlines, &w->queue.head, head_passed);
    deadline_queue_init(&w->deadlines, &w->queue.content, content_passed);
    deadline_queue_init(&w->deadlines, &w->queue.write, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.idle, idle_passed);
    deadline_queue_init(&w->deadlines, &w->queue.tunnel, tunnel_passed);
    deadline_queue_init(&w->deadlines, &w->queue.exchange, exchange_overdue);
}
