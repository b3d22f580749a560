/* http1_link.c - HTTP/1.1 as a server's protocol: a link is a connection. */
#include <assert.h>
#include <errno.h>

#include "net/tls.h"
#include "upstream/upstream_internal.h"

enum { FIRST_READ_HIGH = IOBUF_SMALL - 1024 }; /* at MEMORY_HIGH */

static const struct link_ops ops;

static struct connection *of(struct link *link)
{
    return CONTAINER_OF(link, struct connection, link);
}

/* ---- request -------------------------------------------------------------------------------- */

/* weir still reads from the server, which may have responded before it closed. */
static enum link_sent broke(struct connection *c)
{
    struct stream *s = &c->stream;

    stream_drop_output(s, c->link.worker->io.buffers);
    stream_want_write(s, false);
    stream_wake(s);
    c->link.pending = c->keep_alive = false;
    return LINK_BROKEN;
}

/* Records what the stream did with accepted output. */
static enum link_sent note_sent(struct connection *c, enum sent sent, bool last)
{
    c->request_ended |= last;
    c->link.pending = sent == SENT_PART;
    if (sent == SENT_ALL && !c->tunnel)
        return LINK_SENT;
    if (sent == SENT_PART)
        return LINK_PENDING;
    if (sent == SENT_FAILED || (c->request_ended && !stream_end(&c->stream)))
        return broke(c);
    return LINK_SENT;
}

static enum link_sent write_body(struct connection *c, struct slice head,
                                 const struct content_piece *piece)
{
    c->sent_trailers |= piece->trailers && c->chunked;
    return note_sent(c, body_write(&c->stream, c->link.worker->io.buffers, head, piece, c->chunked),
                     piece->last);
}

static enum link_sent send_head(struct link *link, const struct link_request *request,
                                const struct content_piece *first)
{
    struct connection *c = of(link);
    c->method = request->method;
    c->head_max = request->response_head_max;
    c->chunked = request->content == FRAMING_CHUNKED;
    c->link.response_begun = c->request_ended = c->response_over = false;
    if (first)
        return write_body(c, request->head, first);
    struct iovec all = iovec_of(request->head);
    enum sent sent = stream_send(&c->stream, c->link.worker->io.buffers, &all, 1);
    return sent == SENT_ALL ? LINK_SENT : note_sent(c, sent, true);
}

static enum link_sent send_body(struct link *link, const struct content_piece *piece)
{
    return write_body(of(link), SLICE_NONE, piece);
}

static void on_writable(struct connection *c)
{
    struct link_owner *owner = c->link.owner;
    enum sent sent = stream_flush(&c->stream, c->link.worker->io.buffers);

    if (note_sent(c, sent, false) == LINK_BROKEN)
        owner->ops->broken(owner);
    else
        owner->ops->writable(owner);
}

/* ---- response: heads ------------------------------------------------------------------------ */

static const char too_large[] = "the response header is larger than size_limits.response_header";

/* Received bytes of a head. */
struct response_head_bytes {
    struct slice all;
    bool kept; /* in stream.in, else in the worker's receive buffer */
};

/* If the process has many buffers, little content is read with the head, so that what the client
 * does not take fits a small buffer. */
static size_t first_read_max(const struct connection *c)
{
    return c->link.worker->io.buffers->memory.level == MEMORY_LOW ? IOBUF_READ_MAX
                                                                  : FIRST_READ_HIGH;
}

static enum link_head receive_head(struct connection *c, bool receive,
                                   struct response_head_bytes *got, const char **why)
{
    struct stream *s = &c->stream;
    ssize_t n;

    got->kept = s->in != NULL;
    if (c->unread) {
        c->unread = false;
        s->drained = false; /* more may have arrived since that read */
        assert(s->in);      /* `unread` implies bytes in s->in */
        got->all = iobuf_slice(s->in);
        return LINK_HEAD;
    }
    if (!receive)
        return LINK_AGAIN;
    if (got->kept)
        n = stream_read_in(s, c->link.worker->io.buffers, IOBUF_LARGE);
    else
        n = stream_read(s, c->link.worker->io.receive, first_read_max(c));
    if (n == STREAM_AGAIN)
        return LINK_AGAIN;
    if (n <= 0) {
        *why = too_large;
        return got->kept && errno == ENOBUFS && n != 0 ? LINK_BAD : LINK_ENDED;
    }
    got->all =
        got->kept ? iobuf_slice(s->in) : (struct slice){c->link.worker->io.receive, (size_t)n};
    return LINK_HEAD;
}

/* Keeps the bytes of an incomplete head. */
static enum link_head keep_head(struct connection *c, const struct response_head_bytes *got)
{
    struct stream *s = &c->stream;

    c->link.response_begun = true;
    if (got->kept)
        return LINK_AGAIN;
    if (!s->in && !(s->in = iobuf_get(c->link.worker->io.buffers, IOBUF_LARGE)))
        return LINK_NO_MEMORY;
    iobuf_append(s->in, got->all);
    return LINK_AGAIN;
}

static enum link_head parse_head(struct connection *c, const struct response_head_bytes *got,
                                 size_t *size, struct response_head *head, const char **why)
{
    struct refusal refusal;
    enum scan scan = response_head_read(got->all, &c->scanned, size, head, &refusal);

    if (scan == SCAN_PARTIAL ? got->all.n >= c->head_max : *size > c->head_max) {
        *why = too_large;
        return LINK_BAD;
    }
    if (scan == SCAN_REFUSED) {
        *why = refusal.why;
        return LINK_BAD;
    }
    return scan == SCAN_WHOLE ? LINK_HEAD : keep_head(c, got);
}

/* Removes a head from stream.in. Its bytes stay until the end of the loop iteration: they are still
 * to be sent. */
static void take_kept_head(struct connection *c, size_t size)
{
    struct upstream_worker *w = c->link.worker;
    struct stream *s = &c->stream;

    if (size < iobuf_held(s->in)) {
        iobuf_take(s->in, size);
        return;
    }
    iobuf_put(w->io.buffers, &w->last_head);
    w->last_head = s->in;
    s->in = NULL;
}

/* Removes the head's bytes. The unread bytes after it remain in stream.in or, after a final head,
 * in the receive buffer, where read_body() takes them. */
static enum link_head take_head(struct connection *c, const struct response_head_bytes *got,
                                size_t size, bool final)
{
    struct stream *s = &c->stream;
    size_t rest = got->all.n - size;

    c->scanned = 0;
    c->after_head = 0;
    c->link.response_begun = false;
    if (got->kept)
        take_kept_head(c, size);
    else if (final) {
        c->head_end = c->link.worker->io.receive + size;
        c->after_head = rest;
    } else if (!stream_keep(s, c->link.worker->io.buffers,
                            (struct slice){c->link.worker->io.receive + size, rest}))
        return LINK_NO_MEMORY;
    c->unread = !final && iobuf_held(s->in);
    return LINK_HEAD;
}

/* weir stops using an idle connection one second before the server closes it. Otherwise a request
 * could arrive too late. */
static uint64_t idle_max_us(const struct response_head *head)
{
    uint64_t seconds = CONNECTION_IDLE_US / 1000000, stated;

    if (fields_have(&head->fields, FIELD_KEEP_ALIVE)) {
        stated = keep_alive_timeout(&head->fields);
        seconds = stated <= 1 ? 0 : stated - 1 < seconds ? stated - 1 : seconds;
    }
    return seconds * 1000000;
}

static enum link_head read_head(struct link *link, bool receive, struct response_head *head,
                                struct framing *framing, const char **why)
{
    struct connection *c = of(link);
    struct response_head_bytes got;
    struct refusal refusal;
    size_t size;
    enum link_head result = receive_head(c, receive, &got, why);

    if (result == LINK_HEAD)
        result = parse_head(c, &got, &size, head, why);
    if (result != LINK_HEAD)
        return result;
    if (head->status >= 200) {
        if (!response_framing(head, c->method, framing, &refusal)) {
            *why = refusal.why;
            return LINK_BAD;
        }
        c->idle_max_us = idle_max_us(head);
        c->keep_alive =
            head->keep_alive && framing->kind != FRAMING_UNTIL_CLOSE && c->idle_max_us > 0;
        body_reader_begin(&c->response, framing);
    }
    return take_head(c, &got, size, head->status >= 200);
}

/* ---- response: content ---------------------------------------------------------------------- */

static void want_read(struct link *link, bool want)
{
    struct connection *c = of(link);
    stream_want_read(&c->stream, want);
    if (want && c->unread)
        stream_wake(&c->stream);
}

/* Bytes after the message stay in stream.in; such a connection is not used again. */
static enum body_status read_body(struct link *link, bool receive, struct content_piece *piece,
                                  const char **why)
{
    struct connection *c = of(link);
    size_t size = c->after_head;

    c->unread = false;
    if (size) {
        c->after_head = 0;
        return body_read_after_head(&c->response, c->head_end, size, &c->link.worker->io, piece,
                                    why);
    }
    if (c->response.ended) {
        *piece = (struct content_piece){.last = true};
        return BODY_READ;
    }
    return body_read(&c->response, &c->stream, receive, &c->link.worker->io, piece, why);
}

static bool consume_body(struct link *link, const struct content_piece *piece)
{
    struct connection *c = of(link);

    return body_is_consumed(piece) || body_consume(&c->stream, piece, &c->link.worker->io);
}

static bool has_input(const struct link *link)
{
    return stream_has_unread(&CONTAINER_OF(link, const struct connection, link)->stream);
}

/* An end of stream from the server does not end the request: the server may have closed only its
 * sending side. The connection is not used again. */
static bool takes_rest(struct link *link)
{
    struct connection *c = of(link);
    struct stream *s = &c->stream;
    bool first = !c->response_over;

    c->response_over = true;
    c->keep_alive = false;
    if (first && stream_holds_input(s))
        return false;
    if (!first) {
        ssize_t n = stream_read(s, c->link.worker->io.receive, IOBUF_READ_MAX);
        if (n == STREAM_AGAIN)
            return true;
        if (n != 0)
            return false;
    }
    stream_want_read(s, !s->eof);
    return true;
}

static void begin_tunnel(struct link *link)
{
    struct connection *c = of(link);
    static const struct framing until_close = {.kind = FRAMING_UNTIL_CLOSE};

    c->tunnel = true;
    c->chunked = c->request_ended = c->keep_alive = false;
    body_reader_begin(&c->response, &until_close);
}

static struct link_splice splice(struct link *link)
{
    struct connection *c = of(link);

    return (struct link_splice){&c->stream, &c->response};
}

static enum link_sent spliced(struct link *link, enum sent sent, bool last)
{
    return note_sent(of(link), sent, last);
}

/* ---- end ------------------------------------------------------------------------------------ */

static enum link_loss loss(const struct link *link)
{
    return connection_closed_idle(CONTAINER_OF(link, const struct connection, link))
               ? LINK_CLOSED_IDLE
               : LINK_LOST;
}

static const char *fault(const struct link *link)
{
    return tls_fault_of(&CONTAINER_OF(link, const struct connection, link)->stream);
}

static size_t memory(const struct link *link)
{
    const struct connection *c = CONTAINER_OF(link, const struct connection, link);

    return iobuf_memory(c->stream.in) + iobuf_memory(c->stream.out) +
           iobuf_memory(c->response.trailers);
}

/* A server that reads trailers otherwise than weir could take them for the next request: a
 * connection on which weir has sent some is not used again. */
static void release(struct link *link, bool complete)
{
    struct connection *c = of(link);

    body_reader_end(&c->response, link->worker->io.buffers);
    connection_release(c, complete && c->keep_alive && !c->sent_trailers);
}

static const struct link_ops ops = {.send_head = send_head,
                                    .send_body = send_body,
                                    .want_read = want_read,
                                    .read_head = read_head,
                                    .read_body = read_body,
                                    .consume_body = consume_body,
                                    .has_input = has_input,
                                    .takes_rest = takes_rest,
                                    .begin_tunnel = begin_tunnel,
                                    .splice = splice,
                                    .spliced = spliced,
                                    .loss = loss,
                                    .fault = fault,
                                    .memory = memory,
                                    .release = release};

/* ---- the connection -------------------------------------------------------------------------- */

/* A connection without an owner was a probe: it ends the ejection, and waits for a request. */
static void on_up(struct connection *c)
{
    if (c->link.owner) {
        c->link.owner->ops->connected(c->link.owner, &c->link);
        return;
    }
    server_admit(c->link.server, "accepts connections");
    connection_release(c, true);
}

static void on_failed(struct connection *c, struct link_owner *owner, enum link_failure failure)
{
    (void)c;
    if (owner)
        owner->ops->connect_failed(owner, failure);
}

static void on_readable(struct connection *c)
{
    c->link.owner->ops->readable(c->link.owner);
}

static const struct connection_events events = {.up = on_up,
                                                .failed = on_failed,
                                                .readable = on_readable,
                                                .writable = on_writable,
                                                .idle = connection_close};

void http1_adopt(struct connection *c)
{
    c->events = &events;
    c->link.ops = &ops;
    c->idle_max_us = CONNECTION_IDLE_US;
}

static struct connection *dial(struct server *server, struct link_owner *owner)
{
    struct connection *c = connection_dial(
        server,
        &(struct connection_use){.events = &events, .owner = owner, .probe = owner == NULL});

    if (c)
        http1_adopt(c);
    return c;
}

struct link *http1_take(struct server *server, struct link_owner *owner)
{
    struct connection *c = dial(server, owner);

    return c ? &c->link : NULL;
}

bool http1_probe(struct server *server)
{
    struct connection *c = dial(server, NULL);

    if (c && c->state == CONNECTION_BUSY)
        on_up(c);
    return c != NULL;
}
