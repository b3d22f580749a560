#include "proxy/client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/listener.h"
#include "net/tls.h"
#include "proxy/exchange.h"
#include "proxy/preface.h"

enum {
    CLIENT_MAGIC = 0x434c4954,
    LINGER_US = 2 * 1000000, /* how long a closing connection is read, so that a reset does not eat the answer
                                (RFC 9112 section 9.6) */
    LINGER_BYTES = 1024 * 1024, /* and how much */
    DRAIN_BYTES = 256 * 1024,   /* the most content that is read after an early answer to keep a connection */
    IDLE_MIN_MS =
        200, /* before that a connection is not closed to make room: its next request may be on its way */
    TURN_MS = 1000,    /* and so long it is served while others wait for a place */
    EVICTION_LOOKS = 8 /* connections that are asked, to make room, whether a request waits in them */
};

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);
static void secure(struct client *c);
static void refuse_handshake(struct client *c);
static void read_head(struct client *c);
static void drain(struct client *c, bool readable);

static struct relay_means means_of(struct client *c)
{
    return (struct relay_means){&c->worker->buffers, c->worker->receive};
}

/* Moves the connection between the worker's two lists as well: those that are idle, and the others. */
static void enter(struct client *c, enum client_state state)
{
    struct worker *w = c->worker;
    bool was_idle = c->state == CLIENT_IDLE, is_idle = state == CLIENT_IDLE;

    c->state = state;
    if (was_idle == is_idle)
        return;
    if (is_idle) {
        TAILQ_REMOVE(&w->clients, c, link);
        TAILQ_INSERT_TAIL(&w->idle, c, link);
    } else {
        TAILQ_REMOVE(&w->idle, c, link);
        TAILQ_INSERT_TAIL(&w->clients, c, link);
    }
}

/* ---- open and close ---------------------------------------------------------------------------------- */

static uint32_t now_ms(void)
{
    return (uint32_t)(clock_turn_us() / 1000);
}

static const struct listen_settings *settings_of(const struct client *c)
{
    return &c->worker->policy->listen[c->listener]; /* a reload keeps the listeners and their order */
}

bool client_open(struct worker *w, int fd, const struct address *peer, unsigned listener)
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
    c->state = CLIENT_PREFACE;
    c->counted = !settings_of(c)->proxy_protocol;
    c->peer = peer_of_address(peer);
    c->opened_ms = now_ms();
    stream_open(&c->stream, w->base, fd, on_readable, on_writable, c);
    stream_want_read(&c->stream, true);
    TAILQ_INSERT_TAIL(&w->clients, c, link);
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
    if (c->state == CLIENT_IDLE)
        TAILQ_REMOVE(&w->idle, c, link);
    else
        TAILQ_REMOVE(&w->clients, c, link);
    c->state = CLIENT_CLOSED;
    free(c->draining);
    c->draining = NULL;
    deadline_cancel(&c->deadline);
    stream_close(&c->stream, &w->buffers);
    TAILQ_INSERT_TAIL(&w->graveyard, c, link);
    counter_subtract(&w->stats.connections_open, 1);
    worker_client_closed(w, c->counted ? address_of_peer(&c->peer, &peer) : NULL);
}

/* Sends the rest of what the kernel holds, then reads until the client has closed: a close with unread input
 * would be a reset, and a reset may destroy the answer on its way (RFC 9112 section 9.6). */
static void linger(struct client *c)
{
    enter(c, CLIENT_LINGER);
    c->dropped = 0;
    iobuf_put(&c->worker->buffers, &c->stream.in);
    if (c->stream.eof || !stream_end(&c->stream)) {
        client_close(c);
        return;
    }
    stream_want_read(&c->stream, true);
    deadline_arm(&c->worker->queue.linger, &c->deadline, clock_us(), LINGER_US);
}

static void read_and_forget(struct client *c)
{
    ssize_t n = stream_read(&c->stream, c->worker->receive, IOBUF_READ_MAX);
    if (n > 0)
        c->dropped += (uint32_t)n;
    if ((n <= 0 && n != STREAM_AGAIN) || c->dropped > LINGER_BYTES)
        client_close(c);
}

/* ---- TLS --------------------------------------------------------------------------------------------- */

static void handshake(struct client *c)
{
    switch (tls_handshake(&c->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE: c->state = CLIENT_HEAD; break;
    case TLS_FAILED: refuse_handshake(c); break;
    }
}

/* Not a line each in the log: anybody can bring them about. */
static void refuse_handshake(struct client *c)
{
    counter_add(&c->worker->stats.tls_handshakes_failed, 1);
    client_close(c);
}

/* It is known who connects: on with the handshake, or at once with requests. */
static void secure(struct client *c)
{
    struct tls_server *tls = settings_of(c)->tls;

    c->state = tls ? CLIENT_HANDSHAKE : CLIENT_HEAD;
    if (tls && !tls_accept(&c->stream, tls))
        refuse_handshake(c);
    else
        stream_want_read(&c->stream, true);
}

/* ---- whom a proxy names ------------------------------------------------------------------------------- */

static void refuse_preface(struct client *c)
{
    counter_add(&c->worker->stats.proxy_headers_refused, 1);
    client_close(c);
}

/* The head's deadline goes on: it is one for the header and the first request's head. */
static void read_preface(struct client *c)
{
    struct proxy_header header;
    struct address peer;

    switch (preface_receive(&c->stream, &c->worker->buffers, &header)) {
    case PREFACE_PARTIAL: return;
    case PREFACE_BAD: refuse_preface(c); return;
    case PREFACE_CLOSED: client_close(c); return;
    case PREFACE_WHOLE: break;
    }
    if (header.source.length)
        c->peer = peer_of_address(&header.source);
    if (worker_count_peer(c->worker, address_of_peer(&c->peer, &peer))) {
        c->counted = true;
        secure(c);
    } else
        client_close(c);
}

/* ---- between requests -------------------------------------------------------------------------------- */

static void await_request(struct client *c)
{
    struct worker *w = c->worker;

    c->scanned = 0;
    if (w->stopping || (c->stream.eof && !iobuf_held(c->stream.in))) {
        client_close(c);
        return;
    }
    enter(c, CLIENT_IDLE);
    c->idle_ms = now_ms();
    stream_want_read(&c->stream, !c->stream.eof);
    deadline_arm(&w->queue.idle, &c->deadline, clock_turn_us(), w->policy->timeouts.idle_us);
    if (iobuf_held(c->stream.in)) { /* a pipelined request: through the loop, so that nobody is starved and
                                       nothing recurses */
        c->unread = true;
        stream_wake(&c->stream);
    }
}

/* `request` has not ended: what is left of its content comes first. */
static void drain_rest(struct client *c, const struct half *request)
{
    if (!(c->draining = malloc(sizeof *c->draining))) {
        client_close(c);
        return;
    }
    enter(c, CLIENT_DRAIN);
    *c->draining = *request;
    c->draining->max = 0;
    c->dropped = 0;
    deadline_arm(&c->worker->queue.drain, &c->deadline, clock_us(),
                 c->worker->policy->timeouts.request_body_us);
    stream_want_read(&c->stream, true);
    drain(c, false);
}

void client_exchange_ended(struct client *c, enum client_after after, const struct half *request)
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
        linger(c);
    else if (request->ended)
        await_request(c);
    else
        drain_rest(c, request);
}

/* Reads what is left of a request's content after an early answer: it must never be taken for a request. */
static void drain(struct client *c, bool readable)
{
    struct relay_means means = means_of(c);
    const char *why;
    uint64_t before = c->draining->bytes;
    enum relay moved = relay_drop(c->draining, &c->stream, readable, &means, &why);

    c->dropped += (uint32_t)(c->draining->bytes - before);
    if (moved == RELAY_ENDED) {
        free(c->draining);
        c->draining = NULL;
        await_request(c);
    } else if (moved != RELAY_SOURCE)
        client_close(c);
    else if (c->dropped > DRAIN_BYTES)
        linger(c);
}

/* ---- heads ------------------------------------------------------------------------------------------- */

/* A request's bytes, wherever they lie. */
struct head_bytes {
    struct slice all;
    bool kept; /* in stream.in, else in worker->receive */
};

/* False: nothing new, or the connection is closed. */
static bool receive(struct client *c, struct head_bytes *got)
{
    struct worker *w = c->worker;
    ssize_t n;

    got->kept = c->stream.in != NULL;
    if (c->unread) {
        c->unread = false;
        assert(c->stream.in); /* whoever sets `unread` has seen bytes there */
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
        client_close(c); /* between requests, or with half a head: nobody waits for an answer */
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

/* Part of a head is kept until the rest comes. */
static void keep_part(struct client *c, const struct head_bytes *got)
{
    struct worker *w = c->worker;

    if (c->state == CLIENT_IDLE) {
        enter(c, CLIENT_HEAD);
        deadline_arm(&w->queue.head, &c->deadline, clock_us(), w->policy->timeouts.request_header_us);
    }
    if (got->kept)
        return;
    if (!(c->stream.in = iobuf_get(&w->buffers, IOBUF_LARGE)))
        client_close(c);
    else
        iobuf_append(c->stream.in, got->all);
}

static void refuse(struct client *c, enum cause cause, uint16_t status, const char *why)
{
    enter(c, CLIENT_EXCHANGE);
    iobuf_put(&c->worker->buffers, &c->stream.in);
    exchange_refuse(c, cause, status, why);
}

static void refuse_head(struct client *c, const struct refusal *refusal)
{
    enum cause cause = refusal->status == 431   ? CAUSE_HEAD_TOO_LARGE
                       : refusal->status == 414 ? CAUSE_TARGET_TOO_LONG
                                                : CAUSE_BAD_REQUEST;
    refuse(c, cause, refusal->status, refusal->why);
}

/* RFC 9112 section 3: a target too long is 414, anything else too long in a head 431. */
static void refuse_size(struct client *c, struct slice bytes)
{
    size_t max = c->worker->policy->size_limits.request_header;
    bool in_target = memchr(bytes.p, '\n', bytes.n < max ? bytes.n : max) == NULL;
    enum cause cause = in_target ? CAUSE_TARGET_TOO_LONG : CAUSE_HEAD_TOO_LARGE;
    refuse(c, cause, cause_status[cause], "see size_limits.request_header");
}

/* A whole head: read where it lies, used at once, then gone. */
static void use_head(struct client *c, struct head_bytes *got, const struct request_head *head)
{
    struct worker *w = c->worker;
    struct framing framing;
    struct refusal refusal;
    size_t size = head->whole.n;
    struct slice rest = {got->all.p + size, got->all.n - size};

    if (!request_framing(head, &framing, &refusal)) {
        refuse_head(c, &refusal);
        return;
    }
    if (got->kept) /* the bytes stay where they are until somebody reads into the buffer again: not before the
                      head was used */
        c->stream.in->start += (uint32_t)size;
    else if (!stream_keep(&c->stream, &w->buffers, rest)) {
        client_close(c);
        return;
    }
    enter(c, CLIENT_EXCHANGE);
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
        refuse_head(c, &refusal);
    else if (scan == SCAN_PARTIAL)
        keep_part(c, &got);
    else
        use_head(c, &got, head);
}

/* ---- events and deadlines ---------------------------------------------------------------------------- */

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct client *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(c, CLIENT_MAGIC);
    switch (c->state) {
    case CLIENT_PREFACE: read_preface(c); break;
    case CLIENT_HANDSHAKE: handshake(c); break;
    case CLIENT_IDLE:
    case CLIENT_HEAD: read_head(c); break;
    case CLIENT_EXCHANGE: exchange_client_readable(c->exchange); break;
    case CLIENT_DRAIN: drain(c, true); break;
    case CLIENT_LINGER: read_and_forget(c); break;
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
    if (c->state == CLIENT_PREFACE)
        refuse_preface(c);
    else if (c->state == CLIENT_HANDSHAKE)
        refuse_handshake(c);
    else if (iobuf_held(c->stream.in))
        refuse(c, CAUSE_HEAD_TIMEOUT, cause_status[CAUSE_HEAD_TIMEOUT], NULL);
    else
        client_close(c); /* it connected and sent nothing */
}

/* Where the machine is busy a deadline may be seen before what has come in time is read. */
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
    if (!in_time(c, &c->worker->queue.idle, c->worker->policy->timeouts.idle_us))
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

static void close_passed(struct deadline *deadline)
{
    client_close(of_deadline(deadline));
}

void clients_init(struct worker *w)
{
    TAILQ_INIT(&w->clients);
    TAILQ_INIT(&w->idle);
    TAILQ_INIT(&w->graveyard);
    deadline_queue_init(&w->deadlines, &w->queue.head, head_passed);
    deadline_queue_init(&w->deadlines, &w->queue.content, content_passed);
    deadline_queue_init(&w->deadlines, &w->queue.write, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.idle, idle_passed);
    deadline_queue_init(&w->deadlines, &w->queue.linger, close_passed);
    deadline_queue_init(&w->deadlines, &w->queue.drain, close_passed);
    deadline_queue_init(&w->deadlines, &w->queue.tunnel, tunnel_passed);
    deadline_queue_init(&w->deadlines, &w->queue.exchange, exchange_overdue);
}

/* ---- all of them ------------------------------------------------------------------------------------- */

/* A request that is there already is served: only connections with nothing to read close. */
static void close_unless_asking(struct client *c)
{
    if (!stream_has_input(&c->stream))
        client_close(c);
}

void clients_stop(struct worker *w)
{
    struct client *c, *next;

    for (c = TAILQ_FIRST(&w->idle); c; c = next) {
        next = TAILQ_NEXT(c, link);
        close_unless_asking(c);
    }
    for (c = TAILQ_FIRST(&w->clients); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->state <= CLIENT_HEAD)
            close_unless_asking(c);
    }
}

void clients_cut(struct worker *w)
{
    for (struct client *c; (c = TAILQ_FIRST(&w->clients));) {
        if (c->state == CLIENT_EXCHANGE)
            exchange_cut(c->exchange, CAUSE_SHUTDOWN);
        else
            client_close(c);
    }
    for (struct client *c; (c = TAILQ_FIRST(&w->idle));)
        client_close(c);
}

/* One whose next request has come, to weir or to the kernel, is idle in name only. Those are served in this
 * turn or the next, so a few are looked at and not all. */
struct client *clients_idle_longest(const struct worker *w)
{
    struct client *c = TAILQ_FIRST(&w->idle);

    for (unsigned i = 0; c && stream_has_input(&c->stream); i++)
        c = i < EVICTION_LOOKS ? TAILQ_NEXT(c, link) : NULL;
    return c && now_ms() - c->idle_ms >= IDLE_MIN_MS ? c : NULL;
}

bool client_gives_way(const struct client *c)
{
    return unlikely(c->worker->crowded) && now_ms() - c->opened_ms >= TURN_MS;
}

void client_evict(struct client *c)
{
    counter_add(&c->worker->stats.connections_evicted, 1);
    client_close(c);
}

void clients_bury(struct worker *w)
{
    for (struct client *c; (c = TAILQ_FIRST(&w->graveyard));) {
        TAILQ_REMOVE(&w->graveyard, c, link);
        MAGIC_WIPE(c);
        TAILQ_NEXT(c, link) = w->free_clients;
        w->free_clients = c;
    }
}

void clients_free(struct worker *w)
{
    clients_bury(w);
    for (struct client *c; (c = w->free_clients);) {
        w->free_clients = TAILQ_NEXT(c, link);
        free(c);
    }
}
