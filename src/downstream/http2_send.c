/* http2_send.c - the response of one HTTP/2 stream: fields and content into the session.
 *
 * Content that the session does not take (the client's window or the output buffer is full) is
 * stored, at most one piece; `pending` is set meanwhile. */
#include <assert.h>

#include "downstream/http2_internal.h"
#include "http/trailers.h"
#include "proxy/exchange.h"

enum {
    PUSH_AT = IOBUF_READ_MAX / 2, /* output held for which weir writes before the iteration ends */
    FIELDS_MAX = HTTP2_SENT_FIELDS_MAX /* as many are too many */
};

/* Collects the fields of a response: those of the server, then those of weir. */
static unsigned collect_fields(const struct response *response, struct http2_field *fields)
{
    struct slice lines = response->lines;
    unsigned count = 0;

    for (unsigned i = 0; response->fields && i < response->fields->count && count < FIELDS_MAX;
         i++) {
        const struct field *field = &response->fields->at[i];
        if (!field->hop_by_hop && !(response->dropped >> field->id & 1))
            fields[count++] = (struct http2_field){field->name, field->value};
    }
    while (count < FIELDS_MAX &&
           response_next_line(&lines, &fields[count].name, &fields[count].value))
        count++;
    return count;
}

static uint64_t never_indexed(const struct response *response)
{
    return response->fields ? response->fields->never_indexed : 0;
}

/* Stores what the session has not taken. */
static bool store_out(struct http2_request *r, struct slice rest, bool last)
{
    struct iobuf_pool *buffers = &r->downstream.worker->buffers;

    r->downstream.pending = true;
    r->out_last = last;
    return iobuf_store(buffers, &r->out, rest);
}

/* Stores trailers that the session has not taken. */
static bool store_trailers(struct http2_request *r, const struct fields *trailers)
{
    char bytes[TRAILERS_TEXT_MAX + 2];
    struct text lines = text_over(bytes, sizeof bytes);

    r->out_never_indexed = trailers->never_indexed;
    trailers_write(&lines, trailers);
    text_literal(&lines, "\r\n");
    if (lines.failed || !(r->out_trailers = iobuf_get(&r->downstream.worker->buffers, lines.n)))
        return false;
    iobuf_append(r->out_trailers, text_slice(&lines));
    return true;
}

static void count_sent(struct http2_request *r, size_t size)
{
    r->content_sent += size;
    r->connection->content_sent += size;
}

uint64_t http2_request_taken(const struct downstream *d, bool exactly)
{
    const struct http2_request *r = CONTAINER_OF(d, const struct http2_request, downstream);
    const struct stream *stream = &r->connection->client->stream;

    if (!stream_holds_output(stream))
        return r->content_sent;
    return exactly ? stream_taken(stream) : stream->sent;
}

/* Hands content to the session; stores the rest. `trailers`: only with `last`; NULL: none. */
static enum downstream_sent send_content(struct http2_request *r, struct slice content, bool last,
                                         const struct fields *trailers)
{
    bool waits = r->downstream.pending;
    size_t taken = waits ? 0 : http2_send_content(r->stream, content, last && !trailers);

    assert(taken <= content.n);
    count_sent(r, taken);
    http2_touch(r->connection);
    if (taken == content.n && !waits && (!trailers || http2_send_trailers(r->stream, trailers)))
        return DOWNSTREAM_SENT;
    struct slice rest = taken ? (struct slice){content.p + taken, content.n - taken} : content;
    if (!store_out(r, rest, last) || (trailers && !store_trailers(r, trailers)))
        return DOWNSTREAM_GONE;
    return DOWNSTREAM_PENDING;
}

static enum downstream_sent send_pieces(struct http2_request *r, const struct iovec *content,
                                        int count, bool last, const struct fields *trailers)
{
    enum downstream_sent sent = DOWNSTREAM_SENT;

    for (int i = 0; i < count && sent != DOWNSTREAM_GONE; i++) {
        bool ends = last && i == count - 1;
        sent = send_content(r, (struct slice){content[i].iov_base, content[i].iov_len}, ends,
                            ends ? trailers : NULL);
    }
    return sent;
}

bool http2_push(struct http2_client *connection)
{
    struct socket_client *c = connection->client;
    enum sent sent = stream_flush(&c->stream, &c->client.worker->buffers);

    if (sent == SENT_PART)
        stream_want_write(&c->stream, true);
    connection->lost |= sent == SENT_FAILED;
    return sent == SENT_ALL;
}

/* Writes early if much output is held, so that the buffer has room for other streams. */
static void push_if_much(struct http2_client *connection)
{
    if (iobuf_held(connection->client->stream.out) >= PUSH_AT)
        (void)http2_push(connection);
}

enum downstream_sent http2_request_send_head(struct downstream *d, const struct response *response,
                                             const struct iovec *content, int count, bool last)
{
    struct http2_request *r = http2_request_of(d);
    struct http2_field fields[FIELDS_MAX];
    bool empty = last && count == 0 && !response->trailers;

    if (!r->stream || r->connection->lost)
        return DOWNSTREAM_GONE;
    for (int i = 0; i < count && last && !response->trailers; i++)
        empty = empty || (count == 1 && content[i].iov_len == 0);
    http2_touch(r->connection);
    if (response->image)
        response_image_store(response->image, RESPONSE_IMAGE_BARE, response->lines, 0, response,
                             content, count);
    if (!http2_send_head(r->stream, response->status, fields, collect_fields(response, fields),
                         never_indexed(response), empty))
        return DOWNSTREAM_TOO_LARGE;
    if (empty)
        return DOWNSTREAM_SENT;
    push_if_much(r->connection);
    if (count == 0 && last)
        return send_content(r, SLICE_NONE, true, response->trailers);
    return send_pieces(r, content, count, last, response->trailers);
}

bool http2_request_send_image(struct downstream *d, const struct response_image *image,
                              enum downstream_sent *sent)
{
    struct response response = {.status = image->status,
                                .lines = {image->bytes + image->lines_at, image->lines}};
    struct iovec content =
        iovec_of((struct slice){image->bytes + image->content_at, image->content});

    *sent = http2_request_send_head(d, &response, &content, 1, true);
    return true;
}

enum downstream_sent http2_request_send_interim(struct downstream *d,
                                                const struct response *response)
{
    struct http2_request *r = http2_request_of(d);
    struct http2_field fields[FIELDS_MAX];

    if (!r->stream || r->connection->lost)
        return DOWNSTREAM_GONE;
    http2_touch(r->connection);
    return http2_send_interim(r->stream, response->status, fields, collect_fields(response, fields),
                              never_indexed(response))
               ? DOWNSTREAM_SENT
               : DOWNSTREAM_GONE;
}

enum downstream_sent http2_request_send_body(struct downstream *d,
                                             const struct content_piece *piece)
{
    struct http2_request *r = http2_request_of(d);

    if (!r->stream || r->connection->lost)
        return DOWNSTREAM_GONE;
    push_if_much(r->connection);
    return send_content(r, (struct slice){piece->bytes, piece->size}, piece->last, piece->trailers);
}

bool http2_request_takes(struct downstream *d)
{
    struct http2_request *r = http2_request_of(d);

    if (!r->stream || r->connection->lost || http2_takes_content(r->stream))
        return true;
    d->pending = true;
    http2_touch(r->connection);
    return false;
}

/* Returns whether the session has taken the stored trailers, or there are none. */
static bool send_stored_trailers(struct http2_request *r)
{
    struct fields *trailers = &r->downstream.worker->trailers;
    const char *why;

    if (r->out_trailers && trailers_parse(iobuf_slice(r->out_trailers), trailers, &why)) {
        trailers->never_indexed = r->out_never_indexed;
        if (!http2_send_trailers(r->stream, trailers))
            return false;
    }
    iobuf_put(&r->downstream.worker->buffers, &r->out_trailers);
    return true;
}

void http2_on_writable(struct http2_stream *stream)
{
    struct http2_request *r = http2_stream_user(stream);
    struct iobuf_pool *buffers = &r->downstream.worker->buffers;
    struct slice rest = r->out ? iobuf_slice(r->out) : SLICE_NONE;
    size_t taken = http2_send_content(stream, rest, r->out_last && !r->out_trailers);

    count_sent(r, taken);
    if (r->out && taken)
        iobuf_take(r->out, taken);
    if (taken == rest.n) {
        iobuf_put(buffers, &r->out);
        r->downstream.pending = !send_stored_trailers(r);
    }
    if (taken || !r->downstream.pending)
        exchange_writable(r->downstream.exchange);
}
