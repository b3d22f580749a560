/* http2_response.c - the response of a link of HTTP/2: heads, content, trailers. */
#include "base/clock.h"
#include "http/rewrite.h"
#include "http/trailers.h"
#include "upstream/http2_upstream_internal.h"

static bool append_line(struct http2_link *l, struct iobuf **buffer, struct slice name,
                        struct slice value)
{
    return http2_link_append(l, buffer, name) && http2_link_append(l, buffer, SLICE(": ")) &&
           http2_link_append(l, buffer, value) && http2_link_append(l, buffer, SLICE("\r\n"));
}

/* ---- response: heads ------------------------------------------------------------------------- */

/* Stores a head that the owner does not read now. */
static bool store_head(struct http2_link *l, const struct response_head *head)
{
    char status[] = "HTTP/1.1 000 \r\n";

    l->never_indexed |= head->fields.never_indexed;
    status[9] = (char)('0' + head->status / 100);
    status[10] = (char)('0' + head->status / 10 % 10);
    status[11] = (char)('0' + head->status % 10);
    if (!http2_link_append(l, &l->heads, (struct slice){status, sizeof status - 1}))
        return false;
    for (unsigned i = 0; i < head->fields.count; i++)
        if (!append_line(l, &l->heads, head->fields.at[i].name, head->fields.at[i].value))
            return false;
    return http2_link_append(l, &l->heads, SLICE("\r\n"));
}

/* Resets the stream: the response cannot be used. */
static void reject_response(struct http2_link *l, const char *why)
{
    l->why = why;
    l->malformed = true;
    if (l->stream)
        http2_stream_detach(l->stream);
    l->stream = NULL;
    http2_link_touch(l);
    http2_link_make_ready(l);
}

/* A response without content whose head does not say so: HTTP/1.1 clients get it chunked. */
static bool has_no_length(const struct http2_link *l, const struct response_head *head)
{
    return l->method != METHOD_HEAD && head->status >= 200 && head->status != 204 &&
           head->status != 304 && !fields_have(&head->fields, FIELD_CONTENT_LENGTH);
}

/* Reports a head, or stores it. */
static void take_head(struct http2_link *l, const struct response_head *head,
                      const struct framing *framing)
{
    l->link.response_begun = true;
    l->connection->answered_us = clock_cached_us();
    if (!l->heads && l->wants_read) {
        l->head = head;
        l->framing = *framing;
        if (!http2_link_report(l) || !l->head)
            return;
        l->head = NULL;
    }
    if (!store_head(l, head))
        reject_response(l, "too many interim responses while the client does not read");
    http2_link_make_ready(l);
}

void http2_link_on_interim(struct http2_stream *stream, struct response_head *head)
{
    static const struct framing none = {.kind = FRAMING_NONE};
    take_head(http2_stream_user(stream), head, &none);
}

void http2_link_on_response(struct http2_stream *stream, struct response_head *head,
                            const struct framing *framing, bool end)
{
    struct http2_link *l = http2_stream_user(stream);

    struct framing with_end = *framing;

    l->body_ended = end;
    if (has_no_length(l, head))
        with_end.kind = FRAMING_CHUNKED;
    take_head(l, head, &with_end);
}

static void copy_head(struct response_head *to, const struct response_head *from)
{
    size_t fields =
        offsetof(struct response_head, fields.at) + from->fields.count * sizeof from->fields.at[0];
    memcpy(to, from, fields);
}

/* Sets what the text of a head does not say. HTTP/2 has no reason phrases; clients of HTTP/1.1 get
 * the usual ones. */
static void complete_head(struct response_head *head)
{
    head->reason = slice_of(reason_phrase(head->status));
    head->version = HTTP_VERSION_2;
}

/* Parses the first of the stored heads. */
static enum link_head parse_stored(struct http2_link *l, struct response_head *head,
                                   struct framing *framing, const char **why)
{
    struct refusal refusal;
    size_t seen = 0, size;

    if (response_head_read(iobuf_slice(l->heads), &seen, &size, head, &refusal) != SCAN_WHOLE ||
        !response_framing(head, l->method, framing, &refusal)) {
        *why = "the response is malformed";
        return LINK_BAD;
    }
    if (framing->kind == FRAMING_UNTIL_CLOSE)
        framing->kind = FRAMING_CHUNKED;
    complete_head(head);
    head->fields.never_indexed = l->never_indexed;
    iobuf_take(l->heads, size);
    if (iobuf_held(l->heads) == 0)
        iobuf_put(http2_link_buffers(l), &l->heads);
    return LINK_HEAD;
}

enum link_head http2_link_read_head(struct link *link, bool receive, struct response_head *head,
                                    struct framing *framing, const char **why)
{
    struct http2_link *l = http2_link_of(link);
    (void)receive;

    if (l->head) {
        copy_head(head, l->head);
        complete_head(head);
        *framing = l->framing;
        l->head = NULL;
        return LINK_HEAD;
    }
    if (l->heads)
        return parse_stored(l, head, framing, why);
    if (l->stream)
        return LINK_AGAIN;
    *why = l->why;
    return l->malformed ? LINK_BAD : LINK_ENDED;
}

/* ---- response: content ----------------------------------------------------------------------- */

void http2_link_on_content(struct http2_stream *stream, struct slice bytes)
{
    struct http2_link *l = http2_stream_user(stream);

    if (!l->in && !l->heads && l->wants_read) {
        l->arriving = bytes;
        if (!http2_link_report(l))
            return;
        bytes = l->arriving;
        l->arriving = SLICE_NONE;
    }
    if (!http2_link_append(l, &l->in, bytes))
        reject_response(l, "no memory");
    http2_link_make_ready(l);
}

void http2_link_on_content_end(struct http2_stream *stream, struct slice trailers)
{
    struct http2_link *l = http2_stream_user(stream);

    l->body_ended = true;
    l->never_indexed |= http2_trailers_never_indexed(stream);
    if (!http2_link_append(l, &l->trailers, trailers))
        reject_response(l, "no memory");
    else if (!l->in && !l->heads)
        (void)http2_link_report(l);
    else
        http2_link_make_ready(l);
}

static enum body_status read_trailers(struct http2_link *l, struct content_piece *piece,
                                      const char **why)
{
    struct fields *trailers = l->link.worker->io.trailers;

    if (!trailers_parse(iobuf_slice(l->trailers), trailers, why))
        return BODY_BAD;
    trailers->never_indexed = l->never_indexed;
    piece->trailers = trailers_any(trailers) ? trailers : NULL;
    return BODY_READ;
}

enum body_status http2_link_read_body(struct link *link, bool receive, struct content_piece *piece,
                                      const char **why)
{
    struct http2_link *l = http2_link_of(link);
    struct slice bytes = l->in ? iobuf_slice(l->in) : l->arriving;
    (void)receive;

    if (bytes.n || l->body_ended) {
        *piece = (struct content_piece){.bytes = (char *)(uintptr_t)bytes.p,
                                        .size = bytes.n,
                                        .last = l->body_ended && (!l->in || !l->arriving.n)};
        return piece->last && l->trailers ? read_trailers(l, piece, why) : BODY_READ;
    }
    *why = l->why;
    return l->stream ? BODY_AGAIN : l->malformed ? BODY_BAD : BODY_CLOSED;
}

bool http2_link_consume_body(struct link *link, const struct content_piece *piece)
{
    struct http2_link *l = http2_link_of(link);

    if (piece->size == 0)
        return true;
    if (l->in) {
        iobuf_take(l->in, piece->size);
        if (iobuf_held(l->in) == 0)
            iobuf_put(http2_link_buffers(l), &l->in);
    } else
        l->arriving = SLICE_NONE;
    if (l->stream) {
        http2_consume(l->stream, piece->size);
        http2_link_touch(l);
    }
    return true;
}
