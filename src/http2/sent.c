/* sent.c - responses, content and trailers. Content goes from the caller's memory to the output
 * buffer, at the moment when nghttp2 asks for it. */
#include "http2/session_internal.h"

enum {
    FRAME_MIN = 1024, /* room in the output buffer for which a DATA frame is begun */
    SMALL_FRAME_MAX =
        64,         /* smaller frames, because of a small window, count for LIMIT_SMALL_WINDOWS */
    LATE_FRAMES = 2 /* frames that cross a reset: head and trailers, or a reset */
};

/* ---- output ---------------------------------------------------------------------------------- */

/* Returns the room in the output buffer; 0 also if there is no memory for one. */
static size_t out_room(struct http2_session *s)
{
    if (!*s->out && !(*s->out = iobuf_get(s->pool, IOBUF_LARGE)))
        return 0;
    if (iobuf_room(*s->out) < NGHTTP2_INITIAL_WINDOW_SIZE / 2)
        iobuf_compact(*s->out);
    return iobuf_room(*s->out);
}

static ssize_t on_send(nghttp2_session *ng, const uint8_t *bytes, size_t n, int flags,
                       void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    size_t room = out_room(s);
    (void)ng, (void)flags;

    if (!session_memory_reserve(&s->memory))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (room == 0)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (n > room)
        n = room;
    iobuf_append(*s->out, (struct slice){(const char *)bytes, n});
    return (ssize_t)n;
}

/* Produces output; the events that this causes stay queued. */
static void produce(struct http2_session *s)
{
    if (s->sending)
        return;
    s->sending = true;
    int error = nghttp2_session_send(s->ng);
    s->sending = false;
    if (error != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, nghttp2_strerror(error));
}

/* ---- content --------------------------------------------------------------------------------- */

static void wait_for_room(struct http2_stream *stream)
{
    if (stream->queued == STREAM_QUIET) {
        stream->queued = STREAM_NO_ROOM;
        TAILQ_INSERT_TAIL(&stream->session->no_room, stream, event_link);
    }
}

/* The content has ended: gives nghttp2 the trailers instead. */
static ssize_t give_trailers(struct http2_session *s, int32_t id, uint32_t *flags)
{
    nghttp2_nv *pairs = s->scratch->pairs;
    size_t n = 0;

    for (unsigned i = 0; i < s->trailers->count; i++)
        if (!s->trailers->at[i].hop_by_hop)
            pairs[n++] = http2_pair(s, s->trailers->at[i].name, s->trailers->at[i].value);
    http2_never_index(pairs, n, s->trailers->never_indexed);
    if (nghttp2_submit_trailer(s->ng, id, pairs, n) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    s->trailers_of = NULL;
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return 0;
}

/* nghttp2 asks for at most `most` bytes, as much as the windows permit. */
static ssize_t on_wanted(nghttp2_session *ng, int32_t id, uint8_t *unused, size_t most,
                         uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = source->ptr;
    size_t n = stream->piece.n, room;
    (void)ng, (void)unused;

    MAGIC_CHECK(stream, HTTP2_STREAM_MAGIC);
    if (s->trailers_of == stream)
        return give_trailers(s, id, flags);
    if (n == 0 && !stream->piece_ends) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    room = out_room(s);
    if (room < HTTP2_FRAME_HEADER + (n < FRAME_MIN ? n : FRAME_MIN)) {
        stream->deferred = true;
        wait_for_room(stream);
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > room - HTTP2_FRAME_HEADER)
        n = room - HTTP2_FRAME_HEADER;
    if (n > most) {
        n = most;
        if (n < SMALL_FRAME_MAX)
            http2_charge(s, LIMIT_SMALL_WINDOWS);
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n == stream->piece.n && stream->piece_ends)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

/* Writes the DATA frame that on_wanted() has announced: there is room for it. */
static int on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *header, size_t n,
                        nghttp2_data_source *source, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = source->ptr;
    (void)ng, (void)frame;

    iobuf_append(*s->out, (struct slice){(const char *)header, HTTP2_FRAME_HEADER});
    if (n == 0)
        return 0;
    iobuf_append(*s->out, (struct slice){stream->piece.p, n});
    stream->piece.p += n;
    stream->piece.n -= n;
    return 0;
}

nghttp2_data_provider http2_content_of(struct http2_stream *stream)
{
    return (nghttp2_data_provider){.source.ptr = stream, .read_callback = on_wanted};
}

/* Lets nghttp2 ask for what the stream has to send. */
static void offer(struct http2_stream *stream)
{
    struct http2_session *s = stream->session;

    if (stream->deferred) {
        stream->deferred = false;
        (void)nghttp2_session_resume_data(s->ng, stream->id);
    }
    produce(s);
    s->work = true;
}

size_t http2_send_content(struct http2_stream *stream, struct slice bytes, bool end)
{
    MAGIC_CHECK(stream, HTTP2_STREAM_MAGIC);
    if (stream->closed || stream->sent_all)
        return bytes.n; /* `closed` follows */
    stream->piece = bytes;
    stream->piece_ends = end;
    offer(stream);
    size_t taken = bytes.n - stream->piece.n;
    if (stream->piece.n && !stream->closed) {
        stream->piece_ends = false; /* until the rest is offered again */
        wait_for_room(stream);
    }
    stream->end_given = end && taken == bytes.n;
    stream->piece = SLICE_NONE;
    return stream->closed ? bytes.n : taken;
}

static bool out_has_room(const struct http2_session *s)
{
    return iobuf_held(*s->out) < IOBUF_READ_MAX / 2;
}

/* Returns whether the output buffer and the connection's window have room. */
static bool takes_some(const struct http2_session *s)
{
    return out_has_room(s) && nghttp2_session_get_remote_window_size(s->ng) > 0;
}

static bool has_window(const struct http2_stream *stream)
{
    return nghttp2_session_get_stream_remote_window_size(stream->session->ng, stream->id) > 0;
}

bool http2_takes_content(struct http2_stream *stream)
{
    if (stream->closed || stream->sent_all || (takes_some(stream->session) && has_window(stream)))
        return true;
    wait_for_room(stream);
    return false;
}

bool http2_send_trailers(struct http2_stream *stream, const struct fields *trailers)
{
    struct http2_session *s = stream->session;

    MAGIC_CHECK(stream, HTTP2_STREAM_MAGIC);
    if (stream->closed || stream->sent_all)
        return true; /* `closed` follows */
    s->trailers_of = stream;
    s->trailers = trailers;
    offer(stream);
    bool taken = s->trailers_of == NULL;
    s->trailers_of = NULL;
    stream->end_given = taken;
    if (!taken && !stream->closed)
        wait_for_room(stream);
    return taken || stream->closed;
}

/* ---- heads ----------------------------------------------------------------------------------- */

bool http2_send_interim(struct http2_stream *stream, unsigned status,
                        const struct http2_field *fields, unsigned count, uint64_t never_indexed)
{
    struct http2_session *s = stream->session;
    size_t n = http2_write_pairs(s, status, fields, count, never_indexed);

    s->work = true;
    return stream->closed || (n && nghttp2_submit_headers(s->ng, NGHTTP2_FLAG_NONE, stream->id,
                                                          NULL, s->scratch->pairs, n, NULL) == 0);
}

bool http2_send_head(struct http2_stream *stream, unsigned status, const struct http2_field *fields,
                     unsigned count, uint64_t never_indexed, bool end)
{
    struct http2_session *s = stream->session;
    nghttp2_data_provider content = http2_content_of(stream);
    size_t n = http2_write_pairs(s, status, fields, count, never_indexed);

    s->work = true;
    stream->end_given = end;
    return stream->closed || (n && nghttp2_submit_response(s->ng, stream->id, s->scratch->pairs, n,
                                                           end ? NULL : &content) == 0);
}

/* ---- resets and the end ---------------------------------------------------------------------- */

static void reset(struct http2_stream *stream, uint32_t code)
{
    struct http2_session *s = stream->session;

    if (stream->own_reset || stream->closed)
        return;
    stream->own_reset = s->work = true;
    if (nghttp2_submit_rst_stream(s->ng, NGHTTP2_FLAG_NONE, stream->id, code) != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
}

void http2_reset(struct http2_stream *stream)
{
    reset(stream, stream->session->client ? NGHTTP2_CANCEL : NGHTTP2_INTERNAL_ERROR);
}

void http2_consume(struct http2_stream *stream, size_t size)
{
    struct http2_session *s = stream->session;

    if (size > stream->unconsumed)
        size = stream->unconsumed;
    if (size == 0)
        return;
    stream->unconsumed -= (uint32_t)size;
    s->work = true;
    if (nghttp2_session_consume(s->ng, stream->id, size) != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
}

/* A stream whose response is complete gets no more window: its client is to stop. */
void http2_drop(struct http2_stream *stream, size_t size)
{
    if (stream->rest == REST_NONE)
        http2_consume(stream, size);
    else {
        http2_session_consume(stream->session, stream->unconsumed);
        stream->unconsumed = 0;
    }
}

void http2_session_consume(struct http2_session *s, size_t size)
{
    if (size == 0)
        return;
    s->work = true;
    if (nghttp2_session_consume_connection(s->ng, size) != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
}

size_t http2_stream_keep_content(struct http2_stream *stream)
{
    size_t size = stream->unconsumed;
    stream->unconsumed = 0;
    return size;
}

const uint8_t http2_rests_ping[8] = "weirRest";

static void ping_for_rests(struct http2_session *s)
{
    struct http2_stream *stream;

    if (nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, http2_rests_ping) != 0)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
    s->rests_pinged = s->work = true;
    frame_limits_add(&s->limits, LIMIT_PINGS, 1);
    TAILQ_FOREACH (stream, &s->streams, link)
        if (stream->rest == REST_AWAITED)
            stream->rest = REST_PINGED;
}

/* The response is complete, the request is not. A reset together with the response would end it
 * for clients like curl 7.88, which have not read it yet. */
static void await_rest(struct http2_stream *stream)
{
    if (stream->rest != REST_NONE || stream->own_reset || stream->closed)
        return;
    stream->rest = REST_AWAITED;
    if (!stream->session->rests_pinged)
        ping_for_rests(stream->session);
}

void http2_end_rests(struct http2_session *s)
{
    struct http2_stream *stream;
    bool more = false;

    s->rests_pinged = false;
    TAILQ_FOREACH (stream, &s->streams, link)
        if (stream->rest == REST_PINGED)
            reset(stream, NGHTTP2_NO_ERROR);
        else
            more |= stream->rest == REST_AWAITED;
    if (more)
        ping_for_rests(s);
}

void http2_stream_detach(struct http2_stream *stream)
{
    stream->detached = true;
    stream->user = NULL;
    http2_consume(stream, stream->unconsumed);
    bool client = stream->session->client;
    if (!client && stream->sent_all && !stream->received_all)
        await_rest(stream);
    else if (client || !stream->end_given)
        http2_reset(stream);
}

/* Names what the peer has caused by the code of a RST_STREAM. */
static enum http2_cause cause_of_reset(uint32_t code)
{
    return code == NGHTTP2_REFUSED_STREAM      ? HTTP2_TOO_MANY_STREAMS
           : code == NGHTTP2_ENHANCE_YOUR_CALM ? HTTP2_HEADER_LIST
                                               : HTTP2_MALFORMED;
}

/* `stream`: NULL if it was closed before the reset was sent. */
static bool is_own_reset(const struct http2_stream *stream, uint32_t code)
{
    return stream ? stream->own_reset
                  : code == NGHTTP2_NO_ERROR || code == NGHTTP2_CANCEL ||
                        code == NGHTTP2_INTERNAL_ERROR;
}

/* A reset of weir that the peer has provoked costs as much as one of the peer (CVE-2025-8671).
 * Client's role: the server may answer a stream's reset before it receives it. */
void http2_reset_fault(struct http2_session *s, struct http2_stream *stream, uint32_t code)
{
    enum http2_cause cause = cause_of_reset(code);
    const char *why = s->why;

    s->why = NULL;
    if (s->client)
        frame_limits_add(&s->limits, LIMIT_RESETS, LATE_FRAMES);
    if (is_own_reset(stream, code))
        return;
    if (stream)
        stream->why = why ? why : http2_cause_text[cause];
    http2_fault(s, cause, why);
    http2_charge(s, LIMIT_RESETS);
}

static void sent_all(struct http2_stream *stream)
{
    stream->sent_all = true;
    if (stream->detached && !stream->received_all)
        await_rest(stream);
}

static void message_frame_sent(struct http2_session *s, struct http2_stream *stream,
                               const nghttp2_frame *frame)
{
    frame_limits_sent(&s->limits, frame->hd.length);
    if (s->client) /* after an early response, Go answers each DATA frame with RST_STREAM */
        frame_limits_add(&s->limits, LIMIT_RESETS, 1);
    if (stream && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        sent_all(stream);
}

static int on_frame_sent(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    struct http2_session *s = http2_session_of(user_data);
    struct http2_stream *stream = NULL;

    if (frame->hd.stream_id)
        stream = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
    case NGHTTP2_HEADERS: message_frame_sent(s, stream, frame); break;
    case NGHTTP2_RST_STREAM:
        closed_streams_reset(&s->closed, frame->hd.stream_id);
        http2_reset_fault(s, stream, frame->rst_stream.error_code);
        break;
    case NGHTTP2_GOAWAY:
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && !s->failed) {
            s->failed = true;
            s->cause = HTTP2_PROTOCOL_ERROR;
            http2_fault(s, HTTP2_PROTOCOL_ERROR, nghttp2_http2_strerror(frame->goaway.error_code));
        }
        break;
    default: break;
    }
    return 0;
}

void http2_sent_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
}

/* ---- events ---------------------------------------------------------------------------------- */

void http2_stream_due(struct http2_stream *stream)
{
    struct http2_session *s = stream->session;

    s->work = true;
    if (stream->queued == STREAM_HAS_EVENT)
        return;
    if (stream->queued == STREAM_NO_ROOM)
        TAILQ_REMOVE(&s->no_room, stream, event_link);
    stream->queued = STREAM_HAS_EVENT;
    TAILQ_INSERT_TAIL(&s->events_due, stream, event_link);
}

static void report_closed(struct http2_stream *stream)
{
    struct http2_session *s = stream->session;

    TAILQ_REMOVE(&s->events_due, stream, event_link);
    stream->queued = STREAM_QUIET;
    if (stream->reported && !stream->detached)
        s->events->closed(stream, stream->complete);
    http2_session_consume(s, stream->unconsumed);
    http2_stream_free(stream);
}

/* Gives each stream in `no_room` about one turn, in order. A stream whose rest is not taken goes to
 * the end: streams share the connection's window. nghttp2 would always begin with the same one. */
static void give_turns(struct http2_session *s)
{
    struct http2_stream *stream;

    for (unsigned n = s->stream_count; n && takes_some(s) && (stream = TAILQ_FIRST(&s->no_room));
         n--) {
        TAILQ_REMOVE(&s->no_room, stream, event_link);
        stream->queued = STREAM_QUIET;
        if (!has_window(stream))
            wait_for_room(stream);
        else if (stream->end_given)
            offer(stream); /* the end, for which there was no room */
        else if (!stream->detached)
            s->events->writable(stream);
    }
}

void http2_session_send(struct http2_session *s)
{
    struct http2_stream *stream;

    MAGIC_CHECK(s, HTTP2_SESSION_MAGIC);
    produce(s);
    give_turns(s);
    while ((stream = TAILQ_FIRST(&s->events_due)))
        report_closed(stream);
    produce(s);
    s->work = !TAILQ_EMPTY(&s->events_due) || (!out_has_room(s) && !TAILQ_EMPTY(&s->no_room));
    if (*s->out && iobuf_held(*s->out) == 0)
        iobuf_put(s->pool, s->out);
}
