/* http1.c - HTTP/1.1 as a client's protocol: the downstream of the one request that a connection
 * has under way. Request heads are read in http1_head.c. */
#include <errno.h>
#include <sys/socket.h>

#include "downstream/socket_client.h"
#include "http/rewrite.h"
#include "proxy/exchange.h"

enum {
    DRAIN_KEEP_MAX = IOBUF_READ_MAX /* at most this much content is read to keep the connection */
};

static struct socket_client *client_of(const struct downstream *d)
{
    struct socket_client *c = CONTAINER_OF(d, struct socket_client, downstream);
    MAGIC_CHECK(&c->client, CLIENT_MAGIC);
    return c;
}

static struct body_io io_of(struct socket_client *c)
{
    return (struct body_io){&c->client.worker->buffers, c->client.worker->receive,
                            &c->client.worker->trailers};
}

/* ---- response ------------------------------------------------------------------------------- */

/* Records what the stream did with accepted output. */
static enum downstream_sent note_sent(struct socket_client *c, enum sent sent, bool last)
{
    struct http1 *h = &c->http1;

    h->response_ended |= last;
    c->downstream.pending = stream_holds_output(&c->stream);
    if (sent == SENT_ALL)
        stream_want_write(&c->stream, false); /* wanted by takes() */
    if (sent == SENT_FAILED)
        return DOWNSTREAM_GONE;
    if (sent == SENT_PART)
        return DOWNSTREAM_PENDING;
    return h->tunnel && last && !stream_end(&c->stream) ? DOWNSTREAM_GONE : DOWNSTREAM_SENT;
}

/* The client still waits for 100 (Continue). If it gets a final response instead, it may or may not
 * send its content. */
static bool rest_may_come(const struct socket_client *c)
{
    return !c->http1.request.ended && exchange_awaits_continue(c->downstream.exchange);
}

/* Reads chunked content of which nothing was read, if all of it is in stream.in. The bytes stay
 * there until end(): the head may be in the same buffer. */
static bool read_held_content(struct socket_client *c)
{
    struct body_reader *request = &c->http1.request;
    struct body_io io = {&c->client.worker->buffers, c->client.worker->receive, NULL};
    struct content_piece piece;
    const char *why;

    if (request->kind != FRAMING_CHUNKED || request->bytes > 0 || !iobuf_held(c->stream.in) ||
        iobuf_held(c->stream.in) > DRAIN_KEEP_MAX)
        return false;
    /* Decoded bytes cannot be decoded again, so the connection ends without the end. */
    c->http1.end_unknown =
        body_read(request, &c->stream, false, &io, &piece, &why) != BODY_READ || !request->ended;
    c->http1.held_content = c->http1.end_unknown ? 0 : (uint32_t)piece.consumed;
    return !c->http1.end_unknown;
}

/* The rest of the request's content is small and its end is known, so weir can read it and keep
 * the connection. */
static bool rest_is_small(struct socket_client *c)
{
    const struct body_reader *request = &c->http1.request;

    if (request->ended)
        return true;
    if (rest_may_come(c))
        return false;
    return request->kind == FRAMING_LENGTH ? request->left <= DRAIN_KEEP_MAX : read_held_content(c);
}

/* Returns whether the connection ends with any response to this request. */
static bool is_last_request(const struct socket_client *c)
{
    const struct http1 *h = &c->http1;
    return !h->keep_alive || h->end_unknown || c->client.worker->stopping ||
           client_gives_way(&c->client);
}

/* Returns whether the connection ends with this response. */
static bool must_close(struct socket_client *c, const struct response *response)
{
    const struct http1 *h = &c->http1;

    if (is_last_request(c))
        return true;
    if (response->own) /* after a client error, the next bytes cannot be interpreted */
        return response->client_fault || !rest_is_small(c);
    return (response->body == BODY_UNKNOWN && h->minor == 0) || rest_may_come(c);
}

/* Forms of a struct response_image. */
static unsigned form_of(const struct http1 *h)
{
    return RESPONSE_IMAGE_BARE + 1u + h->minor * 2u + h->close;
}

static bool send_image(struct downstream *d, const struct response_image *image,
                       enum downstream_sent *sent)
{
    struct socket_client *c = client_of(d);
    struct http1 *h = &c->http1;
    struct iovec piece = {(char *)(uintptr_t)image->bytes, image->size};

    h->close = is_last_request(c) || !rest_is_small(c);
    if (image->form != form_of(h))
        return false;
    *sent = note_sent(c, stream_send(&c->stream, &c->client.worker->buffers, &piece, 1), false);
    return true;
}

/* Sends a head and content that is not chunked. */
static enum sent send_plain(struct socket_client *c, const struct text *head,
                            const struct response *response, const struct iovec *content, int count)
{
    struct iovec pieces[1 + DOWNSTREAM_PIECES_MAX];

    pieces[0] = iovec_of(text_slice(head));
    for (int i = 0; i < count; i++)
        pieces[1 + i] = content[i];
    if (response->image) /* the lines end before the empty line of the head */
        response_image_store(response->image, form_of(&c->http1), text_slice(head),
                             head->n - 2 - response->lines.n, response, content, count);
    return stream_send(&c->stream, &c->client.worker->buffers, pieces, 1 + count);
}

/* Only for clients that accept trailers: others may drop them (RFC 9110 section 6.5.1), or read
 * them otherwise than weir writes them. */
static struct fields *trailers_for(const struct http1 *h, struct fields *trailers)
{
    return h->accepts_trailers ? trailers : NULL;
}

static enum downstream_sent send_head(struct downstream *d, const struct response *response,
                                      const struct iovec *content, int count, bool last)
{
    struct socket_client *c = client_of(d);
    struct worker *w = c->client.worker;
    struct http1 *h = &c->http1;
    struct text head = text_over(w->send, sizeof w->send);
    bool unknown = response->body == BODY_UNKNOWN, switches = response->upgrade.n > 0;

    h->close = must_close(c, response);
    h->chunked = unknown && h->minor > 0;
    h->until_close = unknown && h->minor == 0;
    struct response_connection connection = {.client_minor = h->minor,
                                             .close = h->close && !switches,
                                             .chunked = h->chunked,
                                             .keep_alive = w->policy->keep_alive};
    response_head_write(&head, response, &connection);
    if (head.failed)
        return DOWNSTREAM_TOO_LARGE;
    if (switches) {
        h->tunnel = true;
        body_reader_begin(&h->request, &(struct framing){.kind = FRAMING_UNTIL_CLOSE});
    }
    if (!h->chunked)
        return note_sent(c, send_plain(c, &head, response, content, count), last && !response->own);
    struct content_piece first = {.last = last, .trailers = trailers_for(h, response->trailers)};
    if (count) {
        first.bytes = content[0].iov_base;
        first.size = content[0].iov_len;
    }
    return note_sent(c, body_write(&c->stream, &w->buffers, text_slice(&head), &first, true), last);
}

/* Never sent to an HTTP/1.0 client (RFC 9110 section 15.2). */
static enum downstream_sent send_interim(struct downstream *d, const struct response *response)
{
    struct socket_client *c = client_of(d);
    struct worker *w = c->client.worker;
    struct text head = text_over(w->send, sizeof w->send);

    if (c->http1.minor == 0)
        return DOWNSTREAM_SENT;
    interim_head_write(&head, response);
    if (head.failed)
        return DOWNSTREAM_TOO_LARGE;
    struct iovec piece = iovec_of(text_slice(&head));
    return note_sent(c, stream_send(&c->stream, &w->buffers, &piece, 1), false);
}

static enum downstream_sent send_body(struct downstream *d, const struct content_piece *piece)
{
    struct socket_client *c = client_of(d);
    struct content_piece sent = *piece;

    sent.trailers = trailers_for(&c->http1, piece->trailers);
    return note_sent(
        c, body_write(&c->stream, &c->client.worker->buffers, SLICE_NONE, &sent, c->http1.chunked),
        piece->last);
}

static bool takes(struct downstream *d)
{
    struct socket_client *c = client_of(d);

    if (stream_is_writable(&c->stream))
        return true;
    d->pending = true;
    stream_want_write(&c->stream, true);
    return false;
}

static bool splice_from(struct downstream *d, struct body_reader *reader, struct stream *from,
                        enum body_status *status, enum downstream_sent *result)
{
    struct socket_client *c = client_of(d);
    enum sent sent;

    if (c->http1.chunked ||
        !body_splice(reader, from, &c->stream, &c->client.worker->buffers, status, &sent))
        return false;
    *result = note_sent(c, sent, reader->ended);
    return true;
}

static void writable(struct socket_client *c)
{
    struct exchange *x = c->downstream.exchange;

    if (c->client.state != CLIENT_EXCHANGE)
        return;
    enum sent sent = stream_flush(&c->stream, &c->client.worker->buffers);
    if (note_sent(c, sent, c->http1.response_ended) == DOWNSTREAM_GONE)
        exchange_client_gone(x);
    else
        exchange_writable(x);
}

/* ---- request -------------------------------------------------------------------------------- */

/* The whole response was sent. */
static bool has_its_response(const struct socket_client *c)
{
    return c->http1.response_ended && !c->downstream.pending;
}

/* Stops reading. If a FIN counts as a closed connection, weir still detects it after unread
 * data. */
static void pause_reading(struct socket_client *c)
{
    const struct http1 *h = &c->http1;

    stream_pause(&c->stream, c->client.worker->policy->half_close == HALF_CLOSE_END &&
                                 !h->response_ended && !h->tunnel);
}

static void want_body(struct downstream *d, bool want)
{
    struct socket_client *c = client_of(d);

    c->http1.wants_body = want;
    if (!want) {
        pause_reading(c);
        return;
    }
    stream_want_read(&c->stream, true);
    if (iobuf_held(c->stream.in) && !c->http1.request.ended)
        stream_wake(&c->stream);
}

static enum body_status read_body(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **why)
{
    struct socket_client *c = client_of(d);
    struct body_io io = io_of(c);
    enum body_status status = body_read(&c->http1.request, &c->stream, receive, &io, piece, why);

    c->http1.end_unknown |= status == BODY_BAD;
    return status;
}

static bool consume_body(struct downstream *d, const struct content_piece *piece)
{
    struct socket_client *c = client_of(d);
    struct body_io io = io_of(c);

    if (body_consume(&c->stream, piece, &io))
        return true;
    c->http1.end_unknown = true;
    return false;
}

static bool splice_body(struct downstream *d, struct stream *to, enum body_status *status,
                        enum sent *sent, struct content_piece *moved)
{
    struct socket_client *c = client_of(d);
    struct body_reader *reader = &c->http1.request;
    uint64_t before = reader->bytes;

    if (!body_splice(reader, &c->stream, to, &c->client.worker->buffers, status, sent))
        return false;
    *moved =
        (struct content_piece){.size = (size_t)(reader->bytes - before), .last = reader->ended};
    return true;
}

static uint64_t taken(const struct downstream *d, bool exactly)
{
    const struct socket_client *c = CONTAINER_OF(d, const struct socket_client, downstream);
    return exactly ? stream_taken(&c->stream) : c->stream.sent;
}

static bool has_input(const struct downstream *d)
{
    return stream_has_input(&client_of(d)->stream);
}

/* The rest of the content cannot arrive: the client has closed its sending side. */
static bool is_cut_short(const struct socket_client *c)
{
    const struct body_reader *request = &c->http1.request;

    return !request->ended && request->kind == FRAMING_LENGTH &&
           iobuf_held(c->stream.in) < request->left;
}

/* Reads data that cannot be forwarded now: the next request, or content before the decision. weir
 * buffers a small amount and then stops reading; the rest stays in the kernel. Reading detects that
 * the client has closed the connection.
 *
 * A client that has closed its sending side counts as gone, as in nginx. Otherwise a client that
 * has timed out would keep its slots in concurrency limits, and the server would produce a response
 * that no client reads. With half_close `allow`, weir keeps the request: a client may close its
 * sending side and wait for the response (RFC 9112 section 9.6). */
static void read_ahead(struct socket_client *c)
{
    struct exchange *x = c->downstream.exchange;
    ssize_t n = stream_read_in(&c->stream, &c->client.worker->buffers, 1);

    if (n > 0 || n == STREAM_AGAIN)
        return;
    if (n == STREAM_FAILED && errno == ENOBUFS) {
        pause_reading(c);
        return;
    }
    stream_want_read(&c->stream, false);
    if (has_its_response(c) && c->http1.request.ended)
        return; /* the server still gets the rest of the content */
    if (n != 0 || c->client.worker->policy->half_close == HALF_CLOSE_END)
        exchange_client_gone(x);
    else if (is_cut_short(c))
        exchange_body_cut_short(x);
}

static void drain_request(struct socket_client *c, bool receive)
{
    if (linger_drain(c, receive))
        http1_await_request(c);
}

static void readable(struct socket_client *c, bool closed)
{
    struct exchange *x = c->downstream.exchange;

    if (c->client.state == CLIENT_DRAIN)
        drain_request(c, true);
    else if (c->client.state != CLIENT_EXCHANGE)
        http1_read_head(c);
    else if (closed && c->http1.response_ended) /* all of its content may have arrived */
        stream_pause(&c->stream, false);
    else if (closed)
        exchange_client_gone(x);
    else if (c->http1.wants_body && !c->http1.request.ended)
        exchange_body_ready(x);
    else
        read_ahead(c);
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Content that ends with the connection looks complete after an ordinary close (RFC 9112 section
 * 8); after a reset it does not. */
static void abort_connection(struct socket_client *c)
{
    static const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    bool delivered = has_its_response(c);

    if (c->http1.until_close && !delivered) {
        (void)setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        c->stream.cut = true;
    }
    client_close(&c->client);
}

/* A client that requested the close and has sent its whole request has no data in flight, so no
 * reset can follow: no lingering close is needed. */
static void end(struct downstream *d, enum downstream_end how)
{
    struct socket_client *c = client_of(d);
    const struct http1 *h = &c->http1;

    body_reader_end(&c->http1.request, &c->client.worker->buffers);
    if (how == DOWNSTREAM_ABORTED || h->tunnel)
        abort_connection(c);
    else if (h->close || h->end_unknown || how == DOWNSTREAM_REFUSED) {
        if (h->keep_alive || !h->request.ended)
            linger_begin(c, UINT64_MAX);
        else
            client_close(&c->client);
    } else if (h->request.ended) {
        stream_take(&c->stream, &c->client.worker->buffers, h->held_content);
        http1_await_request(c);
    } else {
        linger_begin_drain(c);
        drain_request(c, false);
    }
}

const struct downstream_ops http1_ops = {.send_head = send_head,
                                         .send_image = send_image,
                                         .send_interim = send_interim,
                                         .send_body = send_body,
                                         .takes = takes,
                                         .want_body = want_body,
                                         .read_body = read_body,
                                         .consume_body = consume_body,
                                         .has_input = has_input,
                                         .taken = taken,
                                         .splice_body = splice_body,
                                         .splice_from = splice_from,
                                         .end = end};

/* ---- connection ----------------------------------------------------------------------------- */

static void stop(struct client *client)
{
    if (client->state == CLIENT_DRAIN)
        linger_arm(client);
    else if (client->state != CLIENT_EXCHANGE)
        socket_client_stop(client);
}

static void cut(struct client *client, enum cause cause)
{
    exchange_cut(socket_client_of(client)->downstream.exchange, cause);
}

/* Not a tunnel: its client may read late. */
static bool awaits_reader(const struct client *client, uint64_t *count)
{
    const struct socket_client *c = socket_client_of(client);

    if (client->state != CLIENT_EXCHANGE || !c->downstream.pending || c->http1.tunnel)
        return false;
    *count = stream_taken(&c->stream);
    return true;
}

static size_t memory(const struct client *client, uint64_t now_us, uint64_t *still_us)
{
    const struct socket_client *c = socket_client_of(client);
    const struct exchange *x = c->downstream.exchange;
    size_t size =
        socket_client_memory(client, now_us, still_us) + iobuf_memory(c->http1.request.trailers);

    if (!x)
        return size;
    *still_us = exchange_still_us(x, now_us);
    return size + exchange_memory(x);
}

static unsigned shed(struct client *client)
{
    struct exchange *x = socket_client_of(client)->downstream.exchange;

    if (!x)
        return socket_client_shed(client);
    exchange_cut(x, CAUSE_MEMORY_LIMIT);
    return 1;
}

const struct socket_protocol http1_protocol = {.client = {.has_input = socket_client_has_input,
                                                          .head_timed_out = http1_head_timed_out,
                                                          .idle_timed_out = client_close,
                                                          .stop = stop,
                                                          .cut = cut,
                                                          .awaits_reader = awaits_reader,
                                                          .memory = memory,
                                                          .shed = shed,
                                                          .is_verified = socket_client_is_verified,
                                                          .end = socket_client_end,
                                                          .free = socket_client_free},
                                               .readable = readable,
                                               .writable = writable};
