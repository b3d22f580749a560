/* http2_link.c - HTTP/2 as a server's protocol: a link is a stream of a connection.
 *
 * Content that arrives while the owner reads is passed on from the receive buffer. Otherwise it is
 * stored, at most a window of it, which fits one buffer; weir returns window as the owner consumes.
 * Heads that the owner does not read now are stored as HTTP/1.1 and parsed again
 * (http2_response.c). Content of the request that the session does not take is stored, at most one
 * piece. */
#include <stdlib.h>

#include "base/clock.h"
#include "http/trailers.h"
#include "upstream/http2_upstream_internal.h"

enum { FREE_LINKS_MAX = 256 };

const char http2_link_too_large[] =
    "the response header is larger than size_limits.response_header";

static const struct link_ops ops;

bool http2_link_append(struct http2_link *l, struct iobuf **buffer, struct slice bytes)
{
    return iobuf_store(http2_link_buffers(l), buffer, bytes);
}

/* ---- begin and end --------------------------------------------------------------------------- */

struct http2_link *http2_link_new(struct server *server, struct link_owner *owner)
{
    struct upstream_worker *w = server->pool->pools->worker;
    struct http2_upstreams *u = http2_upstreams_of(w);
    struct http2_link *l = u ? free_list_take(&u->free_links) : NULL;

    if (!u || (!l && !(l = malloc(sizeof *l))))
        return NULL;
    memset(l, 0, sizeof *l);
    MAGIC_SET(l, HTTP2_LINK_MAGIC);
    l->link.ops = &ops;
    l->link.worker = w;
    l->link.server = server;
    l->link.owner = owner;
    l->wants_read = true;
    server->outstanding++;
    return l;
}

void http2_link_attach(struct http2_link *l, struct http2_connection *h)
{
    deadline_cancel(&l->link.deadline);
    l->link.ready = true;
    l->link.reused = h->used;
    if (h->used)
        counter_add(&l->link.worker->stats.reused, 1);
    h->used = true;
    l->connection = h;
    TAILQ_INSERT_TAIL(&h->links, l, entry);
}

static void unready(struct http2_link *l)
{
    if (l->is_ready)
        TAILQ_REMOVE(&l->link.worker->http2->ready, l, ready_entry);
    l->is_ready = false;
}

/* Takes the link from its connection, or from those that wait. */
static void detach_link(struct http2_link *l)
{
    struct http2_server *s = &l->link.server->http2;

    if (l->connection) {
        TAILQ_REMOVE(&l->connection->links, l, entry);
        http2_link_touch(l);
    } else if (!l->link.ready) {
        TAILQ_REMOVE(&s->waiting, l, entry);
        s->waiting_count--;
    }
    l->connection = NULL;
}

void http2_link_end(struct http2_link *l)
{
    struct http2_upstreams *u = l->link.worker->http2;

    deadline_cancel(&l->link.deadline);
    unready(l);
    detach_link(l);
    iobuf_put(http2_link_buffers(l), &l->out);
    iobuf_put(http2_link_buffers(l), &l->out_trailers);
    iobuf_put(http2_link_buffers(l), &l->heads);
    iobuf_put(http2_link_buffers(l), &l->in);
    iobuf_put(http2_link_buffers(l), &l->trailers);
    l->released = true;
    l->stream = NULL;
    l->link.server->outstanding--;
    server_free_if_unused(l->link.server);
    TAILQ_INSERT_TAIL(&u->ended, l, entry);
}

/* A server that has answered nothing since the request, for as long as a response may take, may be
 * gone without a trace: the connection gets no more requests. */
static bool is_silent(const struct http2_link *l)
{
    return l->connection->answered_us <= l->opened_us &&
           clock_us() - l->opened_us >= l->link.server->pool->settings->response_timeout_us;
}

static void release(struct link *link, bool complete)
{
    struct http2_link *l = http2_link_of(link);
    (void)complete;

    if (l->stream) {
        l->connection->draining |= is_silent(l);
        http2_stream_detach(l->stream);
    }
    http2_link_end(l);
}

void http2_upstreams_free_ended(struct upstream_worker *w)
{
    struct http2_upstreams *u = w->http2;

    for (struct http2_link *l; u && (l = TAILQ_FIRST(&u->ended));) {
        TAILQ_REMOVE(&u->ended, l, entry);
        MAGIC_WIPE(l);
        if (u->free_links.count < FREE_LINKS_MAX)
            free_list_put(&u->free_links, l);
        else
            free(l);
    }
}

/* ---- reports to the owner -------------------------------------------------------------------- */

static bool is_report_due(const struct http2_link *l)
{
    return l->wants_read && (l->head || l->heads || l->arriving.n || l->in || l->body_ended ||
                             (l->sent && !l->stream));
}

void http2_link_make_ready(struct http2_link *l)
{
    struct http2_upstreams *u = l->link.worker->http2;

    if (l->released || l->is_ready || !is_report_due(l))
        return;
    l->is_ready = true;
    TAILQ_INSERT_TAIL(&u->ready, l, ready_entry);
}

/* Reports what has just arrived. Returns false if the owner has released the link. */
bool http2_link_report(struct http2_link *l)
{
    if (l->wants_read)
        l->link.owner->ops->readable(l->link.owner);
    return !l->released;
}

void http2_links_report(struct http2_upstreams *u)
{
    struct http2_link *last = TAILQ_LAST(&u->ready, http2_links), *l;
    bool at_last = false;

    while (!at_last && (l = TAILQ_FIRST(&u->ready))) {
        at_last = l == last;
        unready(l);
        if (is_report_due(l) && http2_link_report(l) && (l->heads || l->in))
            http2_link_make_ready(l);
    }
}

static void want_read(struct link *link, bool want)
{
    struct http2_link *l = http2_link_of(link);

    l->wants_read = want;
    if (want)
        http2_link_make_ready(l);
    http2_link_touch(l);
}

/* ---- request --------------------------------------------------------------------------------- */

/* The stream is closed, or was not opened. */
static enum link_sent broke(struct http2_link *l)
{
    iobuf_put(http2_link_buffers(l), &l->out);
    iobuf_put(http2_link_buffers(l), &l->out_trailers);
    l->link.pending = false;
    http2_link_make_ready(l);
    return LINK_BROKEN;
}

/* Stores trailers that the session has not taken. */
static bool store_trailers(struct http2_link *l, const struct fields *trailers)
{
    char bytes[TRAILERS_TEXT_MAX + 2];
    struct text lines = text_over(bytes, sizeof bytes);

    l->out_never_indexed = trailers->never_indexed;
    trailers_write(&lines, trailers);
    text_literal(&lines, "\r\n");
    return !lines.failed && http2_link_append(l, &l->out_trailers, text_slice(&lines));
}

/* Returns whether the session has taken the stored trailers, or there are none. */
static bool send_stored_trailers(struct http2_link *l)
{
    struct fields *trailers = l->link.worker->io.trailers;
    const char *why;

    if (l->out_trailers && trailers_parse(iobuf_slice(l->out_trailers), trailers, &why)) {
        trailers->never_indexed = l->out_never_indexed;
        if (!http2_send_trailers(l->stream, trailers))
            return false;
    }
    iobuf_put(http2_link_buffers(l), &l->out_trailers);
    return true;
}

/* Hands content to the session; stores the rest. */
static enum link_sent send_content(struct http2_link *l, const struct content_piece *piece)
{
    struct slice content = {piece->bytes, piece->size};

    if (!l->stream)
        return broke(l);
    http2_upstream_push(l->connection);
    size_t taken = http2_send_content(l->stream, content, piece->last && !piece->trailers);
    http2_link_touch(l);
    if (taken == content.n && (!piece->trailers || http2_send_trailers(l->stream, piece->trailers)))
        return LINK_SENT;
    struct slice rest = taken ? (struct slice){content.p + taken, content.n - taken} : content;
    l->link.pending = true;
    l->out_last = piece->last;
    if (!http2_link_append(l, &l->out, rest) ||
        (piece->trailers && !store_trailers(l, piece->trailers)))
        return broke(l);
    return LINK_PENDING;
}

static enum link_sent send_head(struct link *link, const struct link_request *request,
                                const struct content_piece *first)
{
    struct http2_link *l = http2_link_of(link);
    struct http2_connection *h = l->connection;
    struct request_head *head = &link->worker->http2->request;
    struct slice scheme = link->server->pool->settings->tls.on ? SLICE("https") : SLICE("http");
    struct refusal refusal;

    l->sent = true;
    l->method = request->method;
    l->opened_us = clock_cached_us();
    l->loss = LINK_CLOSED_IDLE;
    if (!h || h->lost || !request_head_parse_forwarded(request->head, head, &refusal))
        return broke(l);
    head->fields.never_indexed = request->never_indexed;
    if (!http2_request_fits(h->session, head)) {
        l->loss = LINK_HEAD_TOO_LARGE;
        return broke(l);
    }
    if (!(l->stream = http2_open(h->session, head, scheme, first != NULL, l))) {
        l->loss = http2_session_capacity(h->session) > 0 ? LINK_NOT_SENT : LINK_CLOSED_IDLE;
        return broke(l);
    }
    l->loss = LINK_LOST;
    http2_link_touch(l);
    if (!first || (first->size == 0 && !first->last))
        return LINK_SENT;
    return send_content(l, first);
}

static enum link_sent send_body(struct link *link, const struct content_piece *piece)
{
    return send_content(http2_link_of(link), piece);
}

void http2_link_on_writable(struct http2_stream *stream)
{
    struct http2_link *l = http2_stream_user(stream);
    struct slice rest = l->out ? iobuf_slice(l->out) : SLICE_NONE;
    size_t taken = http2_send_content(stream, rest, l->out_last && !l->out_trailers);

    if (l->out && taken)
        iobuf_take(l->out, taken);
    if (taken == rest.n) {
        iobuf_put(http2_link_buffers(l), &l->out);
        l->link.pending = !send_stored_trailers(l);
    }
    if (taken || !l->link.pending)
        l->link.owner->ops->writable(l->link.owner);
}

static bool has_input(const struct link *link)
{
    const struct http2_link *l = CONTAINER_OF(link, const struct http2_link, link);
    return is_report_due(l) ||
           (l->connection && stream_has_unread(&l->connection->connection->stream));
}

static bool takes_rest(struct link *link)
{
    return http2_link_of(link)->stream != NULL;
}

/* ---- the end of the stream ------------------------------------------------------------------- */

/* The codes of RFC 9113 section 7. */
static const char *const reset_texts[] = {
    "the server reset the stream: NO_ERROR",
    "the server reset the stream: PROTOCOL_ERROR",
    "the server reset the stream: INTERNAL_ERROR",
    "the server reset the stream: FLOW_CONTROL_ERROR",
    "the server reset the stream: SETTINGS_TIMEOUT",
    "the server reset the stream: STREAM_CLOSED",
    "the server reset the stream: FRAME_SIZE_ERROR",
    "the server reset the stream: REFUSED_STREAM",
    "the server reset the stream: CANCEL",
    "the server reset the stream: COMPRESSION_ERROR",
    "the server reset the stream: CONNECT_ERROR",
    "the server reset the stream: ENHANCE_YOUR_CALM",
    "the server reset the stream: INADEQUATE_SECURITY",
    "the server reset the stream: HTTP_1_1_REQUIRED",
};

static const char *reset_text(uint32_t code)
{
    return code < COUNT_OF(reset_texts) ? reset_texts[code] : "the server reset the stream";
}

static void stream_gone(struct http2_link *l)
{
    l->stream = NULL;
    l->link.pending = false;
    iobuf_put(http2_link_buffers(l), &l->out);
    iobuf_put(http2_link_buffers(l), &l->out_trailers);
    http2_link_make_ready(l);
}

void http2_link_on_closed(struct http2_stream *stream, bool complete)
{
    struct http2_link *l = http2_stream_user(stream);
    const char *fault = http2_stream_why(stream);

    if (!complete && !l->body_ended) {
        l->malformed = fault != NULL;
        l->why = fault == http2_cause_text[HTTP2_HEADER_LIST] ? http2_link_too_large
                 : fault                                      ? fault
                         : reset_text(http2_stream_code(stream));
        if (http2_stream_unprocessed(stream))
            l->loss =
                http2_session_accepts(l->connection->session) ? LINK_REFUSED : LINK_GOING_AWAY;
        else if (http2_stream_objected(stream))
            l->loss = LINK_OBJECTED;
    }
    stream_gone(l);
}

void http2_link_lose(struct http2_link *l)
{
    struct http2_connection *h = l->connection;

    TAILQ_REMOVE(&h->links, l, entry);
    l->connection = NULL;
    if (l->stream && !l->body_ended) {
        l->why = h->why;
        l->malformed = h->why != NULL;
        if (!h->why && l->link.reused && h->received_us <= l->opened_us)
            l->loss = LINK_CLOSED_IDLE;
    }
    stream_gone(l);
}

static enum link_loss loss(const struct link *link)
{
    return CONTAINER_OF(link, const struct http2_link, link)->loss;
}

static const char *fault(const struct link *link)
{
    return CONTAINER_OF(link, const struct http2_link, link)->why;
}

static size_t memory(const struct link *link)
{
    const struct http2_link *l = CONTAINER_OF(link, const struct http2_link, link);
    return iobuf_memory(l->out) + iobuf_memory(l->out_trailers) + iobuf_memory(l->heads) +
           iobuf_memory(l->in) + iobuf_memory(l->trailers);
}

static const struct link_ops ops = {.refuses = true,
                                    .send_head = send_head,
                                    .send_body = send_body,
                                    .want_read = want_read,
                                    .read_head = http2_link_read_head,
                                    .read_body = http2_link_read_body,
                                    .consume_body = http2_link_consume_body,
                                    .has_input = has_input,
                                    .takes_rest = takes_rest,
                                    .loss = loss,
                                    .fault = fault,
                                    .memory = memory,
                                    .release = release};
