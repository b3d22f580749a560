#include "http2/session.h"

#include <stdlib.h>

#include "http2/session_internal.h"

enum {
    OUTBOUND_ACKS_MAX = 64, /* SETTINGS and PING acknowledgements that wait to be sent */
    QUEUED_MAX = 16,        /* frames without content that wait to be sent */
    SENT_HEAD_MAX = 128 * 1024,
    FRAME_SIZE_MAX = 16384,           /* RFC 9113 section 4.2: weir does not raise it */
    FRAME_TYPE_PRIORITY_UPDATE = 0x10 /* RFC 9218 section 7.1 */
};

/* Opaque data of the PING that follows the first GOAWAY. */
static const uint8_t shutdown_ping[8] = {'s', 'h', 'u', 't', 'd', 'o', 'w', 'n'};

struct http2_scratch *http2_scratch_new(void)
{
    struct http2_scratch *scratch = malloc(sizeof *scratch);
    if (scratch) {
        scratch->used_by = NULL;
        session_slots_begin(&scratch->slots);
    }
    return scratch;
}

void http2_scratch_free(struct http2_scratch *scratch)
{
    if (scratch)
        session_slots_end(&scratch->slots);
    free(scratch);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static nghttp2_option *new_options(void)
{
    nghttp2_option *option;

    if (nghttp2_option_new(&option) != 0)
        return NULL;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_outbound_ack(option, OUTBOUND_ACKS_MAX);
    nghttp2_option_set_max_send_header_block_length(option, SENT_HEAD_MAX);
    /* frame_begins() counts frames; libnghttp2 1.52 counts each piece of a frame's header */
    nghttp2_option_set_max_continuations(option, HTTP2_CONTINUATIONS_MAX * HTTP2_FRAME_HEADER);
    nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX,
                                               UINT32_MAX); /* LIMIT_RESETS does it */
    return option;
}

static int new_of_role(struct http2_session *s, const nghttp2_session_callbacks *callbacks,
                       const nghttp2_option *option)
{
    nghttp2_mem *memory = &s->memory.functions;

    return s->client ? nghttp2_session_client_new3(&s->ng, callbacks, s, option, memory)
                     : nghttp2_session_server_new3(&s->ng, callbacks, s, option, memory);
}

static bool new_nghttp2_session(struct http2_session *s)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = new_options();
    bool good = option && nghttp2_session_callbacks_new(&callbacks) == 0;

    if (good) {
        http2_received_callbacks(callbacks);
        http2_sent_callbacks(callbacks);
        good = new_of_role(s, callbacks, option) == 0;
    }
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    return good;
}

static bool submit_settings(struct http2_session *s, const struct http2_settings *settings)
{
    const nghttp2_settings_entry entries[] = {
        s->client ? (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0}
                  : (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                             settings->max_concurrent_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)settings->initial_window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)settings->max_header_list},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1}};
    int64_t windows = s->client ? settings->max_concurrent_streams : HTTP2_CONNECTION_WINDOWS;
    int64_t window = (int64_t)settings->initial_window * windows;

    if (window > NGHTTP2_MAX_WINDOW_SIZE)
        window = NGHTTP2_MAX_WINDOW_SIZE;
    return nghttp2_submit_settings(s->ng, NGHTTP2_FLAG_NONE, entries, COUNT_OF(entries)) == 0 &&
           nghttp2_session_set_local_window_size(s->ng, NGHTTP2_FLAG_NONE, 0, (int32_t)window) == 0;
}

struct http2_session *http2_session_new(const struct http2_settings *settings, bool client,
                                        const struct http2_events *events, void *context,
                                        struct http2_scratch *scratch, struct iobuf_pool *pool,
                                        struct iobuf **out, uint64_t now_us)
{
    struct http2_session *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    MAGIC_SET(s, HTTP2_SESSION_MAGIC);
    s->events = events;
    s->context = context;
    s->scratch = scratch;
    session_memory_begin(&s->memory, &scratch->slots);
    s->pool = pool;
    s->out = out;
    s->now_us = now_us;
    s->cause = HTTP2_NO_CAUSE;
    s->client = client;
    s->preface_left = client ? 0 : HTTP2_PREFACE_SIZE;
    s->max_header_list = (uint32_t)settings->max_header_list;
    s->work = true;
    TAILQ_INIT(&s->streams);
    TAILQ_INIT(&s->events_due);
    TAILQ_INIT(&s->no_room);
    frame_limits_begin(&s->limits, settings->resets_per_second, now_us);
    if (new_nghttp2_session(s) && submit_settings(s, settings))
        return s;
    http2_session_free(s);
    return NULL;
}

void http2_session_free(struct http2_session *s)
{
    if (!s)
        return;
    MAGIC_CHECK(s, HTTP2_SESSION_MAGIC);
    nghttp2_session_del(s->ng); /* no callbacks */
    session_memory_end(&s->memory);
    for (struct http2_stream *stream = TAILQ_FIRST(&s->streams), *next; stream; stream = next) {
        next = TAILQ_NEXT(stream, link);
        http2_stream_free(stream);
    }
    http2_head_drop(s);
    MAGIC_WIPE(s);
    free(s);
}

struct http2_stream *http2_stream_new(struct http2_session *s)
{
    struct http2_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    MAGIC_SET(stream, HTTP2_STREAM_MAGIC);
    stream->session = s;
    TAILQ_INSERT_TAIL(&s->streams, stream, link);
    s->stream_count++;
    return stream;
}

void http2_stream_free(struct http2_stream *stream)
{
    struct http2_session *s = stream->session;

    MAGIC_CHECK(stream, HTTP2_STREAM_MAGIC);
    TAILQ_REMOVE(&s->streams, stream, link);
    if (stream->queued != STREAM_QUIET)
        TAILQ_REMOVE(stream->queued == STREAM_NO_ROOM ? &s->no_room : &s->events_due, stream,
                     event_link);
    s->stream_count--;
    MAGIC_WIPE(stream);
    free(stream);
}

void http2_fault(struct http2_session *s, enum http2_cause cause, const char *why)
{
    s->events->fault(s->context, cause, why);
}

static void fail_with(struct http2_session *s, enum http2_cause cause, uint32_t code,
                      const char *why)
{
    if (s->failed)
        return;
    s->failed = s->work = true;
    s->cause = cause;
    if (nghttp2_session_terminate_session(s->ng, code) != 0)
        s->cause = HTTP2_NO_MEMORY;
    http2_fault(s, cause, why);
}

void http2_session_fail(struct http2_session *s, enum http2_cause cause, const char *why)
{
    fail_with(s, cause,
              cause == HTTP2_PROTOCOL_ERROR ? NGHTTP2_PROTOCOL_ERROR
              : cause == HTTP2_NO_MEMORY    ? NGHTTP2_INTERNAL_ERROR
                                            : NGHTTP2_ENHANCE_YOUR_CALM,
              why);
}

void http2_charge(struct http2_session *s, enum frame_limit limit)
{
    if (!frame_limits_take(&s->limits, limit, s->now_us))
        http2_session_fail(s, (enum http2_cause)limit, NULL);
}

bool http2_session_is_over(const struct http2_session *s)
{
    if (s->cause == HTTP2_NO_MEMORY)
        return true;
    return !nghttp2_session_want_write(s->ng) && (s->failed || !nghttp2_session_want_read(s->ng));
}

void http2_session_shut_down(struct http2_session *s)
{
    s->work = true;
    if (s->shutdown == SHUTDOWN_NONE) {
        s->shutdown = SHUTDOWN_NOTICED;
        if (nghttp2_submit_shutdown_notice(s->ng) == 0 &&
            nghttp2_submit_ping(s->ng, NGHTTP2_FLAG_NONE, shutdown_ping) == 0)
            return;
    }
    if (s->shutdown == SHUTDOWN_DONE)
        return;
    s->shutdown = SHUTDOWN_DONE;
    s->last_stream = nghttp2_session_get_last_proc_stream_id(s->ng);
    if (nghttp2_submit_goaway(s->ng, NGHTTP2_FLAG_NONE, s->last_stream, NGHTTP2_NO_ERROR, NULL,
                              0) != 0)
        s->cause = HTTP2_NO_MEMORY;
}

void http2_ping_returned(struct http2_session *s, const uint8_t *opaque)
{
    if (s->shutdown == SHUTDOWN_NOTICED && memcmp(opaque, shutdown_ping, sizeof shutdown_ping) == 0)
        http2_session_shut_down(s);
    else if (s->rests_pinged && memcmp(opaque, http2_rests_ping, sizeof http2_rests_ping) == 0)
        http2_end_rests(s);
}

/* ---- input ----------------------------------------------------------------------------------- */

static int32_t frame_stream(const struct http2_session *s)
{
    return (int32_t)(((uint32_t)s->header[5] & 0x7f) << 24 | (uint32_t)s->header[6] << 16 |
                     (uint32_t)s->header[7] << 8 | s->header[8]);
}

/* Returns whether the frame belongs to a stream that was closed. nghttp2 decodes and drops it. */
static bool is_on_closed_stream(const struct http2_session *s)
{
    int32_t id = frame_stream(s);
    return (s->client || id <= nghttp2_session_get_last_proc_stream_id(s->ng)) &&
           !nghttp2_session_get_stream_user_data(s->ng, id);
}

/* Ends the session if DATA or HEADERS on a closed stream cannot be late. nghttp2 would drop them:
 * it does not store why a stream was closed. */
static void check_closed_stream(struct http2_session *s)
{
    int32_t id = frame_stream(s);

    if (s->client || id % 2 == 0 || (s->shutdown == SHUTDOWN_DONE && id > s->last_stream))
        return;
    switch (closed_streams_kind(&s->closed, id)) {
    case CLOSED_LATE: break;
    case CLOSED_ENDED:
        fail_with(s, HTTP2_PROTOCOL_ERROR, NGHTTP2_STREAM_CLOSED, "a frame on a closed stream");
        break;
    case CLOSED_SKIPPED:
        fail_with(s, HTTP2_PROTOCOL_ERROR, NGHTTP2_PROTOCOL_ERROR,
                  "a stream lower than an earlier one");
    }
}

static void headers_begin(struct http2_session *s)
{
    s->continuations = 0;
    if (is_on_closed_stream(s)) {
        check_closed_stream(s);
        http2_charge(s, LIMIT_RESETS);
    } else if (!s->client)
        closed_streams_opened(&s->closed, frame_stream(s));
}

static void data_begins(struct http2_session *s)
{
    enum { FLAG_END_STREAM = 1, FLAG_PADDED = 8 };
    uint8_t flags = s->header[4];

    if (is_on_closed_stream(s))
        check_closed_stream(s);
    if (flags & FLAG_END_STREAM)
        return;
    if (s->payload_left == 0)
        http2_charge(s, LIMIT_EMPTY_FRAMES);
    else
        s->padded = flags & FLAG_PADDED;
}

/* The first byte of a padded DATA frame. Padding alone is as good as nothing. */
static void padding_begins(struct http2_session *s, uint8_t size)
{
    s->padded = false;
    if (s->payload_left <= 1u + size)
        http2_charge(s, LIMIT_EMPTY_FRAMES);
}

static void priority_begins(struct http2_session *s)
{
    if (s->header[3] == NGHTTP2_PRIORITY && frame_stream(s) == 0) /* RFC 9113 section 6.3 */
        fail_with(s, HTTP2_PROTOCOL_ERROR, NGHTTP2_PROTOCOL_ERROR, "PRIORITY on stream 0");
    else
        http2_charge(s, LIMIT_PRIORITIES);
}

/* Charges the frame whose header was received. Limits are checked before the frame is processed. */
static void frame_begins(struct http2_session *s)
{
    switch (s->header[3]) {
    case NGHTTP2_HEADERS: headers_begin(s); break;
    case NGHTTP2_CONTINUATION:
        if (++s->continuations > HTTP2_CONTINUATIONS_MAX)
            http2_session_fail(s, HTTP2_CONTINUATIONS, NULL);
        else if (s->payload_left > FRAME_SIZE_MAX) /* libnghttp2 checks only other frames */
            fail_with(s, HTTP2_PROTOCOL_ERROR, NGHTTP2_FRAME_SIZE_ERROR,
                      "a CONTINUATION frame above 16,384 bytes");
        break;
    case NGHTTP2_DATA: data_begins(s); break;
    case NGHTTP2_RST_STREAM: /* a server resets only what weir has opened */
        if (!s->client || is_on_closed_stream(s))
            http2_charge(s, LIMIT_RESETS);
        break;
    case NGHTTP2_SETTINGS: http2_charge(s, LIMIT_SETTINGS); break;
    case NGHTTP2_PING: http2_charge(s, LIMIT_PINGS); break;
    case NGHTTP2_WINDOW_UPDATE: http2_charge(s, LIMIT_WINDOW_UPDATES); break;
    case NGHTTP2_PRIORITY:
    case FRAME_TYPE_PRIORITY_UPDATE: priority_begins(s); break;
    default: http2_charge(s, LIMIT_OTHER_FRAMES);
    }
}

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* Returns how many of the bytes belong to one frame or to the preface. */
static size_t next_part(struct http2_session *s, struct slice bytes)
{
    size_t n = 0;

    if (s->preface_left) {
        n = at_most(bytes.n, s->preface_left);
        s->preface_left -= (uint8_t)n;
        return n;
    }
    if (s->payload_left == 0) {
        n = at_most(bytes.n, (size_t)(HTTP2_FRAME_HEADER - s->header_size));
        memcpy(s->header + s->header_size, bytes.p, n);
        s->header_size += (uint8_t)n;
        if (s->header_size < HTTP2_FRAME_HEADER)
            return n;
        s->header_size = 0;
        s->payload_left = (uint32_t)s->header[0] << 16 | (uint32_t)s->header[1] << 8 | s->header[2];
        frame_begins(s);
    }
    size_t payload = at_most(bytes.n - n, s->payload_left);
    if (payload && s->padded)
        padding_begins(s, (uint8_t)bytes.p[n]);
    s->payload_left -= (uint32_t)payload;
    return n + payload;
}

static void receive_failed(struct http2_session *s, ssize_t error)
{
    if (error == NGHTTP2_ERR_NOMEM || error == NGHTTP2_ERR_CALLBACK_FAILURE)
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
    else if (error == NGHTTP2_ERR_FLOODED)
        http2_session_fail(
            s, (enum http2_cause)(s->header[3] == NGHTTP2_PING ? LIMIT_PINGS : LIMIT_SETTINGS),
            "too many unsent acknowledgements");
    else
        http2_session_fail(s, HTTP2_PROTOCOL_ERROR, nghttp2_strerror((int)error));
}

/* nghttp2 gets one frame at a time, so that events are reported outside its callbacks, where its
 * functions may be called. */
void http2_session_receive(struct http2_session *s, struct slice bytes, uint64_t now_us)
{
    MAGIC_CHECK(s, HTTP2_SESSION_MAGIC);
    s->now_us = now_us;
    s->work = true;
    while (bytes.n && !s->failed) {
        size_t part = next_part(s, bytes);
        if (s->failed)
            break;
        ssize_t n = nghttp2_session_mem_recv(s->ng, (const uint8_t *)bytes.p, part);
        if (n < 0)
            receive_failed(s, n);
        else
            http2_report_received(s);
        bytes.p += part;
        bytes.n -= part;
    }
    if (!s->failed && !http2_head_keep(s))
        http2_session_fail(s, HTTP2_NO_MEMORY, NULL);
}

/* ---- small accessors ------------------------------------------------------------------------- */

unsigned http2_session_streams(const struct http2_session *s)
{
    return s->stream_count;
}

bool http2_session_is_open(const struct http2_session *s)
{
    return s->open;
}

uint64_t http2_session_head_since(const struct http2_session *s)
{
    return s->head_of ? s->head_since_us : 0;
}

bool http2_session_takes_input(const struct http2_session *s)
{
    return !s->failed && nghttp2_session_get_outbound_queue_size(s->ng) < QUEUED_MAX;
}

bool http2_session_has_work(const struct http2_session *s)
{
    return s->work;
}

void *http2_session_context(const struct http2_session *s)
{
    return s->context;
}

struct http2_session *http2_stream_session(const struct http2_stream *stream)
{
    return stream->session;
}

void *http2_stream_user(const struct http2_stream *stream)
{
    return stream->user;
}

void http2_stream_set_user(struct http2_stream *stream, void *user)
{
    stream->user = user;
}
