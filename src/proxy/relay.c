#include "proxy/relay.h"

#include "proxy/exchange_internal.h"

static enum relay relay_of_status(enum body_status status)
{
    switch (status) {
    case BODY_BAD: return RELAY_BAD;
    case BODY_CLOSED: return RELAY_CLOSED;
    case BODY_READ:
    case BODY_AGAIN: break;
    }
    return RELAY_SOURCE;
}

/* ---- request -------------------------------------------------------------------------------- */

static enum relay relay_of_sent(enum sent sent, bool ended)
{
    if (sent == SENT_FAILED)
        return RELAY_GONE;
    if (ended)
        return RELAY_ENDED;
    return sent == SENT_PART ? RELAY_SINK : RELAY_SOURCE;
}

/* Counts a piece of the request's content. False: it exceeds request.max. */
static bool count_request(struct exchange *x, const struct content_piece *piece)
{
    x->request.bytes += piece->size;
    x->request.ended = piece->last;
    return !x->request.max || x->request.bytes <= x->request.max;
}

/* Content whose length is known is within request.max. */
static bool splice_request(struct exchange *x, enum relay *result)
{
    struct downstream *d = x->downstream;
    struct content_piece moved;
    enum body_status status;
    enum sent sent;

    if (x->request.kind == FRAMING_CHUNKED || !d->ops->splice_body ||
        !d->ops->splice_body(d, &x->link->stream, &status, &sent, &moved))
        return false;
    (void)count_request(x, &moved);
    *result = status == BODY_CLOSED ? RELAY_CLOSED : relay_of_sent(sent, moved.last);
    return true;
}

enum relay relay_request(struct exchange *x, struct slice head, bool receive, const char **why)
{
    struct downstream *d = x->downstream;
    struct iobuf_pool *buffers = &x->worker->buffers;
    struct content_piece piece = {.size = 0};
    enum relay result;

    if (x->request.ended) {
        struct iovec all = iovec_of(head);
        return relay_of_sent(stream_send(&x->link->stream, buffers, &all, 1), true);
    }
    if (receive && splice_request(x, &result))
        return result;
    enum body_status status = d->ops->read_body(d, receive, &piece, why);
    if (status == BODY_READ) {
        if (!count_request(x, &piece))
            return RELAY_TOO_LARGE;
    } else if (status != BODY_AGAIN || head.n == 0)
        return relay_of_status(status);
    enum sent sent =
        body_write(&x->link->stream, buffers, head, (struct slice){piece.bytes, piece.size},
                   piece.last, x->request.kind == FRAMING_CHUNKED);
    /* Also if the link failed: the piece is consumed, and the bytes after it are the next
     * message. */
    if (status == BODY_READ && !d->ops->consume_body(d, &piece))
        return RELAY_NO_MEMORY;
    return relay_of_sent(sent, piece.last);
}

enum relay relay_drop_request(struct exchange *x, const char **why)
{
    struct downstream *d = x->downstream;
    struct content_piece piece;
    enum body_status status = d->ops->read_body(d, true, &piece, why);

    if (status != BODY_READ)
        return relay_of_status(status);
    if (!count_request(x, &piece))
        return RELAY_TOO_LARGE;
    if (!d->ops->consume_body(d, &piece))
        return RELAY_NO_MEMORY;
    return x->request.ended ? RELAY_ENDED : RELAY_SOURCE;
}

/* ---- response ------------------------------------------------------------------------------- */

static enum relay relay_of_downstream(enum downstream_sent sent, bool ended)
{
    switch (sent) {
    case DOWNSTREAM_GONE: return RELAY_GONE;
    case DOWNSTREAM_TOO_LARGE: return RELAY_TOO_LARGE;
    case DOWNSTREAM_PENDING: return ended ? RELAY_ENDED : RELAY_SINK;
    case DOWNSTREAM_SENT: break;
    }
    return ended ? RELAY_ENDED : RELAY_SOURCE;
}

static void note_answer(struct exchange *x)
{
    if (x->response.ended)
        x->answer = ANSWER_ENDED;
}

enum relay relay_response_head(struct exchange *x, const struct response *response,
                               struct unread unread, const char **why)
{
    struct downstream *d = x->downstream;
    struct body_io io = exchange_io(x);
    struct stream *server = &x->link->stream;
    struct content_piece piece = {.last = x->response.ended};
    enum body_status status = BODY_READ;

    if (unread.size)
        status = body_read_after_head(&x->response, unread.bytes, unread.size, &piece, why);
    else if (!x->response.ended && iobuf_held(server->in))
        status = body_read(&x->response, server, false, &io, &piece, why);
    if (status != BODY_READ)
        return relay_of_status(status);
    note_answer(x);
    struct iovec content = {piece.bytes, piece.size};
    enum downstream_sent sent =
        d->ops->send_head(d, response, &content, piece.size > 0, piece.last);
    if (sent == DOWNSTREAM_TOO_LARGE)
        return RELAY_TOO_LARGE;
    if (!body_consume(server, &piece, &io))
        return RELAY_NO_MEMORY;
    return relay_of_downstream(sent, piece.last);
}

enum relay relay_response(struct exchange *x, const char **why)
{
    struct downstream *d = x->downstream;
    struct body_io io = exchange_io(x);
    struct stream *server = &x->link->stream;
    struct content_piece piece;
    enum body_status status;
    enum downstream_sent sent;

    if (x->response.ended)
        return RELAY_ENDED;
    if (d->ops->splice_from && d->ops->splice_from(d, &x->response, server, &status, &sent)) {
        note_answer(x);
        return status == BODY_CLOSED ? RELAY_CLOSED : relay_of_downstream(sent, x->response.ended);
    }
    status = body_read(&x->response, server, true, &io, &piece, why);
    if (status != BODY_READ)
        return relay_of_status(status);
    note_answer(x);
    sent = d->ops->send_body(d, &piece);
    if (!body_consume(server, &piece, &io))
        return RELAY_NO_MEMORY;
    return relay_of_downstream(sent, piece.last);
}
