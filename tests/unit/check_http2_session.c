/* HTTP/2 sessions of clients: events, flow control, bounds. The client sends raw frames; what the
 * session sends is read by nghttp2's own client where its meaning matters. */
#include <stdarg.h>
#include <stdio.h>

#include "http2/closed_streams.h"
#include "http2/session_internal.h"
#include "http2_cases.h"
#include "http2_peer.h"
#include "run_suite.h"

enum { REPLY_MAX = 1024 * 1024 };

static struct http2_session *session;
static struct http2_scratch *scratch;
static struct iobuf_pool pool;
static struct iobuf *out;
static struct peer peer;
static uint64_t now_us;

/* what the session has reported */
static char events[64 * 1024];
static enum http2_cause last_fault;
static struct http2_stream *last_stream;

/* what the session is to do */
static bool hold_content; /* do not consume */
static bool keep_content; /* ... when the stream closes */
static size_t kept;
static size_t reply_size; /* content of responses; 0: none */
static bool no_reply;

/* frames that the session has sent, by type; and content bytes */
static unsigned sent[256], end_streams;
static size_t content_sent, content_of[1024]; /* of all; by stream */
static uint32_t last_code, last_goaway_stream;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t n = strlen(events);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(events + n, sizeof events - n, format, arguments);
    va_end(arguments);
}

struct reply {
    size_t left;
};

static struct reply replies[1024]; /* by stream */
static char zeros[REPLY_MAX];

static void send_reply(struct http2_stream *stream, struct reply *reply)
{
    reply->left -= http2_send_content(stream, (struct slice){zeros, reply->left}, true);
}

static void respond(struct http2_stream *stream)
{
    struct http2_field fields[] = {{SLICE("Content-Type"), SLICE("text/plain")}};
    struct reply *reply = &replies[stream->id / 2];

    http2_stream_set_user(stream, reply);
    reply->left = reply_size;
    ck_assert(http2_send_head(stream, 200, fields, 1, 0, reply_size == 0));
    if (reply_size)
        send_reply(stream, reply);
}

static void on_request(struct http2_stream *stream, struct request_head *head,
                       const struct framing *framing)
{
    static const char *const kinds[] = {"none", "length", "unknown"};
    note("request %u %.*s %.*s %s;", stream->id, SLICE_ARG(head->method_text),
         SLICE_ARG(head->path), kinds[framing->kind]);
    last_stream = stream;
    if (!no_reply && framing->kind == FRAMING_NONE)
        respond(stream);
}

static void on_refused(struct http2_stream *stream, const struct refusal *refusal,
                       struct slice text)
{
    (void)text;
    note("refused %u %u;", stream->id, refusal->status);
    ck_assert(http2_send_head(stream, refusal->status, NULL, 0, 0, true));
    http2_stream_detach(stream);
}

static void on_content(struct http2_stream *stream, struct slice bytes)
{
    note("content %u %zu;", stream->id, bytes.n);
    if (!hold_content)
        http2_consume(stream, bytes.n);
}

static void on_content_end(struct http2_stream *stream, struct slice trailers)
{
    note("end %u;%.*s", stream->id, SLICE_ARG(trailers));
    if (!no_reply)
        respond(stream);
}

static void on_writable(struct http2_stream *stream)
{
    send_reply(stream, http2_stream_user(stream));
}

static void on_closed(struct http2_stream *stream, bool complete)
{
    note("closed %u %s;", stream->id, complete ? "complete" : "cut");
    if (keep_content)
        kept += http2_stream_keep_content(stream);
}

static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    (void)context, (void)why;
    note("fault %s;", http2_cause_name[cause]);
    last_fault = cause;
}

static const struct http2_events table = {.request = on_request,
                                          .refused = on_refused,
                                          .content = on_content,
                                          .content_end = on_content_end,
                                          .writable = on_writable,
                                          .closed = on_closed,
                                          .fault = on_fault};

static struct http2_settings settings;

static void start(void)
{
    settings = (struct http2_settings){100, 65536, 32768, 100};
    scratch = http2_scratch_new();
    now_us = 1000000;
    events[0] = '\0';
    last_fault = HTTP2_NO_CAUSE;
    hold_content = keep_content = no_reply = false;
    kept = 0;
    reply_size = 5;
    memset(sent, 0, sizeof sent);
    end_streams = 0;
    content_sent = 0;
    memset(content_of, 0, sizeof content_of);
    peer_begin(&peer);
    session = NULL;
}

static void begin(void)
{
    session = http2_session_new(&settings, false, &table, NULL, scratch, &pool, &out, now_us);
    ck_assert_ptr_nonnull(session);
}

static void stop(void)
{
    http2_session_free(session);
    http2_scratch_free(scratch);
    iobuf_put(&pool, &out);
    iobuf_pool_clear(&pool);
    peer_end(&peer);
}

/* Counts the frames in the output and empties it, as a socket would. */
static bool read_output(void)
{
    static uint8_t frame[IOBUF_LARGE + 16384];
    static size_t held;
    if (!iobuf_held(out))
        return false;
    struct slice bytes = iobuf_slice(out);
    memcpy(frame + held, bytes.p, bytes.n);
    held += bytes.n;
    iobuf_take(out, bytes.n);
    iobuf_put(&pool, &out);
    size_t at = 0;
    while (held - at >= 9) {
        const uint8_t *p = frame + at;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        if (held - at < 9 + n)
            break;
        sent[p[3]]++;
        if (p[3] == NGHTTP2_DATA) {
            content_sent += n;
            content_of[((uint32_t)p[7] << 8 | p[8]) / 2 % COUNT_OF(content_of)] += n;
        }
        if (p[3] <= NGHTTP2_HEADERS && p[4] & END_STREAM)
            end_streams++;
        if (p[3] == NGHTTP2_RST_STREAM)
            last_code = (uint32_t)p[11] << 8 | p[12];
        if (p[3] == NGHTTP2_GOAWAY) {
            last_goaway_stream =
                (uint32_t)p[9] << 24 | (uint32_t)p[10] << 16 | (uint32_t)p[11] << 8 | p[12];
            last_code = (uint32_t)p[15] << 8 | p[16];
        }
        at += 9 + n;
    }
    memmove(frame, frame + at, held -= at);
    return true;
}

static void run_output(void)
{
    do
        http2_session_send(session);
    while (read_output());
}

/* Gives the session all frames of the peer, `step` bytes at a time. */
static void deliver_in_steps(size_t step)
{
    if (!session)
        begin();
    for (size_t at = 0; at < peer.n; at += step) {
        size_t n = peer.n - at < step ? peer.n - at : step;
        http2_session_receive(session, (struct slice){peer.bytes + at, n}, now_us);
        run_output();
    }
    peer.n = 0;
}

static void deliver(void)
{
    deliver_in_steps(16384);
}

/* ---- requests -------------------------------------------------------------------------------- */

START_TEST(requests_are_reported_and_get_responses)
{
    static const size_t steps[] = {16384, 1, 7, 10, 33};
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    peer_headers(&peer, 0, 3, PEER_POST "|content-length=5");
    peer_frame(&peer, NGHTTP2_DATA, END_STREAM, 3, "hello", 5);
    peer_headers(&peer, 0, 5, PEER_POST);
    peer_frame(&peer, NGHTTP2_DATA, 0, 5, "hello", 5);
    peer_headers(&peer, END_STREAM, 5, "x-checksum=1");
    deliver_in_steps(steps[_i]);
    ck_assert_int_eq(http2_session_streams(session), 0);
    ck_assert_uint_eq(content_sent, 15);
    ck_assert_uint_eq(end_streams, 3);
    ck_assert_ptr_null(out);
    if (_i == 0)
        ck_assert_str_eq(events, "request 1 GET / none;request 3 POST / length;content 3 5;end 3;"
                                 "request 5 POST / unknown;content 5 5;end 5;x-checksum: 1\r\n\r\n"
                                 "closed 1 complete;closed 3 complete;closed 5 complete;");
}
END_TEST

START_TEST(a_request_can_be_refused_with_a_status)
{
    peer_headers(&peer, END_STREAM, 1, ":method=GET|:scheme=https|:authority=a..b|:path=/");
    peer_headers(&peer, 0, 3, ":method=CONNECT|:authority=a.test:443");
    peer_headers(&peer, END_STREAM, 5, PEER_GET);
    deliver();
    ck_assert_str_eq(events, "refused 1 400;refused 3 501;request 5 GET / none;closed 5 complete;");
    ck_assert_int_eq(http2_session_streams(session), 1); /* CONNECT would send content */
}
END_TEST

/* ---- conformance (http2_cases.h) -------------------------------------------------------------- */

static void take_step(const char *name, const struct http2_step *step, size_t at_once)
{
    if (step->type == STEP_FIELDS) {
        peer_headers(&peer, step->flags, step->stream, step->payload);
        return;
    }
    if (step->type >= 0) {
        peer_frame(&peer, (unsigned)step->type, step->flags, step->stream, step->payload, step->n);
        return;
    }
    no_reply |= step->type == STEP_UNANSWERED;
    deliver_in_steps(at_once);
    if (step->type == STEP_CONTENT)
        ck_assert_msg(content_sent == step->stream, "%s: %zu bytes of content", name, content_sent);
    if (step->type == STEP_EVENT)
        ck_assert_msg(strstr(events, step->payload) != NULL, "%s: %s", name, events);
}

static void assert_connection_is_usable(const char *name)
{
    static const char window[] = "\0\4\0\0\xff\xff"; /* the initial one of the standard */

    no_reply = false;
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, window, sizeof window - 1);
    deliver();
    unsigned before = end_streams;
    peer_headers(&peer, END_STREAM, 9, PEER_GET);
    deliver();
    ck_assert_msg(end_streams == before + 1, "%s: the connection is not usable: %s", name, events);
}

/* Each case is delivered in one piece and byte by byte. After a stream error the connection must
 * still work. */
START_TEST(frames_are_validated_as_in_the_rfcs)
{
    const struct http2_case *c = &http2_cases[_i / 2];
    size_t at_once = _i % 2 ? 1 : 65536;

    for (const struct http2_step *step = c->steps; step < c->steps + STEPS_MAX && step->payload;
         step++)
        take_step(c->name, step, at_once);
    deliver_in_steps(at_once);
    ck_assert_msg(sent[NGHTTP2_GOAWAY] == (c->outcome == OUTCOME_CONNECTION_ERROR), "%s: %s",
                  c->name, events);
    ck_assert_msg((sent[NGHTTP2_RST_STREAM] > 0) == (c->outcome == OUTCOME_STREAM_ERROR), "%s: %s",
                  c->name, events);
    if (c->outcome != OUTCOME_ACCEPTED)
        ck_assert_msg(last_code == c->code, "%s: code %u", c->name, last_code);
    ck_assert_msg(http2_session_is_over(session) == (c->outcome == OUTCOME_CONNECTION_ERROR), "%s",
                  c->name);
    if (c->outcome == OUTCOME_CONNECTION_ERROR) {
        ck_assert_msg(last_fault == HTTP2_PROTOCOL_ERROR, "%s", c->name);
        return;
    }
    ck_assert_msg(c->outcome == OUTCOME_STREAM_ERROR || strstr(events, "request ") ||
                      strstr(events, "refused "),
                  "%s: %s", c->name, events);
    assert_connection_is_usable(c->name);
}
END_TEST

START_TEST(another_protocol_is_refused)
{
    static const char *const others[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and more bytes"};
    peer.n = 0;
    peer_put(&peer, others[_i], strlen(others[_i]));
    deliver();
    ck_assert(http2_session_is_over(session));
    ck_assert_int_eq(last_fault, HTTP2_PROTOCOL_ERROR);
}
END_TEST

START_TEST(the_preface_requires_settings)
{
    peer.n = 0;
    peer_put(&peer, http2_preface, HTTP2_PREFACE_SIZE);
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    ck_assert(http2_session_is_over(session));
    ck_assert_str_eq(events, "fault protocol_error;");
}
END_TEST

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Delivers `each` repeatedly, until the session fails; returns how often. */
static unsigned flood(void (*each)(unsigned i), unsigned most)
{
    unsigned i;
    for (i = 0; i < most && (last_fault == HTTP2_NO_CAUSE || last_fault == HTTP2_MALFORMED); i++) {
        each(i);
        deliver();
    }
    return i;
}

static void rapid_reset(unsigned i)
{
    peer_headers(&peer, END_STREAM, 2 * i + 1, PEER_GET);
    peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 2 * i + 1, NGHTTP2_CANCEL);
}

static void made_you_reset(unsigned i) /* CVE-2025-8671 */
{
    peer_headers(&peer, 0, 2 * i + 1, PEER_POST);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 2 * i + 1, 0x7fffffff);
}

static void settings_frame(unsigned i)
{
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, i);
}

static void ping(unsigned i)
{
    (void)i;
    peer_frame(&peer, NGHTTP2_PING, 0, 0, "12345678", 8);
}

static void priority(unsigned i)
{
    peer_frame(&peer, NGHTTP2_PRIORITY, 0, 2 * i + 1, "\0\0\0\0\1", 5);
}

static void priority_update(unsigned i)
{
    (void)i;
    peer_frame(&peer, 0x10, 0, 0, "\0\0\0\1u=1", 7);
}

static void window_update(unsigned i)
{
    (void)i;
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1);
}

static void empty_data(unsigned i)
{
    if (i == 0)
        peer_headers(&peer, 0, 1, PEER_POST);
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, NULL, 0);
}

static void padding_alone(unsigned i)
{
    if (i == 0)
        peer_headers(&peer, 0, 1, PEER_POST);
    peer_frame(&peer, NGHTTP2_DATA, PADDED, 1, "\3\0\0\0", 4);
}

static void unknown_frame(unsigned i)
{
    (void)i;
    peer_frame(&peer, 0x77, 0, 0, NULL, 0);
}

static void continuation(unsigned i)
{
    if (i == 0)
        peer_frame(&peer, NGHTTP2_HEADERS, END_STREAM, 1, "\x82", 1);
    peer_frame(&peer, NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
}

static const struct {
    void (*each)(unsigned i);
    unsigned at; /* the frame that is too many */
    int cause;
} floods[] = {
    {rapid_reset, 201, LIMIT_RESETS},
    {made_you_reset, 201, LIMIT_RESETS},
    {settings_frame, 49, LIMIT_SETTINGS}, /* two came with the preface */
    {ping, 101, LIMIT_PINGS},
    {priority, 1001, LIMIT_PRIORITIES},
    {priority_update, 1001, LIMIT_PRIORITIES},
    {window_update, 1001, LIMIT_WINDOW_UPDATES},
    {empty_data, 101, LIMIT_EMPTY_FRAMES},
    {padding_alone, 101, LIMIT_EMPTY_FRAMES},
    {unknown_frame, 101, LIMIT_OTHER_FRAMES},
    {continuation, 9, HTTP2_CONTINUATIONS},
};

START_TEST(floods_end_the_session_with_their_cause)
{
    no_reply = true;
    unsigned at = flood(floods[_i].each, 5000);
    ck_assert_int_eq((int)last_fault, floods[_i].cause);
    ck_assert_uint_eq(at, floods[_i].at);
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 1);
    ck_assert_uint_eq(last_code, NGHTTP2_ENHANCE_YOUR_CALM);
    ck_assert(http2_session_is_over(session));
    size_t before = strlen(events);
    peer_headers(&peer, END_STREAM, 100001, PEER_GET); /* nothing more is processed */
    deliver();
    ck_assert_uint_eq(strlen(events), before);
}
END_TEST

/* Node can pad each message, for instance. */
START_TEST(padded_content_is_no_flood)
{
    no_reply = true;
    peer_headers(&peer, 0, 1, PEER_POST);
    for (unsigned i = 0; i < 500; i++)
        peer_frame(&peer, NGHTTP2_DATA, PADDED, 1, "\3a\0\0\0", 5);
    deliver_in_steps(_i ? 1 : 16384);
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

/* The same frames at a slower rate are accepted. */
START_TEST(resets_at_the_permitted_rate_are_accepted)
{
    no_reply = true;
    for (unsigned i = 0; i < 1000; i++) {
        rapid_reset(i);
        now_us += 10000;
        deliver();
    }
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    ck_assert_uint_eq(http2_session_streams(session), 0);
}
END_TEST

/* Before the client has acknowledged the settings, it cannot know the limit. */
START_TEST(streams_above_the_limit_are_refused_and_count)
{
    no_reply = true;
    peer.n -= 9; /* no acknowledgement */
    for (unsigned i = 0; i < 300; i++)
        peer_headers(&peer, END_STREAM, 2 * i + 1, PEER_GET);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_TOO_MANY_STREAMS);
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 200);
    ck_assert_uint_eq(last_code, NGHTTP2_REFUSED_STREAM);
    ck_assert_uint_eq(http2_session_streams(session), 100);
    peer_headers(&peer, END_STREAM, 601, PEER_GET);
    deliver();
    ck_assert_int_eq(last_fault, (enum http2_cause)LIMIT_RESETS);
}
END_TEST

START_TEST(streams_above_an_acknowledged_limit_end_the_session)
{
    no_reply = true;
    for (unsigned i = 0; i < 101; i++)
        peer_headers(&peer, END_STREAM, 2 * i + 1, PEER_GET);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_PROTOCOL_ERROR);
    ck_assert_uint_eq(http2_session_streams(session), 100);
}
END_TEST

START_TEST(a_header_list_above_the_limit_gets_431)
{
    char fields[8000];
    settings.max_header_list = 4096;
    snprintf(fields, sizeof fields, PEER_GET "|a=%05000d", 0);
    peer_headers(&peer, END_STREAM, 1, fields);
    peer_headers(&peer, END_STREAM, 3, PEER_GET);
    deliver();
    ck_assert_str_eq(events, "refused 1 431;request 3 GET / none;closed 3 complete;");
}
END_TEST

/* An entry of 2,900 bytes in the dynamic table, then 10,000 references of one byte. */
START_TEST(an_hpack_bomb_ends_its_stream)
{
    static uint8_t block[16000];
    char fields[8000];
    snprintf(fields, sizeof fields, PEER_GET "|a=%02900d", 0);
    peer_headers(&peer, END_STREAM, 1, fields);
    size_t n = peer_encode(&peer, PEER_GET, block, sizeof block);
    memset(block + n, 0x80 | 62, 10000);
    peer_frame(&peer, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 3, block, n + 10000);
    peer_headers(&peer, END_STREAM, 5, PEER_GET);
    deliver();
    ck_assert_msg(last_code == NGHTTP2_ENHANCE_YOUR_CALM, "%s", events);
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 0);
    ck_assert_int_eq(last_fault, HTTP2_HEADER_LIST);
    ck_assert_ptr_nonnull(strstr(events, "request 5"));
}
END_TEST

START_TEST(large_trailers_end_their_stream)
{
    char fields[8000];
    settings.max_header_list = 2048;
    snprintf(fields, sizeof fields, "a=%05000d", 0);
    peer_headers(&peer, 0, 1, PEER_POST);
    peer_headers(&peer, END_STREAM, 1, fields);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_HEADER_LIST);
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 1);
}
END_TEST

/* ---- flow control ---------------------------------------------------------------------------- */

START_TEST(a_client_cannot_send_more_than_its_window)
{
    static char content[16384];
    hold_content = true;
    peer_headers(&peer, 0, 1, PEER_POST);
    for (unsigned i = 0; i < 4; i++)
        peer_frame(&peer, NGHTTP2_DATA, 0, 1, content, sizeof content);
    deliver();
    ck_assert_uint_eq(sent[NGHTTP2_WINDOW_UPDATE], 1); /* the connection's, at the start */
    http2_consume(last_stream, 40000);
    run_output();
    ck_assert_uint_eq(sent[NGHTTP2_WINDOW_UPDATE], 2); /* more than half of the stream's */
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, content, sizeof content);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    for (unsigned i = 0; i < 3; i++)
        peer_frame(&peer, NGHTTP2_DATA, 0, 1, content, sizeof content);
    deliver();
    ck_assert(last_fault != HTTP2_NO_CAUSE);
    ck_assert_uint_eq(last_code, NGHTTP2_FLOW_CONTROL_ERROR);
}
END_TEST

/* All streams together may leave HTTP2_CONNECTION_WINDOWS windows unconsumed. A stream that ends
 * returns what it had not consumed. */
START_TEST(content_of_all_streams_is_bounded)
{
    static char content[16384];
    hold_content = no_reply = true;
    for (unsigned stream = 1; stream <= 31; stream += 2) {
        peer_headers(&peer, 0, stream, PEER_POST);
        for (unsigned i = 0; i < 4; i++)
            peer_frame(&peer, NGHTTP2_DATA, 0, stream, content, sizeof content);
        deliver();
    }
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    peer_headers(&peer, 0, 33, PEER_POST);
    deliver();
    for (unsigned stream = 1; stream <= 31; stream += 2)
        peer_u32_frame(&peer, NGHTTP2_RST_STREAM, stream, NGHTTP2_CANCEL);
    deliver();
    for (unsigned i = 0; i < 4; i++)
        peer_frame(&peer, NGHTTP2_DATA, 0, 33, content, sizeof content);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    peer_headers(&peer, 0, 35, PEER_POST);
    for (unsigned i = 0; i < 4; i++)
        peer_frame(&peer, NGHTTP2_DATA, 0, 35, content, sizeof content);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

static void post_a_window(unsigned stream)
{
    static char content[16384];
    peer_headers(&peer, 0, stream, PEER_POST);
    for (unsigned i = 0; i < 4; i++)
        peer_frame(&peer, NGHTTP2_DATA, i == 3 ? END_STREAM : 0, stream, content, sizeof content);
    deliver();
}

/* A request may be complete, and answered, while the caller stores its content. */
START_TEST(content_of_closed_streams_is_bounded)
{
    unsigned stream = 1;

    hold_content = keep_content = true;
    for (; stream <= 31; stream += 2)
        post_a_window(stream);
    ck_assert_uint_eq(kept, 16 * 65536);
    http2_session_consume(session, 9 * 65536); /* more than half of the connection's */
    run_output();
    for (; stream <= 49; stream += 2)
        post_a_window(stream);
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    ck_assert_uint_eq(http2_session_streams(session), 0);
    post_a_window(stream);
    ck_assert(last_fault != HTTP2_NO_CAUSE);
    ck_assert_uint_eq(last_code, NGHTTP2_FLOW_CONTROL_ERROR);
}
END_TEST

START_TEST(content_waits_for_the_window_of_the_client)
{
    reply_size = 200000;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    ck_assert_uint_eq(content_sent, 65535);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 1, 1000000);
    deliver();
    ck_assert_uint_eq(content_sent, 65535);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 10000);
    deliver();
    ck_assert_uint_eq(content_sent, 75535);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1000000);
    deliver();
    ck_assert_uint_eq(content_sent, 200000);
    ck_assert_uint_eq(end_streams, 1);
    ck_assert_uint_eq(http2_session_streams(session), 0);
}
END_TEST

/* Each stream has content at all times. Otherwise one of them could take every window, and the
 * others would not move. Priorities change nothing (RFC 9218). */
START_TEST(streams_share_the_window_of_the_connection)
{
    static const uint32_t steps[] = {32768, 32767, 4096};
    enum { STREAMS = 5 };

    reply_size = REPLY_MAX;
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff);
    for (unsigned i = 0; i < STREAMS; i++)
        peer_headers(&peer, END_STREAM, 2 * i + 1,
                     i == 3 && _i % 2 ? PEER_GET "|priority=u=0" : PEER_GET);
    deliver();
    ck_assert_uint_eq(content_sent, 65535);
    while (content_sent < 3000000) {
        peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, steps[_i / 2]);
        deliver();
    }
    for (unsigned i = 0; i < STREAMS; i++)
        ck_assert_msg(content_of[i] > 480000 && content_of[i] < 720000, "stream %u: %zu of %zu",
                      2 * i + 1, content_of[i], content_sent);
}
END_TEST

/* A stream whose own window is closed keeps no other one from the connection's. */
START_TEST(a_closed_window_stalls_only_its_stream)
{
    reply_size = 300000;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver(); /* takes all of its own window, and of the connection's */
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535 + 1000);
    peer_headers(&peer, END_STREAM, 3, PEER_GET);
    peer_headers(&peer, END_STREAM, 5, PEER_GET);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1000000);
    deliver();
    ck_assert_uint_eq(content_of[0], 66535);
    ck_assert_uint_eq(content_of[1], 66535);
    ck_assert_uint_eq(content_of[2], 66535);
}
END_TEST

/* Output that the socket does not take stays below one buffer. */
START_TEST(output_is_bounded)
{
    reply_size = REPLY_MAX;
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 0x7fffffff - 65535);
    for (unsigned stream = 1; stream <= 9; stream += 2)
        peer_headers(&peer, END_STREAM, stream, PEER_GET);
    begin();
    http2_session_receive(session, (struct slice){peer.bytes, peer.n}, now_us);
    peer.n = 0;
    for (unsigned i = 0; i < 10; i++)
        http2_session_send(session);
    ck_assert_uint_gt(iobuf_held(out), IOBUF_LARGE / 2);
    do
        ck_assert(read_output());
    while (http2_session_has_work(session) && (http2_session_send(session), true));
    ck_assert_uint_eq(content_sent, 5 * REPLY_MAX);
    ck_assert_uint_eq(end_streams, 5);
}
END_TEST

/* The caller needs no more of the stream once it has handed over the end. */
START_TEST(an_end_without_content_waits_for_room)
{
    reply_size = REPLY_MAX;
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff);
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 0x7fffffff - 65535);
    no_reply = true;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    struct http2_stream *ends = last_stream;
    ck_assert(http2_send_head(ends, 200, NULL, 0, 0, false));
    run_output();
    no_reply = false;
    peer_headers(&peer, END_STREAM, 3, PEER_GET);
    http2_session_receive(session, (struct slice){peer.bytes, peer.n}, now_us);
    peer.n = 0;
    ck_assert_uint_lt(iobuf_room(out), 9); /* of a frame's header */
    ck_assert_uint_eq(http2_send_content(ends, SLICE_NONE, true), 0);
    http2_stream_detach(ends);
    ck_assert(read_output());
    run_output();
    ck_assert_uint_eq(end_streams, 2);
    ck_assert_uint_eq(http2_session_streams(session), 0);
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 0);
}
END_TEST

/* A client that opens its window byte by byte makes weir send a frame per byte. */
START_TEST(windows_of_one_byte_end_the_session)
{
    unsigned i;
    reply_size = 100000;
    peer_setting(&peer, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1);
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    ck_assert_uint_eq(content_sent, 1);
    for (i = 0; i < 5000 && last_fault == HTTP2_NO_CAUSE; i++) {
        peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 1, 1);
        deliver();
    }
    ck_assert_int_eq(last_fault, (enum http2_cause)LIMIT_SMALL_WINDOWS);
    ck_assert_uint_le(i, 1001);
}
END_TEST

/* ---- ends ------------------------------------------------------------------------------------ */

START_TEST(a_reset_by_the_client_is_reported)
{
    no_reply = true;
    peer_headers(&peer, 0, 1, PEER_POST);
    peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
    deliver();
    ck_assert_str_eq(events, "request 1 POST / unknown;closed 1 cut;");
}
END_TEST

START_TEST(a_reset_by_weir_is_not_charged_to_the_client)
{
    no_reply = true;
    for (unsigned i = 0; i < 500; i++) {
        peer_headers(&peer, 0, 2 * i + 1, PEER_POST);
        deliver();
        http2_reset(last_stream);
        run_output();
    }
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 500);
    ck_assert_uint_eq(last_code, NGHTTP2_INTERNAL_ERROR);
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

/* RFC 9113 section 5.1: frames on streams that weir has reset may have been under way. */
START_TEST(late_frames_are_dropped)
{
    enum { STREAMS = 3 * RESET_STREAMS_STORED };

    no_reply = true;
    for (unsigned i = 0; i < STREAMS; i++) {
        peer_headers(&peer, 0, 2 * i + 1, PEER_POST);
        deliver();
        http2_reset(last_stream);
        run_output();
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        peer_frame(&peer, NGHTTP2_DATA, 0, 2 * i + 1, "hello", 5);
        peer_headers(&peer, END_STREAM, 2 * i + 1, "x-checksum=1");
    }
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 0);
    /* HPACK still applies to them */
    peer_frame(&peer, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff\xff",
               7);
    deliver();
    ck_assert_uint_eq(last_code, NGHTTP2_COMPRESSION_ERROR);
}
END_TEST

/* The client resets the stream before the NO_ERROR that asks it to stop is sent. */
START_TEST(an_early_response_is_no_fault_of_the_client)
{
    no_reply = true;
    for (unsigned i = 0; i < 500; i++) {
        peer_headers(&peer, 0, 2 * i + 1, PEER_POST);
        deliver();
        ck_assert(http2_send_head(last_stream, 429, NULL, 0, 0, true));
        run_output();
        http2_stream_detach(last_stream);
        peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 2 * i + 1, NGHTTP2_CANCEL);
        now_us += 10000;
        deliver();
    }
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

/* Only resets of weir excuse a frame on a closed stream. */
START_TEST(a_frame_on_a_stream_that_the_client_ended_is_an_error)
{
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    no_reply = true;
    peer_headers(&peer, 0, 3, PEER_POST);
    deliver();
    http2_reset(last_stream);
    run_output();
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 0);
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, "hello", 5);
    deliver();
    ck_assert_uint_eq(last_code, NGHTTP2_STREAM_CLOSED);
}
END_TEST

/* RFC 9113 section 6.8: the client may not know yet that weir processes no further stream. */
START_TEST(frames_after_goaway_are_dropped)
{
    no_reply = true;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    http2_session_shut_down(session);
    http2_session_shut_down(session);
    for (unsigned i = 1; i < 4; i++) {
        peer_headers(&peer, 0, 2 * i + 1, PEER_POST);
        peer_frame(&peer, NGHTTP2_DATA, END_STREAM, 2 * i + 1, "hello", 5);
    }
    deliver();
    peer_frame(&peer, NGHTTP2_DATA, 0, 3, "hello", 5);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

static void respond_early(uint16_t id)
{
    no_reply = true;
    peer_headers(&peer, 0, id, PEER_POST);
    deliver();
    ck_assert(http2_send_head(last_stream, 429, NULL, 0, 0, true));
    http2_stream_detach(last_stream);
    run_output();
}

static void acknowledge_ping(void)
{
    peer_frame(&peer, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "weirRest", 8);
    deliver();
}

/* RFC 9113 section 8.1: after an early response the client is asked to stop. */
START_TEST(an_early_response_ends_the_request)
{
    respond_early(1);
    respond_early(3); /* after the PING */
    ck_assert_uint_eq(end_streams, 2);
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 0);
    acknowledge_ping();
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 1);
    ck_assert_uint_eq(last_code, NGHTTP2_NO_ERROR);
    acknowledge_ping();
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 2);
    ck_assert_int_eq(http2_session_streams(session), 0);
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, "abc", 3); /* was on its way */
    deliver();
    ck_assert_str_eq(events, "request 1 POST / unknown;request 3 POST / unknown;");
}
END_TEST

START_TEST(acknowledged_pings_after_early_responses_are_no_flood)
{
    for (uint16_t i = 0; i < 1000; i++) {
        respond_early((uint16_t)(2 * i + 1));
        acknowledge_ping();
    }
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 1000);
}
END_TEST

/* The stream's window is four frames. */
static void send_late_frames(unsigned count)
{
    static char bytes[16384];

    for (unsigned i = 0; i < count; i++)
        peer_frame(&peer, NGHTTP2_DATA, 0, 1, bytes, sizeof bytes);
}

/* Clients like curl 7.88 lose a response that a reset follows at once. */
START_TEST(a_request_may_end_after_its_early_response)
{
    respond_early(1);
    send_late_frames(3);
    peer_frame(&peer, NGHTTP2_DATA, END_STREAM, 1, "abc", 3);
    deliver();
    ck_assert_int_eq(http2_session_streams(session), 0);
    acknowledge_ping();
    ck_assert_uint_eq(sent[NGHTTP2_RST_STREAM], 0);
    ck_assert_str_eq(events, "request 1 POST / unknown;");
}
END_TEST

/* The connection's window is returned, that of the stream is not. */
START_TEST(content_after_an_early_response_gets_no_window)
{
    respond_early(1);
    send_late_frames(4);
    deliver();
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, "a", 1);
    deliver();
    ck_assert_uint_eq(last_code, NGHTTP2_FLOW_CONTROL_ERROR);
}
END_TEST

START_TEST(interim_responses_precede_the_final_one)
{
    no_reply = true;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    ck_assert(http2_send_interim(last_stream, 103, NULL, 0, 0));
    ck_assert(http2_send_head(last_stream, 204, NULL, 0, 0, true));
    run_output();
    ck_assert_uint_eq(sent[NGHTTP2_HEADERS], 2);
    ck_assert_uint_eq(end_streams, 1);
}
END_TEST

/* RFC 9113 section 6.8: no stream on its way is lost. */
START_TEST(goaway_is_sent_twice)
{
    no_reply = true;
    peer_headers(&peer, END_STREAM, 1, PEER_GET);
    deliver();
    http2_session_shut_down(session);
    run_output();
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 1);
    ck_assert_uint_eq(last_goaway_stream, 0x7fffffff);
    peer_headers(&peer, END_STREAM, 3, PEER_GET); /* was on its way */
    peer_frame(&peer, NGHTTP2_PING, ACK, 0, "shutdown", 8);
    peer_headers(&peer, END_STREAM, 5, PEER_GET);
    deliver();
    ck_assert_uint_eq(sent[NGHTTP2_GOAWAY], 2);
    ck_assert_uint_eq(last_goaway_stream, 3);
    ck_assert_str_eq(events, "request 1 GET / none;request 3 GET / none;");
    ck_assert(!http2_session_is_over(session));
    respond(last_stream);
    run_output();
    peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
    deliver();
    ck_assert(http2_session_is_over(session));
    ck_assert_int_eq(last_fault, HTTP2_NO_CAUSE);
}
END_TEST

START_TEST(an_incomplete_head_is_kept)
{
    uint8_t block[1000];
    size_t n = peer_encode(&peer, PEER_GET "|cookie=a=1|cookie=b=2|accept=x", block, sizeof block);
    struct http2_session *first;
    peer_frame(&peer, NGHTTP2_HEADERS, END_STREAM, 1, block, n / 2);
    deliver();
    ck_assert_uint_eq(http2_session_head_since(session), now_us);
    /* another session of the worker uses the buffers meanwhile */
    first = session;
    session = NULL;
    struct iobuf *first_out = out;
    out = NULL;
    struct peer *saved = malloc(sizeof *saved);
    *saved = peer;
    peer_begin(&peer);
    peer_headers(&peer, END_STREAM, 1,
                 ":method=PUT|:scheme=http|:authority=b.test|:path=/long/path/of/b");
    begin();
    deliver();
    http2_session_free(session);
    peer_end(&peer);
    iobuf_put(&pool, &out);
    peer = *saved;
    free(saved);
    session = first;
    out = first_out;
    peer_frame(&peer, NGHTTP2_CONTINUATION, END_HEADERS, 1, block + n / 2, n - n / 2);
    deliver();
    ck_assert_uint_eq(http2_session_head_since(session), 0);
    ck_assert_ptr_nonnull(strstr(events, "request 1 GET / none;"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http2 session");
    TCase *all = tcase_create("session");
    tcase_add_checked_fixture(all, start, stop);
    tcase_add_loop_test(all, requests_are_reported_and_get_responses, 0, 5);
    tcase_add_test(all, a_request_can_be_refused_with_a_status);
    tcase_add_loop_test(all, frames_are_validated_as_in_the_rfcs, 0, 2 * COUNT_OF(http2_cases));
    tcase_add_loop_test(all, another_protocol_is_refused, 0, 3);
    tcase_add_test(all, the_preface_requires_settings);
    tcase_add_loop_test(all, floods_end_the_session_with_their_cause, 0, COUNT_OF(floods));
    tcase_add_loop_test(all, padded_content_is_no_flood, 0, 2);
    tcase_add_test(all, resets_at_the_permitted_rate_are_accepted);
    tcase_add_test(all, streams_above_the_limit_are_refused_and_count);
    tcase_add_test(all, streams_above_an_acknowledged_limit_end_the_session);
    tcase_add_test(all, a_header_list_above_the_limit_gets_431);
    tcase_add_test(all, an_hpack_bomb_ends_its_stream);
    tcase_add_test(all, large_trailers_end_their_stream);
    tcase_add_test(all, a_client_cannot_send_more_than_its_window);
    tcase_add_test(all, content_of_all_streams_is_bounded);
    tcase_add_test(all, content_of_closed_streams_is_bounded);
    tcase_add_test(all, content_waits_for_the_window_of_the_client);
    tcase_add_loop_test(all, streams_share_the_window_of_the_connection, 0, 6);
    tcase_add_test(all, a_closed_window_stalls_only_its_stream);
    tcase_add_test(all, output_is_bounded);
    tcase_add_test(all, an_end_without_content_waits_for_room);
    tcase_add_test(all, windows_of_one_byte_end_the_session);
    tcase_add_test(all, a_reset_by_the_client_is_reported);
    tcase_add_test(all, a_reset_by_weir_is_not_charged_to_the_client);
    tcase_add_test(all, late_frames_are_dropped);
    tcase_add_test(all, an_early_response_is_no_fault_of_the_client);
    tcase_add_test(all, a_frame_on_a_stream_that_the_client_ended_is_an_error);
    tcase_add_test(all, frames_after_goaway_are_dropped);
    tcase_add_test(all, an_early_response_ends_the_request);
    tcase_add_test(all, acknowledged_pings_after_early_responses_are_no_flood);
    tcase_add_test(all, a_request_may_end_after_its_early_response);
    tcase_add_test(all, content_after_an_early_response_gets_no_window);
    tcase_add_test(all, interim_responses_precede_the_final_one);
    tcase_add_test(all, goaway_is_sent_twice);
    tcase_add_test(all, an_incomplete_head_is_kept);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
