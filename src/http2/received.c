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

static bool is_request(const nghttp2_frame *frame)
{
    return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

/* ---- header sections ------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream;

    if (!is_request(frame)) { /* trailers */
        s->text.list_size = 0;
        return 0;
    }
    if (!(stream = calloc(1, sizeof *stream)))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    MAGIC_SET(stream, HTTP2_STREAM_MAGIC);
    stream->id = frame->hd.stream_id;
    stream->session = s;
    TAILQ_INSERT_TAIL(&s->streams, stream, link);
    s->stream_count++;
    nghttp2_session_set_stream_user_data(ng, stream->id, stream);
    http2_head_begin(s, stream);
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

static const char *request_field(struct http2_session *s, struct slice name, struct slice value)
{
    http2_head_resume(s);
    return request_text_field(&s->text, name, value);
}

static const char *trailer(struct http2_session *s, struct slice name, struct slice value)
{
    s->text.list_size += (uint32_t)(name.n + value.n) + REQUEST_TEXT_ENTRY;
    return request_text_trailer(name, value);
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct slice n = slice_of_bytes(name, name_size), v = slice_of_bytes(value, value_size);
    const char *why = is_request(frame) ? request_field(s, n, v) : trailer(s, n, v);
    (void)ng, (void)flags;

    if (why)
        return refuse_section(s, frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR, why);
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
    (void)ng, (void)frame;

    if (!s->why)
        s->why = nghttp2_strerror(error);
    return 0;
}

/* ---- complete frames ------------------------------------------------------------------------- */

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = frame->hd.stream_id ? stream_of(ng, frame->hd.stream_id) : NULL;

    s->open |= frame->hd.type == NGHTTP2_SETTINGS;
    if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK)
        http2_ping_returned(s, frame->ping.opaque_data);
    if (!stream || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        stream->request_ended = true;
    if (is_request(frame))
        s->requested = stream;
    else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        s->ended = stream;
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
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = stream_of(ng, id);

    if (!stream)
        return 0;
    stream->closed = true;
    stream->complete = code == NGHTTP2_NO_ERROR && stream->request_ended && stream->response_ended;
    if (s->head_of == stream)
        http2_head_drop(s);
    if (stream->unconsumed && nghttp2_session_consume_connection(ng, stream->unconsumed) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    stream->unconsumed = 0;
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

static void report_request(struct http2_session *s, struct http2_stream *stream)
{
    struct request_head *head = &s->scratch->request;
    struct framing framing;
    struct refusal refusal;

    http2_head_resume(s);
    stream->reported = true;
    enum request_text_end end =
        request_text_end(&s->text, stream->request_ended, head, &framing, &refusal);
    if (end == REQUEST_TEXT_MALFORMED) {
        s->why = refusal.why;
        stream->reported = false;
        if (nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id,
                                      NGHTTP2_PROTOCOL_ERROR) != 0)
            http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
    } else if (end == REQUEST_TEXT_REFUSED)
        s->events->refused(stream, &refusal, text_slice(&s->text.out));
    else
        s->events->request(stream, head, &framing);
    http2_head_drop(s);
}

static bool is_listening(const struct http2_stream *stream)
{
    return !stream->closed && !stream->detached;
}

void http2_report_received(struct http2_session *s)
{
    struct http2_stream *requested = s->requested, *content_of = s->content_of, *ended = s->ended;
    struct slice content = s->content;

    s->requested = s->content_of = s->ended = NULL;
    s->content = SLICE_NONE;
    if (requested && s->shutdown == SHUTDOWN_DONE && requested->id > s->last_stream) {
        requested->detached = true; /* the GOAWAY that is to be sent closes it */
        http2_head_drop(s);
    } else if (requested && !requested->closed)
        report_request(s, requested);
    if (content_of && is_listening(content_of))
        s->events->content(content_of, content);
    else if (content_of)
        http2_consume(content_of, content.n);
    if (ended && is_listening(ended))
        s->events->content_end(ended);
}
