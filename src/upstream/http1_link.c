/* http1_link.c - HTTP/1.1 as a server's protocol: a link is a connection. */
#include <assert.h>
#include <errno.h>

#include "net/tls.h"
#include "upstream/upstream_internal.h"

/* ---- request -------------------------------------------------------------------------------- */

/* weir still reads from the server, which may have responded before it closed. */
static enum link_sent broke(struct link *link)
{
    struct stream *s = &link->stream;

    stream_drop_output(s, link->worker->io.buffers);
    stream_want_write(s, false);
    stream_wake(s);
    link->pending = link->keep_alive = false;
    return LINK_BROKEN;
}

/* Records what the stream did with accepted output. */
static enum link_sent accepted(struct link *link, enum sent sent, bool last)
{
    link->request_ended |= last;
    link->pending = sent == SENT_PART;
    if (likely(sent == SENT_ALL && !link->tunnel))
        return LINK_SENT;
    if (sent == SENT_PART)
        return LINK_PENDING;
    if (sent == SENT_FAILED || (link->request_ended && !stream_end(&link->stream)))
        return broke(link);
    return LINK_SENT;
}

static enum link_sent write_body(struct link *link, struct slice head,
                                 const struct content_piece *piece)
{
    link->sent_trailers |= piece->trailers && link->chunked;
    return accepted(link,
                    body_write(&link->stream, link->worker->io.buffers, head, piece, link->chunked),
                    piece->last);
}

static enum link_sent send_head(struct link *link, const struct link_request *request,
                                const struct content_piece *first)
{
    link->method = request->method;
    link->head_max = request->response_head_max;
    link->chunked = request->content == FRAMING_CHUNKED;
    link->request_ended = link->response_begun = link->response_over = false;
    if (first)
        return write_body(link, request->head, first);
    struct iovec all = iovec_of(request->head);
    enum sent sent = stream_send(&link->stream, link->worker->io.buffers, &all, 1);
    return likely(sent == SENT_ALL) ? LINK_SENT : accepted(link, sent, true);
}

static enum link_sent send_body(struct link *link, const struct content_piece *piece)
{
    return write_body(link, SLICE_NONE, piece);
}

void http1_link_writable(struct link *link)
{
    struct link_owner *owner = link->owner;
    enum sent sent = stream_flush(&link->stream, link->worker->io.buffers);

    if (accepted(link, sent, false) == LINK_BROKEN)
        owner->ops->broken(owner);
    else
        owner->ops->writable(owner);
}

/* ---- response: heads ------------------------------------------------------------------------ */

static const char too_large[] = "the response header is larger than size_limits.response_header";

/* Received bytes of a head. */
struct head_bytes {
    struct slice all;
    bool kept; /* in stream.in, else in the worker's receive buffer */
};

static enum link_head receive_head(struct link *link, bool receive, struct head_bytes *got,
                                   const char **why)
{
    struct stream *s = &link->stream;
    ssize_t n;

    got->kept = s->in != NULL;
    if (link->unread) {
        link->unread = false;
        s->drained = false; /* more may have arrived since that read */
        assert(s->in);      /* `unread` implies bytes in s->in */
        got->all = iobuf_slice(s->in);
        return LINK_HEAD;
    }
    if (!receive)
        return LINK_AGAIN;
    if (got->kept)
        n = stream_read_in(s, link->worker->io.buffers, IOBUF_LARGE);
    else
        n = stream_read(s, link->worker->io.receive, IOBUF_READ_MAX);
    if (n == STREAM_AGAIN)
        return LINK_AGAIN;
    if (n <= 0) {
        *why = too_large;
        return got->kept && errno == ENOBUFS && n != 0 ? LINK_BAD : LINK_ENDED;
    }
    got->all = got->kept ? iobuf_slice(s->in) : (struct slice){link->worker->io.receive, (size_t)n};
    return LINK_HEAD;
}

/* Keeps the bytes of an incomplete head. */
static enum link_head keep_head(struct link *link, const struct head_bytes *got)
{
    struct stream *s = &link->stream;

    link->response_begun = true;
    if (got->kept)
        return LINK_AGAIN;
    if (!s->in && !(s->in = iobuf_get(link->worker->io.buffers, IOBUF_LARGE)))
        return LINK_NO_MEMORY;
    iobuf_append(s->in, got->all);
    return LINK_AGAIN;
}

static enum link_head parse_head(struct link *link, const struct head_bytes *got, size_t *size,
                                 struct response_head *head, const char **why)
{
    struct refusal refusal;
    enum scan scan = response_head_read(got->all, &link->scanned, size, head, &refusal);

    if (scan == SCAN_PARTIAL ? got->all.n >= link->head_max : *size > link->head_max) {
        *why = too_large;
        return LINK_BAD;
    }
    if (scan == SCAN_REFUSED) {
        *why = refusal.why;
        return LINK_BAD;
    }
    return scan == SCAN_WHOLE ? LINK_HEAD : keep_head(link, got);
}

/* Removes the head's bytes. The unread bytes after it remain in stream.in or, after a final head,
 * in the receive buffer, where read_body() takes them. */
static enum link_head take_head(struct link *link, const struct head_bytes *got, size_t size,
                                bool final)
{
    struct stream *s = &link->stream;
    size_t rest = got->all.n - size;

    link->scanned = 0;
    link->after_head = 0;
    if (got->kept)
        stream_take(s, link->worker->io.buffers, size);
    else if (final) {
        link->head_end = link->worker->io.receive + size;
        link->after_head = rest;
    } else if (!stream_keep(s, link->worker->io.buffers,
                            (struct slice){link->worker->io.receive + size, rest}))
        return LINK_NO_MEMORY;
    link->unread = !final && iobuf_held(s->in);
    return LINK_HEAD;
}

static enum link_head read_head(struct link *link, bool receive, struct response_head *head,
                                struct framing *framing, const char **why)
{
    struct head_bytes got;
    struct refusal refusal;
    size_t size;
    enum link_head result = receive_head(link, receive, &got, why);

    if (result == LINK_HEAD)
        result = parse_head(link, &got, &size, head, why);
    if (result != LINK_HEAD)
        return result;
    if (likely(head->status >= 200)) {
        if (!response_framing(head, link->method, framing, &refusal)) {
            *why = refusal.why;
            return LINK_BAD;
        }
        link->keep_alive = head->keep_alive && framing->kind != FRAMING_UNTIL_CLOSE;
        body_reader_begin(&link->response, framing);
    }
    return take_head(link, &got, size, head->status >= 200);
}

/* ---- response: content ---------------------------------------------------------------------- */

static void want_read(struct link *link, bool want)
{
    stream_want_read(&link->stream, want);
    if (want && link->unread)
        stream_wake(&link->stream);
}

/* Bytes after the message stay in stream.in; such a connection is not used again. */
static enum body_status read_body(struct link *link, bool receive, struct content_piece *piece,
                                  const char **why)
{
    size_t size = link->after_head;

    link->unread = false;
    if (size) {
        link->after_head = 0;
        return body_read_after_head(&link->response, link->head_end, size, &link->worker->io, piece,
                                    why);
    }
    if (link->response.ended) {
        *piece = (struct content_piece){.last = true};
        return BODY_READ;
    }
    return body_read(&link->response, &link->stream, receive, &link->worker->io, piece, why);
}

static bool consume_body(struct link *link, const struct content_piece *piece)
{
    return body_is_consumed(piece) || body_consume(&link->stream, piece, &link->worker->io);
}

static bool has_input(const struct link *link)
{
    return stream_has_unread(&link->stream);
}

/* An end of stream from the server does not end the request: the server may have closed only its
 * sending side. The connection is not used again. */
static bool takes_rest(struct link *link)
{
    struct stream *s = &link->stream;
    bool first = !link->response_over;

    link->response_over = true;
    link->keep_alive = false;
    if (first && stream_holds_input(s))
        return false;
    if (!first) {
        ssize_t n = stream_read(s, link->worker->io.receive, IOBUF_READ_MAX);
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
    static const struct framing until_close = {.kind = FRAMING_UNTIL_CLOSE};

    link->tunnel = true;
    link->chunked = link->request_ended = link->keep_alive = false;
    body_reader_begin(&link->response, &until_close);
}

static struct link_splice splice(struct link *link)
{
    return (struct link_splice){&link->stream, &link->response};
}

/* ---- end ------------------------------------------------------------------------------------ */

static const char *fault(const struct link *link)
{
    return tls_fault_of(&link->stream);
}

/* A server that reads trailers otherwise than weir could take them for the next request: a
 * connection on which weir has sent some is not used again. */
static void release(struct link *link, bool complete)
{
    body_reader_end(&link->response, link->worker->io.buffers);
    upstream_release(link, complete && link->keep_alive && !link->sent_trailers);
}

const struct link_ops http1_link_ops = {.send_head = send_head,
                                        .send_body = send_body,
                                        .want_read = want_read,
                                        .read_head = read_head,
                                        .read_body = read_body,
                                        .consume_body = consume_body,
                                        .has_input = has_input,
                                        .takes_rest = takes_rest,
                                        .begin_tunnel = begin_tunnel,
                                        .splice = splice,
                                        .spliced = accepted,
                                        .closed_idle = upstream_closed_idle,
                                        .fault = fault,
                                        .release = release};
