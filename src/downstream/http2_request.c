/* http2_request.c - the downstream of one HTTP/2 stream: its begin and end, and the request.
 *
 * Content that arrives while the exchange reads is passed on from the connection's receive buffer.
 * Otherwise it is stored, at most a window of it; weir returns window as the exchange consumes. */
#include <stdlib.h>

#include "downstream/http2_internal.h"
#include "http/head.h"
#include "http/trailers.h"
#include "proxy/exchange.h"

enum {
    PIECE_MAX = 32 * 1024, /* of content, with the head before it, in an upstream's buffer */
    READ_FIRST_US = 10000  /* in which input that has arrived is read */
};

static const struct downstream_ops ops;

struct http2_request *http2_request_of(struct downstream *d)
{
    struct http2_request *r = CONTAINER_OF(d, struct http2_request, downstream);
    MAGIC_CHECK(r, HTTP2_REQUEST_MAGIC);
    return r;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static struct http2_request *request_new(struct http2_stream *stream)
{
    struct http2_client *connection = http2_session_context(http2_stream_session(stream));
    struct client *c = &connection->client->client;
    struct http2_request *r = free_list_take(&connection->shared->free_requests);

    if (!r && !(r = malloc(sizeof *r)))
        return NULL;
    memset(r, 0, sizeof *r);
    MAGIC_SET(r, HTTP2_REQUEST_MAGIC);
    r->downstream = (struct downstream){.ops = &ops, .worker = c->worker, .origin = &c->origin};
    r->connection = connection;
    r->stream = stream;
    TAILQ_INSERT_TAIL(&connection->requests, r, link);
    http2_stream_set_user(stream, r);
    /* The connection is idle from its end on, even if that is in this loop iteration. The time for
     * output that waits for the client runs on. */
    client_enter(c, CLIENT_EXCHANGE);
    if (c->deadline.queue != &connection->shared->unsent)
        deadline_cancel(&c->deadline);
    return r;
}

static void unready(struct http2_request *r)
{
    if (r->is_ready)
        TAILQ_REMOVE(&r->connection->ready, r, ready);
    r->is_ready = false;
}

/* Returns the connection's window for content of a closed stream. */
static void return_window(struct http2_request *r, size_t size)
{
    if (size > r->kept)
        size = r->kept;
    r->kept -= size;
    http2_session_consume(r->connection->session, size);
}

/* Takes the request from its connection. It is freed after the loop iteration. */
static void request_end(struct http2_request *r)
{
    struct worker *w = r->downstream.worker;

    unready(r);
    return_window(r, r->kept);
    for (struct iobuf *in; (in = r->in_first);) {
        r->in_first = in->next_free;
        iobuf_put(&w->buffers, &in);
    }
    iobuf_put(&w->buffers, &r->out);
    iobuf_put(&w->buffers, &r->in_trailers);
    iobuf_put(&w->buffers, &r->out_trailers);
    r->ended = true;
    r->stream = NULL;
    TAILQ_REMOVE(&r->connection->requests, r, link);
    TAILQ_INSERT_TAIL(&r->connection->shared->ended, r, link);
    http2_touch(r->connection);
}

static void end(struct downstream *d, enum downstream_end how)
{
    struct http2_request *r = http2_request_of(d);
    struct http2_stream *stream = r->stream;
    struct client *c = &r->connection->client->client;

    if (stream) {
        if (how == DOWNSTREAM_ABORTED)
            http2_reset(stream);
        http2_stream_detach(stream);
    }
    request_end(r);
    if (client_gives_way(c) && !r->connection->lost)
        c->protocol->stop(c);
}

/* HPACK: without the rest of the header section, no further one can be decoded. The rest may have
 * arrived while weir read nothing, because output waited for the client. */
void http2_head_timed_out(struct client *client)
{
    struct worker *w = client->worker;

    if (socket_client_has_input(client)) {
        deadline_arm(&w->downstream->queue.head, &client->deadline, clock_us(), READ_FIRST_US);
        return;
    }
    if (TAILQ_EMPTY(&socket_client_of(client)->http2->requests))
        counter_add(&w->stats.errors[CAUSE_HEAD_TIMEOUT], 1);
    client->protocol->cut(client, CAUSE_HEAD_TIMEOUT);
}

bool http2_awaits_servers(const struct http2_client *connection)
{
    const struct http2_request *r;

    TAILQ_FOREACH (r, &connection->requests, link)
        if (r->stream)
            return false;
    return !TAILQ_EMPTY(&connection->requests);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t memory_of(const struct http2_request *r)
{
    size_t size = iobuf_memory(r->out) + iobuf_memory(r->in_trailers) +
                  iobuf_memory(r->out_trailers) + exchange_memory(r->downstream.exchange);

    for (const struct iobuf *in = r->in_first; in; in = in->next_free)
        size += iobuf_memory(in);
    return size;
}

size_t http2_memory(const struct client *client, uint64_t now_us, uint64_t *still_us)
{
    const struct socket_client *c = socket_client_of(client);
    size_t size = socket_client_buffers(c);

    for (const struct http2_request *r = TAILQ_FIRST(&c->http2->requests); r;
         r = TAILQ_NEXT(r, link)) {
        size_t held = memory_of(r);
        uint64_t still = held ? exchange_still_us(r->downstream.exchange, now_us) : 0;
        size += held;
        *still_us = still > *still_us ? still : *still_us;
    }
    return size;
}

unsigned http2_shed(struct client *client)
{
    struct socket_client *c = socket_client_of(client);
    unsigned count = 0;

    for (struct http2_request *r = TAILQ_FIRST(&c->http2->requests), *next; r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (memory_of(r) == 0)
            continue;
        exchange_cut(r->downstream.exchange, CAUSE_MEMORY_LIMIT);
        count++;
    }
    if (stream_holds_output(&c->stream))
        client_close(client);
    return count;
}

/* ---- request --------------------------------------------------------------------------------- */

/* Returns whether exchange_body_ready() is due. */
static bool is_report_due(const struct http2_request *r)
{
    bool end = r->body_ended || !r->stream;
    return r->wants_body && (r->in_first || r->arriving.n || (end && !r->end_read));
}

static void make_ready(struct http2_request *r)
{
    if (!is_report_due(r) || r->is_ready)
        return;
    r->is_ready = true;
    TAILQ_INSERT_TAIL(&r->connection->ready, r, ready);
    http2_touch(r->connection);
}

void http2_report_ready(struct http2_client *connection)
{
    struct http2_request *last = TAILQ_LAST(&connection->ready, http2_requests), *r;
    bool at_last = false;

    while (!at_last && (r = TAILQ_FIRST(&connection->ready))) {
        at_last = r == last;
        unready(r);
        if (is_report_due(r))
            exchange_body_ready(r->downstream.exchange);
    }
}

static void want_body(struct downstream *d, bool want)
{
    struct http2_request *r = http2_request_of(d);

    r->wants_body = want;
    if (want)
        make_ready(r);
}

static enum body_status read_trailers(struct http2_request *r, struct content_piece *piece,
                                      const char **why)
{
    struct fields *trailers = &r->downstream.worker->trailers;

    if (!trailers_parse(iobuf_slice(r->in_trailers), trailers, why))
        return BODY_BAD;
    trailers->never_indexed = r->in_never_indexed;
    piece->trailers = trailers_any(trailers) ? trailers : NULL;
    return BODY_READ;
}

static enum body_status read_body(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **why)
{
    struct http2_request *r = http2_request_of(d);
    struct slice bytes = r->in_first ? iobuf_slice(r->in_first) : r->arriving;
    size_t n = bytes.n < PIECE_MAX ? bytes.n : PIECE_MAX;
    bool more = n < bytes.n || (r->in_first && (r->in_first->next_free || r->arriving.n));
    (void)receive;

    if (n || r->body_ended) {
        *piece = (struct content_piece){
            .bytes = (char *)(uintptr_t)bytes.p, .size = n, .last = r->body_ended && !more};
        r->end_read = piece->last;
        return piece->last && r->in_trailers ? read_trailers(r, piece, why) : BODY_READ;
    }
    return r->stream ? BODY_AGAIN : BODY_CLOSED;
}

static bool consume_body(struct downstream *d, const struct content_piece *piece)
{
    struct http2_request *r = http2_request_of(d);
    struct iobuf *first = r->in_first;

    if (piece->size == 0)
        return true;
    if (!first) {
        r->arriving.p += piece->size;
        r->arriving.n -= piece->size;
    } else {
        iobuf_take(first, piece->size);
        if (iobuf_held(first) == 0) {
            r->in_first = first->next_free;
            iobuf_put(&d->worker->buffers, &first);
        }
    }
    if (r->stream)
        http2_consume(r->stream, piece->size);
    else
        return_window(r, piece->size);
    http2_touch(r->connection);
    return true;
}

static bool has_input(const struct downstream *d)
{
    const struct http2_request *r = CONTAINER_OF(d, const struct http2_request, downstream);
    return r->in_first || r->body_ended || stream_has_input(&r->connection->client->stream);
}

/* Stores content that the exchange does not read now. */
static bool store_in(struct http2_request *r, struct slice bytes)
{
    while (bytes.n) {
        if (!r->in_first || iobuf_room(r->in_last) == 0) {
            struct iobuf *next = iobuf_get(&r->downstream.worker->buffers, bytes.n);
            if (!next)
                return false;
            next->next_free = NULL;
            if (r->in_first)
                r->in_last->next_free = next;
            else
                r->in_first = next;
            r->in_last = next;
        }
        size_t n = bytes.n < iobuf_room(r->in_last) ? bytes.n : iobuf_room(r->in_last);
        iobuf_append(r->in_last, (struct slice){bytes.p, n});
        bytes.p += n;
        bytes.n -= n;
    }
    return true;
}

/* ---- events of the session ------------------------------------------------------------------- */

static void refuse_stream(struct http2_stream *stream, uint16_t status, const char *why,
                          struct slice text)
{
    struct http2_request *r = request_new(stream);
    struct request_line line = request_line_peek(text);
    enum cause cause = status == 431 ? CAUSE_HEAD_TOO_LARGE : CAUSE_BAD_REQUEST;

    if (r) {
        if (exchange_refuse(&r->downstream, cause, status, why, &line))
            return;
        request_end(r);
    }
    http2_reset(stream);
    http2_stream_detach(stream);
}

void http2_on_refused(struct http2_stream *stream, const struct refusal *refusal, struct slice text)
{
    refuse_stream(stream, refusal->status, refusal->why, text);
}

void http2_on_request(struct http2_stream *stream, struct request_head *head,
                      const struct framing *framing)
{
    const struct http2_client *connection = http2_session_context(http2_stream_session(stream));
    struct http2_request *r;

    if (head->whole.n > connection->client->client.worker->policy->size_limits.request_header) {
        refuse_stream(stream, 431, "see size_limits.request_header", head->whole);
        return;
    }
    if ((r = request_new(stream))) {
        r->body_ended = r->end_read = framing->kind == FRAMING_NONE;
        if (exchange_begin(&r->downstream, head, framing))
            return;
        request_end(r);
    }
    http2_reset(stream);
    http2_stream_detach(stream);
}

void http2_on_content(struct http2_stream *stream, struct slice bytes)
{
    struct http2_request *r = http2_stream_user(stream);

    if (!r->in_first && r->wants_body) {
        r->arriving = bytes;
        exchange_body_ready(r->downstream.exchange);
        bytes = r->arriving;
        r->arriving = SLICE_NONE;
    }
    if (r->ended)
        return;
    if (!store_in(r, bytes))
        exchange_cut(r->downstream.exchange, CAUSE_NO_MEMORY);
    else
        make_ready(r);
}

void http2_on_content_end(struct http2_stream *stream, struct slice trailers)
{
    struct http2_request *r = http2_stream_user(stream);
    struct iobuf_pool *buffers = &r->downstream.worker->buffers;

    if (trailers.n && !(r->in_trailers = iobuf_get(buffers, trailers.n))) {
        exchange_cut(r->downstream.exchange, CAUSE_NO_MEMORY);
        return;
    }
    if (trailers.n)
        iobuf_append(r->in_trailers, trailers);
    r->in_never_indexed = http2_trailers_never_indexed(stream);
    r->body_ended = true;
    /* At once: a decision that follows goes to Redis in this loop iteration. */
    if (is_report_due(r) && !r->is_ready)
        exchange_body_ready(r->downstream.exchange);
}

/* The client has reset the stream, or weir has because the client has violated the protocol. Or it
 * is complete, and the server has not read all of the request: the client could otherwise open any
 * number of streams whose content is stored. */
void http2_on_closed(struct http2_stream *stream, bool complete)
{
    struct http2_request *r = http2_stream_user(stream);

    r->kept = http2_stream_keep_content(stream);
    r->stream = NULL;
    if (!complete)
        exchange_client_gone(r->downstream.exchange);
    else if (r->downstream.pending) {
        r->downstream.pending = false;
        exchange_writable(r->downstream.exchange);
    }
}

static const struct downstream_ops ops = {.send_head = http2_request_send_head,
                                          .send_image = http2_request_send_image,
                                          .send_interim = http2_request_send_interim,
                                          .send_body = http2_request_send_body,
                                          .takes = http2_request_takes,
                                          .want_body = want_body,
                                          .read_body = read_body,
                                          .consume_body = consume_body,
                                          .has_input = has_input,
                                          .taken = http2_request_taken,
                                          .end = end};
