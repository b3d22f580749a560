/* received.c - frames received. nghttp2's callbacks only note what has arrived;
 * http2_report_received() reports it after each frame. */
#include <stdlib.h>

#include "http2/session_internal.h"

static struct slice slice_of_bytes(const uint8_t *bytes, size_t n)
{
    return (struct slice){(const char *)bytes, n};
}

static struct http2_stream *stream_of(nghttp2_session *ng, int32_t id)
{
    struct http2_stream *stream = nghttp2_session_get_stream_user_data(ng, id);
    if (stream)
        MAGIC_CHECK(stream, HTTP2_STREAM_MAGIC);
    return stream;
}

/* ---- header sections ------------------------------------------------------------------------- */

/* Returns a new stream of a client's request. */
static struct http2_stream *request_stream(struct http2_session *s, int32_t id)
{
    struct http2_stream *stream = http2_stream_new(s);

    if (!stream)
        return NULL;
    stream->id = id;
    nghttp2_session_set_stream_user_data(s->ng, id, stream);
    return stream;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    bool request = !s->client && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    struct http2_stream *stream =
        request ? request_stream(s, frame->hd.stream_id) : stream_of(ng, frame->hd.stream_id);

    if (!stream)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    http2_head_begin(s, stream,
                     request                            ? SECTION_REQUEST
                     : s->client && !stream->final_head ? SECTION_RESPONSE
                                                        : SECTION_TRAILERS);
    return 0;
}

/* Resets the stream of a header section. nghttp2 decodes the rest of the section without calling
 * back, as HPACK requires. */
static int refuse_section(struct http2_session *s, int32_t id, uint32_t code, const char *why)
{
    s->why = why;
    http2_head_drop(s);
    if (nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, id, code) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static const char *add_field(struct http2_session *s, struct slice name, struct slice value)
{
    http2_head_resume(s);
    switch (s->section) {
    case SECTION_REQUEST: return request_text_field(&s->text, name, value);
    case SECTION_RESPONSE: return response_text_field(&s->text, name, value);
    default: return trailer_text_field(&s->text, name, value);
    }
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    const char *why;
    (void)ng;

    if (flags & NGHTTP2_NV_FLAG_NO_INDEX)
        s->text.never_indexed |= http2_never_indexed_bit(slice_of_bytes(name, name_size));
    why = add_field(s, slice_of_bytes(name, name_size), slice_of_bytes(value, value_size));
    if (why)
        return refuse_section(s, frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR, why);
    if (s->section == SECTION_TRAILERS && s->text.too_large)
        return refuse_section(s, frame->hd.stream_id, NGHTTP2_ENHANCE_YOUR_CALM,
                              "trailers too long");
    if (s->text.list_size > 2 * s->max_header_list)
        return refuse_section(s, frame->hd.stream_id, NGHTTP2_ENHANCE_YOUR_CALM, NULL);
    return 0;
}

/* nghttp2 would drop such a field and go on. */
static int on_invalid_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                             size_t name_size, const uint8_t *value, size_t value_size,
                             uint8_t flags, void *user_data)
{
    (void)ng, (void)name, (void)name_size, (void)value, (void)value_size, (void)flags;
    return refuse_section(http2_session_of(user_data), frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR,
                          "invalid field");
}

static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error,
                            void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    (void)ng;

    if (!s->why)
        s->why = nghttp2_strerror(error);
    closed_streams_reset(&s->closed, frame->hd.stream_id); /* nghttp2 will reset it */
    return 0;
}

/* ---- complete frames ------------------------------------------------------------------------- */

static void message_frame(struct http2_session *s, struct http2_stream *stream, uint8_t type,
                          bool end)
{
    bool head = type == NGHTTP2_HEADERS && s->section != SECTION_TRAILERS;

    stream->received_all |= end;
    if (head)
        s->headed = stream;
    else if (end)
        s->ended = stream;
}

/* The server has reset the stream with NO_ERROR. Some servers send this in place of END_STREAM: it
 * ends a response that has all of its content, or no Content-Length. */
static void reset_after_response(struct http2_session *s, struct http2_stream *stream)
{
    if (stream->received_all || !stream->final_head || stream->missing)
        return;
    stream->received_all = true;
    s->ended = stream;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = frame->hd.stream_id ? stream_of(ng, frame->hd.stream_id) : NULL;

    s->may_ping |= frame->hd.type != NGHTTP2_PING;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        s->open = true;
        s->capacity_changed = true;
        break;
    case NGHTTP2_GOAWAY: s->capacity_changed = true; break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            http2_ping_returned(s, frame->ping.opaque_data);
        break;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        if (stream)
            message_frame(s, stream, frame->hd.type, frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
        break;
    case NGHTTP2_RST_STREAM:
        if (stream && s->client && frame->rst_stream.error_code == NGHTTP2_NO_ERROR)
            reset_after_response(s, stream);
        break;
    default: break;
    }
    return 0;
}

static int on_content(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                      size_t n, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = stream_of(ng, id);
    (void)flags;

    if (!stream || s->content.n)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    s->content_of = stream;
    s->content = slice_of_bytes(bytes, n);
    stream->unconsumed += (uint32_t)n;
    stream->missing -= n < stream->missing ? n : stream->missing;
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = stream_of(ng, id);

    if (!stream)
        return 0;
    stream->closed = true;
    stream->code = code;
    stream->complete = code == NGHTTP2_NO_ERROR && stream->received_all && stream->sent_all;
    if (s->head_of == stream && s->headed != stream && s->ended != stream) /* not reported */
        http2_head_drop(s);
    http2_stream_due(stream);
    return 0;
}

void http2_received_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_content);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}

/* ---- reports --------------------------------------------------------------------------------- */

/* Resets a stream because of its head. The end of a response has closed it already. */
static void reset_malformed(struct http2_session *s, struct http2_stream *stream, const char *why)
{
    s->why = why;
    if (stream->closed) {
        stream->complete = false;
        stream->code = NGHTTP2_PROTOCOL_ERROR;
        http2_reset_fault(s, stream, stream->code);
    } else if (nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id,
                                         NGHTTP2_PROTOCOL_ERROR) != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
}

static void report_request(struct http2_session *s, struct http2_stream *stream)
{
    struct request_head *head = &s->scratch->request;
    struct framing framing;
    struct refusal refusal;

    stream->reported = true;
    enum request_text_end end =
        request_text_end(&s->text, stream->received_all, head, &framing, &refusal);
    if (end == REQUEST_TEXT_MALFORMED) {
        stream->reported = false;
        reset_malformed(s, stream, refusal.why);
    } else if (end == REQUEST_TEXT_REFUSED)
        s->events->refused(stream, &refusal, text_slice(&s->text.out));
    else
        s->events->request(stream, head, &framing);
}

static void report_response(struct http2_session *s, struct http2_stream *stream)
{
    struct response_head *head = &s->scratch->response;
    struct framing framing;
    const char *why = response_text_end(&s->text, (enum method)stream->method, stream->received_all,
                                        head, &framing);

    if (why)
        reset_malformed(s, stream, why);
    else if (head->status < 200)
        s->events->interim(stream, head);
    else {
        stream->final_head = true;
        stream->missing = framing.kind == FRAMING_LENGTH ? framing.length : 0;
        s->events->response(stream, head, &framing, stream->received_all);
    }
}

/* A message's end may close its stream before it is reported: always that of a response, and that
 * of a request after its response. */
static bool is_listening(const struct http2_stream *stream)
{
    return !stream->detached && (!stream->closed || stream->session->client || stream->complete);
}

static void report_head(struct http2_session *s, struct http2_stream *stream)
{
    http2_head_resume(s);
    if (s->shutdown == SHUTDOWN_DONE && stream->id > s->last_stream && !s->client)
        stream->detached = true; /* the GOAWAY that is to be sent closes it */
    else if (is_listening(stream) && s->client)
        report_response(s, stream);
    else if (is_listening(stream))
        report_request(s, stream);
    http2_head_drop(s);
}

uint64_t http2_trailers_never_indexed(const struct http2_stream *stream)
{
    const struct http2_session *s = stream->session;
    return s->head_of == stream ? s->text.never_indexed : 0;
}

static void report_content_end(struct http2_session *s, struct http2_stream *stream)
{
    bool trailers = s->head_of == stream;
    struct slice text = SLICE_NONE;

    if (trailers) {
        http2_head_resume(s);
        text = trailer_text_end(&s->text);
    }
    if (is_listening(stream))
        s->events->content_end(stream, text);
    if (trailers)
        http2_head_drop(s);
}

void http2_report_received(struct http2_session *s)
{
    struct http2_stream *headed = s->headed, *content_of = s->content_of, *ended = s->ended;
    struct slice content = s->content;
    bool capacity = s->capacity_changed;

    s->headed = s->content_of = s->ended = NULL;
    s->content = SLICE_NONE;
    s->capacity_changed = false;
    if (headed)
        report_head(s, headed);
    if (content_of && is_listening(content_of))
        s->events->content(content_of, content);
    else if (content_of)
        http2_drop(content_of, content.n);
    if (ended)
        report_content_end(s, ended);
    if (capacity && s->events->capacity)
        s->events->capacity(s->context);
}
