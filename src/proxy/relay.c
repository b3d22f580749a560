#include "proxy/relay.h"
#include "proxy/added_usage.h"

#include "http/trailers.h"
#include "proxy/exchange_state.h"
#include "proxy/response_cost.h"

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

static enum relay relay_of_link(enum link_sent sent, bool ended)
{
    if (sent == LINK_BROKEN)
        return RELAY_GONE;
    if (ended)
        return RELAY_ENDED;
    return sent == LINK_PENDING ? RELAY_SINK : RELAY_SOURCE;
}

/* Drops trailers that the policy reads in request headers, whatever they are in trailers. */
static void sort_trailers(struct exchange *x, struct content_piece *piece)
{
    if (!piece->trailers)
        return;
    policy_sort_trailers(x->policy, piece->trailers);
    if (!trailers_any(piece->trailers))
        piece->trailers = NULL;
}

/* Counts a piece of the request's content. False: it exceeds request.max. */
static bool count_request(struct exchange *x, const struct content_piece *piece)
{
    x->request.bytes += piece->size;
    if (piece->last)
        x->request.progress = MESSAGE_END;
    return !x->request.max || x->request.bytes <= x->request.max;
}

/* The request may be sent again after its content was sent (retry.c). */
static bool may_be_repeated(const struct exchange *x)
{
    return x->upstream.link->ops->refuses || method_is_idempotent(x->request.method);
}

/* Keeps a piece for a retry, if all pieces before it are kept. */
static void keep_request(struct exchange *x, const struct content_piece *piece)
{
    struct iobuf_pool *buffers = &x->worker->buffers;
    bool kept_before = iobuf_held(x->request.kept) + piece->size == x->request.bytes;

    x->request.trailers |= piece->trailers != NULL;
    if (!kept_before || !x->request.head || !may_be_repeated(x))
        return;
    if (x->request.bytes > KEPT_CONTENT_MAX ||
        !iobuf_store(buffers, &x->request.kept, (struct slice){piece->bytes, piece->size}))
        iobuf_put(buffers, &x->request.kept);
    x->request.forwarded = iobuf_held(x->request.kept);
}

/* Content whose length is known is within request.max. */
static bool splice_request(struct exchange *x, enum relay *result)
{
    struct downstream *d = x->downstream;
    struct link *link = x->upstream.link;
    struct content_piece moved;
    enum body_status status;
    enum sent sent;

    if (x->request.kind == FRAMING_CHUNKED || !d->ops->splice_body || !link->ops->splice ||
        !d->ops->splice_body(d, link->ops->splice(link).stream, &status, &sent, &moved))
        return false;
    (void)count_request(x, &moved);
    iobuf_put(&x->worker->buffers, &x->request.kept); /* is no longer all content */
    x->request.forwarded = 0;
    enum link_sent result_of_link = link->ops->spliced(link, sent, moved.last);
    *result = status == BODY_CLOSED ? RELAY_CLOSED : relay_of_link(result_of_link, moved.last);
    return true;
}

/* Returns the next piece of what is kept: at most one read. It counts as forwarded. */
static struct content_piece next_kept(struct exchange *x)
{
    size_t left = iobuf_held(x->request.kept) - x->request.forwarded;
    struct content_piece piece = {.size = left < IOBUF_READ_MAX ? left : IOBUF_READ_MAX};

    if (piece.size)
        piece.bytes = x->request.kept->bytes + x->request.kept->start + x->request.forwarded;
    x->request.forwarded += piece.size;
    piece.last = x->request.progress == MESSAGE_END && !relay_has_kept(x);
    return piece;
}

/* Sends the head and the content that was read in CONTENT or for an earlier try. */
static enum relay send_again(struct exchange *x, const struct link_request *request)
{
    x->request.forwarded = 0;
    struct content_piece piece = next_kept(x);
    return relay_of_link(x->upstream.link->ops->send_head(x->upstream.link, request, &piece),
                         piece.last);
}

enum relay relay_request_head(struct exchange *x, const char **why)
{
    struct downstream *d = x->downstream;
    struct link_request request = {.head = iobuf_slice(x->request.head),
                                   .method = x->request.method,
                                   .content = x->request.kind,
                                   .never_indexed = x->request.never_indexed,
                                   .response_head_max = x->policy->size_limits.response_header};
    struct content_piece piece;

    if (x->request.kind == FRAMING_NONE)
        return relay_of_link(x->upstream.link->ops->send_head(x->upstream.link, &request, NULL),
                             true);
    if (x->request.bytes || x->request.progress == MESSAGE_END)
        return send_again(x, &request);
    enum body_status status = d->ops->read_body(d, false, &piece, why);
    if (status == BODY_AGAIN)
        piece = (struct content_piece){.size = 0};
    else if (status != BODY_READ)
        return relay_of_status(status);
    else if (!count_request(x, &piece))
        return RELAY_TOO_LARGE;
    sort_trailers(x, &piece);
    keep_request(x, &piece);
    enum link_sent sent = x->upstream.link->ops->send_head(x->upstream.link, &request, &piece);
    if (status == BODY_READ && !d->ops->consume_body(d, &piece))
        return RELAY_NO_MEMORY;
    return relay_of_link(sent, piece.last);
}

/* Sends the next piece of what was read in CONTENT. */
static enum relay send_kept(struct exchange *x)
{
    struct content_piece piece = next_kept(x);
    enum link_sent sent = x->upstream.link->ops->send_body(x->upstream.link, &piece);

    if (!x->request.head && x->request.forwarded == iobuf_held(x->request.kept))
        iobuf_put(&x->worker->buffers, &x->request.kept); /* no retry needs it */
    return relay_of_link(sent, piece.last);
}

/* Sends the piece that was read ahead, in CONTENT. */
static enum relay send_ahead(struct exchange *x)
{
    struct slice bytes = iobuf_slice(x->request.ahead);
    struct content_piece piece = {.bytes = x->request.ahead->bytes + x->request.ahead->start,
                                  .size = bytes.n,
                                  .last = x->request.progress == MESSAGE_END};
    enum link_sent sent = x->upstream.link->ops->send_body(x->upstream.link, &piece);

    iobuf_put(&x->worker->buffers, &x->request.ahead);
    return relay_of_link(sent, piece.last);
}

enum relay relay_request(struct exchange *x, const char **why)
{
    struct downstream *d = x->downstream;
    struct content_piece piece;
    enum relay result;

    if (relay_has_kept(x))
        return x->request.forwarded < iobuf_held(x->request.kept) ? send_kept(x) : send_ahead(x);
    if (splice_request(x, &result))
        return result;
    enum body_status status = d->ops->read_body(d, true, &piece, why);
    if (status != BODY_READ)
        return relay_of_status(status);
    if (!count_request(x, &piece))
        return RELAY_TOO_LARGE;
    sort_trailers(x, &piece);
    keep_request(x, &piece);
    enum link_sent sent = x->upstream.link->ops->send_body(x->upstream.link, &piece);
    if (!d->ops->consume_body(d, &piece))
        return RELAY_NO_MEMORY;
    return relay_of_link(sent, piece.last);
}

enum relay relay_keep_request(struct exchange *x, size_t most, const char **why)
{
    struct downstream *d = x->downstream;
    struct content_piece piece;
    enum body_status status = d->ops->read_body(d, true, &piece, why);

    if (status != BODY_READ)
        return relay_of_status(status);
    if (!count_request(x, &piece))
        return RELAY_TOO_LARGE;
    sort_trailers(x, &piece);
    x->request.trailers |= piece.trailers != NULL;
    struct iobuf **to =
        iobuf_held(x->request.kept) + piece.size <= most ? &x->request.kept : &x->request.ahead;
    bool stored =
        iobuf_store_up_to(&x->worker->buffers, to, (struct slice){piece.bytes, piece.size},
                          most > IOBUF_LARGE ? most : IOBUF_LARGE);
    if (!d->ops->consume_body(d, &piece) || !stored)
        return RELAY_NO_MEMORY;
    return x->request.progress == MESSAGE_END || x->request.ahead ? RELAY_ENDED : RELAY_SOURCE;
}

enum relay relay_drop_request(struct exchange *x, const char **why)
{
    struct downstream *d = x->downstream;
    struct content_piece piece;
    enum body_status status = d->ops->read_body(d, true, &piece, why);

    if (status != BODY_READ)
        return relay_of_status(status);
    (void)count_request(x, &piece);
    if (!d->ops->consume_body(d, &piece))
        return RELAY_NO_MEMORY;
    return x->request.progress == MESSAGE_END ? RELAY_ENDED : RELAY_SOURCE;
}

/* ---- response ------------------------------------------------------------------------------- */

/* The client does not get the end of the response, even if its last piece was read. */
static enum relay response_cut(struct exchange *x, enum relay why)
{
    x->response.progress = MESSAGE_CONTENT;
    return why;
}

static enum relay relay_of_downstream(struct exchange *x, enum downstream_sent sent, bool ended)
{
    switch (sent) {
    case DOWNSTREAM_GONE: return response_cut(x, RELAY_GONE);
    case DOWNSTREAM_TOO_LARGE: return RELAY_TOO_LARGE;
    case DOWNSTREAM_PENDING: return ended ? RELAY_ENDED : RELAY_SINK;
    case DOWNSTREAM_SENT: break;
    }
    return ended ? RELAY_ENDED : RELAY_SOURCE;
}

/* Counts a piece of the response's content. */
static void count_response(struct exchange *x, const struct content_piece *piece)
{
    x->response.bytes += piece->size;
    if (piece->last)
        x->response.progress = MESSAGE_END;
    if (x->grpc && piece->trailers)
        x->record.grpc_status = grpc_status_of(piece->trailers);
}

/* Nothing was sent to the client: weir can still respond itself. */
static enum relay unsent(struct exchange *x, enum relay why)
{
    x->response.progress = MESSAGE_HEAD;
    x->response.bytes = 0;
    x->record.status = 0;
    return why;
}

enum relay relay_response_head(struct exchange *x, struct response *response, const char **why)
{
    struct downstream *d = x->downstream;
    struct content_piece piece;
    enum body_status status =
        x->upstream.link->ops->read_body(x->upstream.link, false, &piece, why);

    if (status == BODY_AGAIN)
        piece = (struct content_piece){.size = 0};
    else if (status != BODY_READ)
        return unsent(x, relay_of_status(status));
    count_response(x, &piece);
    response->trailers = piece.trailers;
    struct content_piece out = piece;
    struct iobuf *room = NULL;
    if (added_usage_removes(x) && !added_usage_remove(x, &piece, &out, &room))
        return unsent(x, RELAY_NO_MEMORY);
    struct iovec content = {out.bytes, out.size};
    enum downstream_sent sent = d->ops->send_head(d, response, &content, out.size > 0, out.last);
    if (room)
        iobuf_put(&x->worker->buffers, &room);
    if (sent == DOWNSTREAM_TOO_LARGE)
        return unsent(x, RELAY_TOO_LARGE);
    if (response_cost_reads(x))
        response_cost_read(x, &piece);
    enum relay moved = relay_of_downstream(x, sent, piece.last);
    return x->upstream.link->ops->consume_body(x->upstream.link, &piece) ? moved : RELAY_NO_MEMORY;
}

static bool splice_response(struct exchange *x, enum relay *result)
{
    struct downstream *d = x->downstream;
    struct link_splice from;
    enum body_status status;
    enum downstream_sent sent;

    if (!d->ops->splice_from || !x->upstream.link->ops->splice || response_cost_reads(x) ||
        added_usage_removes(x))
        return false;
    from = x->upstream.link->ops->splice(x->upstream.link);
    uint64_t before = from.reader->bytes;
    if (!d->ops->splice_from(d, from.reader, from.stream, &status, &sent))
        return false;
    count_response(x, &(struct content_piece){.size = (size_t)(from.reader->bytes - before),
                                              .last = from.reader->ended});
    *result =
        status == BODY_CLOSED ? RELAY_CLOSED : relay_of_downstream(x, sent, from.reader->ended);
    return true;
}

/* Sends a piece, without the event that weir removes. False: no memory. */
static bool send_response(struct exchange *x, const struct content_piece *piece,
                          enum downstream_sent *sent)
{
    struct downstream *d = x->downstream;
    struct content_piece out;
    struct iobuf *room;

    if (!added_usage_removes(x)) {
        *sent = d->ops->send_body(d, piece);
        return true;
    }
    if (!added_usage_remove(x, piece, &out, &room))
        return false;
    *sent = out.size || out.last ? d->ops->send_body(d, &out) : DOWNSTREAM_SENT;
    iobuf_put(&x->worker->buffers, &room);
    return true;
}

enum relay relay_response(struct exchange *x, const char **why)
{
    struct content_piece piece;
    enum relay result;

    if (x->response.progress == MESSAGE_END)
        return RELAY_ENDED;
    if (splice_response(x, &result))
        return result;
    enum body_status status = x->upstream.link->ops->read_body(x->upstream.link, true, &piece, why);
    if (status != BODY_READ)
        return relay_of_status(status);
    count_response(x, &piece);
    if (response_cost_reads(x))
        response_cost_read(x, &piece);
    enum downstream_sent sent;
    if (!send_response(x, &piece, &sent))
        return response_cut(x, RELAY_NO_MEMORY);
    enum relay moved = relay_of_downstream(x, sent, piece.last);
    return x->upstream.link->ops->consume_body(x->upstream.link, &piece) ? moved : RELAY_NO_MEMORY;
}
