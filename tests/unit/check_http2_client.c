/* HTTP/2 sessions in the client's role: requests, responses, trailers, flow control, retries and
 * bounds. The server is nghttp2's, or sends raw frames where it misbehaves. */
#include <stdarg.h>
#include <stdio.h>

#include "http2/client_session.h"
#include "http2/session_internal.h"
#include "http2_peer.h"
#include "run_suite.h"

static struct http2_session *session;
static struct http2_scratch *scratch;
static struct iobuf_pool pool;
static struct iobuf *out;
static uint64_t now_us;
static struct http2_settings settings;

/* what the session and the server have reported */
static char events[64 * 1024], served[64 * 1024];
static enum http2_cause last_fault;
static const char *last_why;
static struct http2_stream *streams[2000]; /* by identifier / 2; NULL: closed */

/* content that is to be sent, and its trailers */
static struct sending {
    size_t left;
    const struct fields *trailers;
} sending[2000];
static struct fields sum; /* x-sum: 9 */
static char zeros[300000];

static nghttp2_session *server;
static bool server_reads; /* content returns windows */
static struct peer peer;  /* raw frames of a server */

static void add(char *log, const char *format, va_list arguments)
{
    size_t n = strlen(log);
    vsnprintf(log + n, sizeof events - n, format, arguments);
}

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(events, format, arguments);
    va_end(arguments);
}

static void serve(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void serve(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(served, format, arguments);
    va_end(arguments);
}

/* ---- events of the client -------------------------------------------------------------------- */

static void on_interim(struct http2_stream *stream, struct response_head *head)
{
    note("interim %u %u;", stream->id, head->status);
}

static void on_response(struct http2_stream *stream, struct response_head *head,
                        const struct framing *framing, bool end)
{
    static const char *const kinds[] = {"none", "length", "unknown", "until close"};
    note("head %u %u %s%s;", stream->id, head->status, kinds[framing->kind], end ? " end" : "");
}

static bool hold_content;
static size_t content_received;

static void on_content(struct http2_stream *stream, struct slice bytes)
{
    content_received += bytes.n;
    if (bytes.n < 100)
        note("content %u %.*s;", stream->id, SLICE_ARG(bytes));
    if (!hold_content)
        http2_consume(stream, bytes.n);
}

static void on_content_end(struct http2_stream *stream, struct slice trailers)
{
    note("end %u;%.*s", stream->id, SLICE_ARG(trailers));
}

static void send_more(struct http2_stream *stream)
{
    struct sending *sent = &sending[stream->id / 2];

    sent->left -=
        http2_send_content(stream, (struct slice){zeros, sent->left}, sent->trailers == NULL);
    if (sent->left == 0 && sent->trailers && http2_send_trailers(stream, sent->trailers))
        sent->trailers = NULL;
}

static void on_writable(struct http2_stream *stream)
{
    send_more(stream);
}

static void on_closed(struct http2_stream *stream, bool complete)
{
    note("closed %u %s", stream->id, complete ? "complete" : "cut");
    if (!complete)
        note(" %u%s", http2_stream_code(stream),
             http2_stream_unprocessed(stream) ? " unprocessed" : "");
    note(";");
    last_why = http2_stream_why(stream);
    ck_assert_ptr_eq(http2_stream_user(stream), &streams[stream->id / 2]);
    streams[stream->id / 2] = NULL;
}

static void on_capacity(void *context)
{
    (void)context;
    note("capacity %u;", http2_session_capacity(session));
}

static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    (void)context, (void)why;
    note("fault %s;", http2_cause_name[cause]);
    last_fault = cause;
}

static const struct http2_events table = {.interim = on_interim,
                                          .response = on_response,
                                          .capacity = on_capacity,
                                          .content = on_content,
                                          .content_end = on_content_end,
                                          .writable = on_writable,
                                          .closed = on_closed,
                                          .fault = on_fault};

/* ---- the server ------------------------------------------------------------------------------ */

static int on_request_field(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                            size_t name_size, const uint8_t *value, size_t value_size,
                            uint8_t flags, void *user_data)
{
    (void)ng, (void)flags, (void)user_data;
    serve("%d %.*s=%.*s;", frame->hd.stream_id, (int)name_size, (const char *)name, (int)value_size,
          (const char *)value);
    return 0;
}

static size_t content_served, content_of[100]; /* of all; by stream */

static int on_request_content(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *bytes,
                              size_t n, void *user_data)
{
    (void)flags, (void)bytes, (void)user_data;
    content_served += n;
    content_of[(size_t)id / 2 % COUNT_OF(content_of)] += n;
    return server_reads ? nghttp2_session_consume(ng, id, n) : 0;
}

static int on_server_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user_data)
{
    (void)ng, (void)user_data;
    if (frame->hd.type == NGHTTP2_RST_STREAM)
        serve("%d reset %u;", frame->hd.stream_id, frame->rst_stream.error_code);
    else if (frame->hd.type == NGHTTP2_GOAWAY)
        serve("goaway %u;", frame->goaway.error_code);
    else if (frame->hd.type == NGHTTP2_SETTINGS)
        for (size_t i = 0; i < frame->settings.niv; i++)
            serve("setting %d=%u;", frame->settings.iv[i].settings_id, frame->settings.iv[i].value);
    else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        serve("%d end;", frame->hd.stream_id);
    return 0;
}

static void begin_server(void)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    ck_assert_int_eq(nghttp2_session_callbacks_new(&callbacks), 0);
    ck_assert_int_eq(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_request_field);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_request_content);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_server_frame);
    ck_assert_int_eq(nghttp2_session_server_new2(&server, callbacks, NULL, option), 0);
    ck_assert_int_eq(nghttp2_submit_settings(server, NGHTTP2_FLAG_NONE, NULL, 0), 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
}

/* Content of a response, and then its trailers. */
static struct reply {
    size_t left;
    const char *trailers; /* "name=value", or NULL */
} replies[2000];

static ssize_t next_content(nghttp2_session *ng, int32_t id, uint8_t *to, size_t most,
                            uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct reply *reply = source->ptr;
    size_t n = reply->left < most ? reply->left : most;
    (void)user_data;

    memset(to, 'x', n);
    reply->left -= n;
    if (reply->left)
        return (ssize_t)n;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (reply->trailers) {
        const char *equals = strchr(reply->trailers, '=');
        nghttp2_nv pair = {(uint8_t *)(uintptr_t)reply->trailers, (uint8_t *)(uintptr_t)equals + 1,
                           (size_t)(equals - reply->trailers), strlen(equals + 1), 0};
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        ck_assert_int_eq(nghttp2_submit_trailer(ng, id, &pair, 1), 0);
    }
    return (ssize_t)n;
}

static nghttp2_nv pair_of(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), 0};
}

static void respond(int32_t id, const char *status, size_t content, const char *trailers)
{
    nghttp2_nv pairs[] = {pair_of(":status", status), pair_of("content-type", "text/plain")};
    struct reply *reply = &replies[id / 2];
    nghttp2_data_provider provider = {.source.ptr = reply, .read_callback = next_content};

    *reply = (struct reply){content, trailers};
    ck_assert_int_eq(
        nghttp2_submit_response(server, id, pairs, 2, content || trailers ? &provider : NULL), 0);
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool pass_to_server(void)
{
    http2_session_send(session);
    if (!iobuf_held(out))
        return false;
    struct slice bytes = iobuf_slice(out);
    ck_assert_int_eq(nghttp2_session_mem_recv(server, (const uint8_t *)bytes.p, bytes.n),
                     (ssize_t)bytes.n);
    iobuf_take(out, bytes.n);
    return true;
}

static bool pass_to_client(void)
{
    const uint8_t *bytes;
    ssize_t n = nghttp2_session_mem_send(server, &bytes);
    ck_assert_int_ge(n, 0);
    if (n > 0)
        http2_session_receive(session, (struct slice){(const char *)bytes, (size_t)n}, now_us);
    return n > 0;
}

/* Passes bytes in both directions until neither side sends more. */
static void exchange_frames(void)
{
    for (bool more = true; more;) {
        more = pass_to_server();
        more |= pass_to_client();
    }
}

static void start(void)
{
    settings = (struct http2_settings){100, 65536, 32768, 100};
    scratch = http2_scratch_new();
    now_us = 1000000;
    events[0] = served[0] = '\0';
    last_fault = HTTP2_NO_CAUSE;
    last_why = NULL;
    hold_content = false;
    server_reads = true;
    content_received = content_served = 0;
    memset(content_of, 0, sizeof content_of);
    memset(streams, 0, sizeof streams);
    memset(sending, 0, sizeof sending);
    sum.count = 2;
    sum.at[0] = (struct field){.name = SLICE("X-Sum"), .value = SLICE("9")};
    sum.at[1] = (struct field){.name = SLICE("X-No"), .hop_by_hop = true};
    peer.n = 0;
    peer.deflater = NULL;
    begin_server();
    session = http2_session_new(&settings, true, &table, NULL, scratch, &pool, &out, now_us);
    ck_assert_ptr_nonnull(session);
}

static void stop(void)
{
    http2_session_free(session);
    http2_scratch_free(scratch);
    nghttp2_session_del(server);
    iobuf_put(&pool, &out);
    iobuf_pool_clear(&pool);
    peer_end(&peer);
}

/* Opens a stream; NULL if that is not possible. `fields`: lines of the head, after Host. */
static struct http2_stream *open_with(const char *line, const char *fields, bool content)
{
    static struct request_head head;
    struct refusal refusal;
    char text[8192];
    unsigned i = 0;

    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a.test\r\n%s\r\n", line, fields);
    ck_assert(request_head_parse((struct slice){text, strlen(text)}, &head, &refusal));
    while (streams[i])
        i++;
    struct http2_stream *stream = http2_open(session, &head, SLICE("http"), content, NULL);
    if (!stream)
        return NULL;
    i = stream->id / 2;
    http2_stream_set_user(stream, &streams[i]);
    return streams[i] = stream;
}

static struct http2_stream *get(void)
{
    return open_with("GET /", "", false);
}

static void exchange_settings(void) /* the exchange of SETTINGS */
{
    exchange_frames();
    events[0] = served[0] = '\0';
}

static bool contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ---- requests and responses ------------------------------------------------------------------ */

START_TEST(the_session_starts_with_settings)
{
    exchange_frames();
    ck_assert_str_eq(served, "setting 2=0;setting 4=65536;setting 6=32768;setting 9=1;");
    ck_assert(contains(events, "capacity"));
    ck_assert(http2_session_is_open(session));
    ck_assert(!http2_session_is_over(session));
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(a_request_is_sent_without_hop_by_hop_fields)
{
    exchange_settings();
    open_with("GET /a?b=%20",
              "X-Test: One\r\nConnection: x-hop, TE\r\nX-Hop: 1\r\nTE: gzip, trailers\r\n"
              "Keep-Alive: 1\r\nCookie: a=1; b=2\r\n",
              false);
    exchange_frames();
    ck_assert_str_eq(served, "1 :method=GET;1 :scheme=http;1 :authority=a.test;1 :path=/a?b=%20;"
                             "1 x-test=One;1 cookie=a=1; b=2;1 te=trailers;1 end;");
}
END_TEST

START_TEST(a_response_is_reported)
{
    exchange_settings();
    get();
    exchange_frames();
    respond(1, "200", 5, NULL);
    exchange_frames();
    ck_assert_str_eq(events, "head 1 200 unknown;content 1 xxxxx;end 1;closed 1 complete;");
    ck_assert_int_eq(http2_session_streams(session), 0);
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(a_response_without_content_is_complete_with_its_head)
{
    exchange_settings();
    get();
    exchange_frames();
    respond(1, "204", 0, NULL);
    exchange_frames();
    ck_assert_str_eq(events, "head 1 204 none end;closed 1 complete;");
}
END_TEST

START_TEST(trailers_are_sent_and_received)
{
    exchange_settings();
    struct http2_stream *stream = open_with("POST /", "", true);
    ck_assert_uint_eq(http2_send_content(stream, SLICE("hello"), false), 5);
    ck_assert(http2_send_trailers(stream, &sum));
    ck_assert(stream->sent_all);
    exchange_frames();
    ck_assert(contains(served, "1 x-sum=9;1 end;"));
    ck_assert_uint_eq(content_served, 5);
    respond(1, "200", 3, "grpc-status=0");
    exchange_frames();
    ck_assert_str_eq(events, "head 1 200 unknown;content 1 xxx;end 1;grpc-status: 0\r\n\r\n"
                             "closed 1 complete;");
}
END_TEST

START_TEST(trailers_need_no_content)
{
    exchange_settings();
    struct http2_stream *stream = open_with("POST /", "", true);
    ck_assert(http2_send_trailers(stream, &sum));
    exchange_frames();
    ck_assert(contains(served, "1 x-sum=9;1 end;"));
    ck_assert_uint_eq(content_served, 0);
}
END_TEST

START_TEST(interim_responses_are_reported)
{
    nghttp2_nv pair = pair_of(":status", "103");
    exchange_settings();
    get();
    exchange_frames();
    ck_assert_int_eq(nghttp2_submit_headers(server, 0, 1, NULL, &pair, 1, NULL), 0);
    exchange_frames();
    respond(1, "200", 2, NULL);
    exchange_frames();
    ck_assert_str_eq(events,
                     "interim 1 103;head 1 200 unknown;content 1 xx;end 1;closed 1 complete;");
}
END_TEST

START_TEST(large_content_passes_through_small_windows)
{
    exchange_settings();
    struct http2_stream *stream = open_with("POST /", "", true);
    sending[0] = (struct sending){sizeof zeros, _i ? &sum : NULL};
    send_more(stream);
    ck_assert_uint_gt(sending[0].left, 0);
    exchange_frames();
    ck_assert_uint_eq(content_served, sizeof zeros);
    ck_assert(contains(served, _i ? "1 x-sum=9;1 end;" : "1 end;"));
    ck_assert(stream->sent_all);
    respond(1, "200", 500000, _i ? "a=b" : NULL);
    exchange_frames();
    ck_assert_uint_eq(content_received, 500000);
    ck_assert(
        contains(events, _i ? "end 1;a: b\r\n\r\nclosed 1 complete;" : "end 1;closed 1 complete;"));
}
END_TEST

START_TEST(content_that_is_not_consumed_stays_within_the_window)
{
    exchange_settings();
    struct http2_stream *stream = get();
    hold_content = true;
    exchange_frames();
    respond(1, "200", 500000, NULL);
    exchange_frames();
    ck_assert_uint_eq(content_received, 65536);
    hold_content = false;
    http2_consume(stream, 65536);
    exchange_frames();
    ck_assert_uint_eq(content_received, 500000);
}
END_TEST

/* Otherwise one upload could keep those of other clients from the server. */
START_TEST(streams_share_the_window_of_the_connection)
{
    enum { STREAMS = 5 };

    exchange_settings();
    for (unsigned i = 0; i < STREAMS; i++) {
        struct http2_stream *stream = open_with("POST /", "", true);
        sending[i].left = sizeof zeros;
        send_more(stream);
    }
    for (bool more = true; more && content_served < 800000;) {
        more = pass_to_server();
        more |= pass_to_client();
    }
    for (unsigned i = 0; i < STREAMS; i++)
        ck_assert_msg(content_of[i] > 120000 && content_of[i] < 200000, "stream %u: %zu of %zu",
                      2 * i + 1, content_of[i], content_served);
}
END_TEST

START_TEST(a_server_that_does_not_read_stops_the_content)
{
    exchange_settings();
    server_reads = false;
    struct http2_stream *stream = open_with("POST /", "", true);
    sending[0].left = sizeof zeros;
    send_more(stream);
    exchange_frames();
    ck_assert_uint_eq(content_served, 65535);
    ck_assert_uint_eq(sizeof zeros - sending[0].left, 65535);
    ck_assert_ptr_null(out);
}
END_TEST

START_TEST(the_server_can_respond_before_the_request_ends)
{
    exchange_settings();
    struct http2_stream *stream = open_with("POST /", "", true);
    ck_assert_uint_eq(http2_send_content(stream, SLICE("hello"), false), 5);
    exchange_frames();
    respond(1, "413", 2, NULL);
    exchange_frames();
    ck_assert_str_eq(events, "head 1 413 unknown;content 1 xx;end 1;");
    nghttp2_submit_rst_stream(server, 0, 1, NGHTTP2_NO_ERROR);
    exchange_frames();
    ck_assert(contains(events, "closed 1 cut 0;"));
    ck_assert_int_eq(http2_session_streams(session), 0);
}
END_TEST

/* ---- the end of streams and of the session
 * ---------------------------------------------------- */

START_TEST(a_request_can_be_cancelled)
{
    exchange_settings();
    struct http2_stream *stream = get();
    exchange_frames();
    if (_i)
        http2_stream_detach(stream);
    else
        http2_reset(stream);
    exchange_frames();
    ck_assert(contains(served, "1 reset 8;"));
    ck_assert_str_eq(events, _i ? "" : "closed 1 cut 8;");
    ck_assert_int_eq(http2_session_streams(session), 0);
    streams[0] = NULL;
    get();
    exchange_frames();
    respond(3, "200", 1, NULL);
    exchange_frames();
    ck_assert(contains(events, "closed 3 complete;"));
}
END_TEST

START_TEST(a_request_can_be_cancelled_before_it_is_sent)
{
    exchange_settings();
    http2_reset(get());
    exchange_frames();
    ck_assert(!contains(served, ":path"));
    ck_assert_str_eq(events, "closed 1 cut 8;");
    ck_assert(http2_session_accepts(session));
}
END_TEST

START_TEST(refused_streams_were_not_processed)
{
    exchange_settings();
    get();
    get();
    exchange_frames();
    nghttp2_submit_rst_stream(server, 0, 1, NGHTTP2_REFUSED_STREAM);
    nghttp2_submit_rst_stream(server, 0, 3, NGHTTP2_INTERNAL_ERROR);
    exchange_frames();
    ck_assert_str_eq(events, "closed 1 cut 7 unprocessed;closed 3 cut 2;");
}
END_TEST

START_TEST(goaway_names_the_streams_that_were_not_processed)
{
    exchange_settings();
    get();
    get();
    get();
    exchange_frames();
    ck_assert_int_eq(nghttp2_submit_goaway(server, 0, 3, NGHTTP2_NO_ERROR, NULL, 0), 0);
    exchange_frames();
    ck_assert_str_eq(events, "capacity 0;closed 5 cut 7 unprocessed;");
    ck_assert(!http2_session_accepts(session));
    ck_assert_ptr_null(get());
    ck_assert(!http2_session_is_over(session));
    respond(1, "200", 1, NULL);
    respond(3, "200", 1, NULL);
    exchange_frames();
    ck_assert(contains(events, "closed 1 complete;") && contains(events, "closed 3 complete;"));
    ck_assert(http2_session_is_over(session));
}
END_TEST

START_TEST(goaway_closes_requests_that_were_not_sent)
{
    exchange_settings();
    ck_assert_int_eq(nghttp2_submit_goaway(server, 0, 0, NGHTTP2_NO_ERROR, NULL, 0), 0);
    get();
    pass_to_client();
    exchange_frames();
    ck_assert_str_eq(events, "capacity 0;closed 1 cut 7 unprocessed;");
    ck_assert(!contains(served, ":path"));
    ck_assert(http2_session_is_over(session));
}
END_TEST

START_TEST(the_servers_stream_limit_is_respected)
{
    nghttp2_settings_entry most = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 2};
    ck_assert_uint_eq(http2_session_capacity(session), HTTP2_CAPACITY_UNKNOWN);
    get();
    ck_assert_uint_eq(http2_session_capacity(session), HTTP2_CAPACITY_UNKNOWN - 1);
    nghttp2_submit_settings(server, 0, &most, 1);
    exchange_frames();
    ck_assert(contains(events, "capacity 1;"));
    ck_assert_ptr_nonnull(get());
    ck_assert_uint_eq(http2_session_capacity(session), 0);
    ck_assert_ptr_null(get());
    ck_assert(http2_session_accepts(session));
    respond(1, "200", 0, NULL);
    exchange_frames();
    ck_assert_uint_eq(http2_session_capacity(session), 1);
}
END_TEST

START_TEST(the_session_can_be_ended)
{
    exchange_settings();
    get();
    exchange_frames();
    http2_client_session_end(session);
    exchange_frames();
    ck_assert(contains(served, "goaway 0;"));
    ck_assert_ptr_null(get());
    ck_assert(!http2_session_is_over(session));
    respond(1, "200", 1, NULL);
    exchange_frames();
    ck_assert(contains(events, "closed 1 complete;"));
    ck_assert(http2_session_is_over(session));
}
END_TEST

/* ---- servers that violate the protocol
 * -------------------------------------------------------- */

static void drop_output(void)
{
    for (http2_session_send(session); out; http2_session_send(session))
        iobuf_take(out, iobuf_held(out));
}

/* Gives the session the raw frames, `step` bytes at a time, after its own output. */
static void deliver(size_t step)
{
    drop_output();
    for (size_t at = 0; at < peer.n; at += step) {
        size_t n = peer.n - at < step ? peer.n - at : step;
        http2_session_receive(session, (struct slice){peer.bytes + at, n}, now_us);
        drop_output();
    }
    peer.n = 0;
}

#define STATUS ":status=200"

static const struct {
    const char *name, *method;
    const char *fields[3]; /* of header sections; "!" at the end: END_STREAM */
    const char *content;   /* after the first section, or NULL */
    const char *events;    /* NULL: the response is malformed */
} responses[] = {
    {"plain", "GET", {STATUS "|a=b!"}, NULL, "head 1 200 none end;closed 1 complete;"},
    {"length",
     "GET",
     {STATUS "|content-length=3"},
     "abc",
     "head 1 200 length;content 1 abc;end 1;closed 1 complete;"},
    {"HEAD", "HEAD", {STATUS "|content-length=3!"}, NULL, "head 1 200 none end;closed 1 complete;"},
    {"304 with a length",
     "GET",
     {":status=304|content-length=3!"},
     NULL,
     "head 1 304 none end;closed 1 complete;"},
    {"late end", "HEAD", {STATUS}, "", "head 1 200 none;end 1;closed 1 complete;"},
    {"trailers",
     "GET",
     {STATUS, "a=b|c=d!"},
     NULL,
     "head 1 200 unknown;end 1;a: b\r\nc: d\r\n\r\nclosed 1 complete;"},
    {"interim and trailers",
     "GET",
     {":status=100", STATUS, "a=b!"},
     NULL,
     "interim 1 100;head 1 200 unknown;end 1;a: b\r\n\r\nclosed 1 complete;"},
    {"no status", "GET", {"a=b!"}, NULL, NULL},
    {"two statuses", "GET", {STATUS "|:status=200!"}, NULL, NULL},
    {"status behind a field", "GET", {"a=b|:status=200!"}, NULL, NULL},
    {"status 099", "GET", {":status=099!"}, NULL, NULL},
    {"status 600", "GET", {":status=600!"}, NULL, NULL},
    {"status 20", "GET", {":status=20!"}, NULL, NULL},
    {"status 2000", "GET", {":status=2000!"}, NULL, NULL},
    {"status with a blank", "GET", {":status=200 !"}, NULL, NULL},
    {"101", "GET", {":status=101!"}, NULL, NULL},
    {"interim that ends", "GET", {":status=103!"}, NULL, NULL},
    {"request pseudo-field", "GET", {STATUS "|:path=/!"}, NULL, NULL},
    {"upper case", "GET", {STATUS "|aB=c!"}, NULL, NULL},
    {"CR LF", "GET", {STATUS "|a=b\r\nc: d!"}, NULL, NULL},
    {"blank at the end", "GET", {STATUS "|a=b !"}, NULL, NULL},
    {"transfer-encoding", "GET", {STATUS "|transfer-encoding=chunked!"}, NULL, NULL},
    {"connection", "GET", {STATUS "|connection=close!"}, NULL, NULL},
    {"two lengths", "GET", {STATUS "|content-length=3|content-length=3"}, "abc", NULL},
    {"length with a sign", "GET", {STATUS "|content-length=+3"}, "abc", NULL},
    {"length without content", "GET", {STATUS "|content-length=3!"}, NULL, NULL},
    {"pseudo-field in trailers", "GET", {STATUS, ":status=200!"}, NULL, NULL},
    {"trailers without an end", "GET", {STATUS, "a=b"}, NULL, NULL},
    {"framing in trailers", "GET", {STATUS, "transfer-encoding=chunked!"}, NULL, NULL},
    {"content for 204", "GET", {":status=204"}, "abc", NULL},
    {"longer than the length", "GET", {STATUS "|content-length=2"}, "abc", NULL},
};

START_TEST(responses_are_validated_as_in_rfc_9113)
{
    unsigned i = (unsigned)_i / 2;
    char line[64];

    snprintf(line, sizeof line, "%s /", responses[i].method);
    open_with(line, "", false);
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    for (unsigned f = 0; f < 3 && responses[i].fields[f]; f++) {
        char fields[256];
        snprintf(fields, sizeof fields, "%s", responses[i].fields[f]);
        size_t n = strlen(fields);
        bool end = fields[n - 1] == '!';
        fields[n - end] = '\0';
        peer_headers(&peer, end ? END_STREAM : 0, 1, fields);
        if (f == 0 && responses[i].content)
            peer_frame(&peer, NGHTTP2_DATA, END_STREAM, 1, responses[i].content,
                       strlen(responses[i].content));
    }
    deliver(_i % 2 ? 1 : 16384);
    const char *client_events = strstr(events, ";") + 1; /* behind "capacity" */
    if (responses[i].events && _i % 2 == 0)
        ck_assert_msg(strcmp(client_events, responses[i].events) == 0, "%s: %s", responses[i].name,
                      events);
    ck_assert_msg(contains(events, "closed 1 complete;") == (responses[i].events != NULL), "%s: %s",
                  responses[i].name, events);
    if (!responses[i].events) {
        ck_assert_msg(contains(events, "fault malformed;closed 1 cut 1;"), "%s: %s",
                      responses[i].name, events);
        ck_assert_ptr_nonnull(last_why);
    }
    ck_assert(http2_session_accepts(session));
    ck_assert_int_eq(http2_session_streams(session), 0);
}
END_TEST

/* Responses that end with RST_STREAM and not with END_STREAM. */
static const struct {
    const char *method, *fields, *content;
    uint32_t code;
    const char *end; /* events behind the head and the content */
} resets[] = {
    {"GET", STATUS, "abc", NGHTTP2_NO_ERROR, "end 1;closed 1 complete;"},
    {"GET", STATUS, NULL, NGHTTP2_NO_ERROR, "end 1;closed 1 complete;"},
    {"GET", STATUS "|content-length=3", "abc", NGHTTP2_NO_ERROR, "end 1;closed 1 complete;"},
    {"HEAD", STATUS "|content-length=3", NULL, NGHTTP2_NO_ERROR, "end 1;closed 1 complete;"},
    {"GET", STATUS "|content-length=4", "abc", NGHTTP2_NO_ERROR, "closed 1 cut 0;"},
    {"GET", STATUS "|content-length=3", NULL, NGHTTP2_NO_ERROR, "closed 1 cut 0;"},
    {"GET", ":status=103", NULL, NGHTTP2_NO_ERROR, "closed 1 cut 0;"},
    {"GET", STATUS, "abc", NGHTTP2_CANCEL, "closed 1 cut 8;"},
    {"GET", STATUS, "abc", NGHTTP2_INTERNAL_ERROR, "closed 1 cut 2;"},
};

START_TEST(a_reset_without_error_ends_a_complete_response)
{
    unsigned i = (unsigned)_i / 2;
    char line[64];

    snprintf(line, sizeof line, "%s /", resets[i].method);
    open_with(line, "", false);
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    peer_headers(&peer, 0, 1, resets[i].fields);
    if (resets[i].content)
        peer_frame(&peer, NGHTTP2_DATA, 0, 1, resets[i].content, strlen(resets[i].content));
    peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 1, resets[i].code);
    deliver(_i % 2 ? 1 : 16384);
    size_t n = strlen(events), end = strlen(resets[i].end);
    ck_assert_msg(n > end && strcmp(events + n - end, resets[i].end) == 0, "%d: %s", _i, events);
    ck_assert_int_eq(contains(events, "end 1;"), resets[i].end[0] == 'e');
    ck_assert_int_eq(http2_session_streams(session), 0);
}
END_TEST

START_TEST(a_header_list_above_the_limit_is_refused)
{
    char fields[8192] = STATUS;
    for (unsigned f = 0; f < 60; f++)
        snprintf(fields + strlen(fields), sizeof fields - strlen(fields), "|x-%u=%0*u", f, 100, f);
    http2_session_free(session);
    settings.max_header_list = _i ? 7000 : 3000; /* below 1 and 2 of their sizes */
    session = http2_session_new(&settings, true, &table, NULL, scratch, &pool, &out, now_us);
    get();
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    peer_headers(&peer, END_STREAM, 1, fields);
    deliver(16384);
    ck_assert_msg(contains(events, _i ? "fault malformed;closed 1 cut 1;"
                                      : "fault header_list;closed 1 cut 11;"),
                  "%s", events);
    ck_assert(http2_session_accepts(session));
}
END_TEST

START_TEST(long_trailers_are_refused)
{
    char fields[16384] = "a=b";
    for (unsigned f = 0; f < 78; f++)
        snprintf(fields + strlen(fields), sizeof fields - strlen(fields), "|x-%u=%0*u", f, 80, f);
    get();
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    peer_headers(&peer, 0, 1, STATUS);
    peer_headers(&peer, END_STREAM, 1, fields);
    deliver(16384);
    ck_assert_msg(contains(events, "fault header_list;closed 1 cut 11;"), "%s", events);
    ck_assert(!contains(events, "end 1;"));
}
END_TEST

static void push_promise(unsigned i)
{
    (void)i;
    peer_frame(&peer, NGHTTP2_PUSH_PROMISE, END_HEADERS, 1, "\0\0\0\2\x82", 5);
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

static void empty_data(unsigned i)
{
    if (i == 0)
        peer_headers(&peer, 0, 1, STATUS);
    peer_frame(&peer, NGHTTP2_DATA, 0, 1, NULL, 0);
}

static void continuation(unsigned i)
{
    if (i == 0)
        peer_frame(&peer, NGHTTP2_HEADERS, END_STREAM, 1, "\x88", 1);
    peer_frame(&peer, NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
}

static void late_reset(unsigned i)
{
    if (i == 0)
        peer_headers(&peer, END_STREAM, 1, STATUS);
    peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 1, NGHTTP2_NO_ERROR);
}

static void window_update(unsigned i)
{
    (void)i;
    peer_u32_frame(&peer, NGHTTP2_WINDOW_UPDATE, 0, 1);
}

static const struct {
    void (*each)(unsigned i);
    int cause;
} floods[] = {{push_promise, HTTP2_PROTOCOL_ERROR},
              {settings_frame, LIMIT_SETTINGS},
              {ping, LIMIT_PINGS},
              {empty_data, LIMIT_EMPTY_FRAMES},
              {late_reset, LIMIT_RESETS},
              {continuation, HTTP2_CONTINUATIONS},
              {window_update, LIMIT_WINDOW_UPDATES}};

START_TEST(floods_end_the_session_with_their_cause)
{
    get();
    peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    peer_frame(&peer, NGHTTP2_SETTINGS, ACK, 0, NULL, 0);
    deliver(16384);
    for (unsigned i = 0; i < 5000 && last_fault == HTTP2_NO_CAUSE; i++) {
        floods[_i].each(i);
        deliver(16384);
    }
    ck_assert_int_eq((int)last_fault, floods[_i].cause);
    ck_assert(http2_session_is_over(session));
    ck_assert_ptr_null(get());
    ck_assert_uint_eq(http2_session_capacity(session), 0);
}
END_TEST

/* A server that refuses every stream is not a flood: weir has opened each of them. */
START_TEST(a_server_may_refuse_every_stream)
{
    exchange_settings();
    for (unsigned i = 0; i < 1500; i++) {
        get();
        exchange_frames();
        nghttp2_submit_rst_stream(server, 0, (int32_t)(2 * i + 1), NGHTTP2_REFUSED_STREAM);
        exchange_frames();
    }
    ck_assert_int_eq((int)last_fault, HTTP2_NO_CAUSE);
    ck_assert(http2_session_accepts(session));
}
END_TEST

/* Nor is a server that responds early and then resets the stream, although weir has meanwhile sent
 * the rest of the request. */
START_TEST(a_server_may_reset_every_stream_after_its_response)
{
    http2_session_send(session);
    for (unsigned i = 0; i < 1500; i++) {
        get();
        http2_session_send(session);
        if (i == 0)
            peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
        peer_headers(&peer, END_STREAM, 2 * i + 1, STATUS);
        peer_u32_frame(&peer, NGHTTP2_RST_STREAM, 2 * i + 1, NGHTTP2_NO_ERROR);
        deliver(16384);
        events[0] = '\0';
    }
    ck_assert_int_eq((int)last_fault, HTTP2_NO_CAUSE);
    ck_assert(http2_session_accepts(session));
}
END_TEST

/* Responses to streams that were reset at the same time are not a flood either. */
START_TEST(late_responses_to_cancelled_requests_are_dropped)
{
    for (unsigned i = 0; i < 1500; i++) {
        http2_session_send(session);
        struct http2_stream *stream = get();
        http2_session_send(session);
        http2_reset(stream);
        if (i == 0)
            peer_frame(&peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
        peer_headers(&peer, 0, 2 * i + 1, STATUS);
        peer_headers(&peer, END_STREAM, 2 * i + 1, "a=b");
        deliver(16384);
        events[0] = '\0';
    }
    ck_assert_int_eq((int)last_fault, HTTP2_NO_CAUSE);
    ck_assert(http2_session_accepts(session));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http2 client");
    TCase *tests = tcase_create("client");
    tcase_add_checked_fixture(tests, start, stop);
    tcase_add_test(tests, the_session_starts_with_settings);
    tcase_add_test(tests, a_request_is_sent_without_hop_by_hop_fields);
    tcase_add_test(tests, a_response_is_reported);
    tcase_add_test(tests, a_response_without_content_is_complete_with_its_head);
    tcase_add_test(tests, trailers_are_sent_and_received);
    tcase_add_test(tests, trailers_need_no_content);
    tcase_add_test(tests, interim_responses_are_reported);
    tcase_add_loop_test(tests, large_content_passes_through_small_windows, 0, 2);
    tcase_add_test(tests, content_that_is_not_consumed_stays_within_the_window);
    tcase_add_test(tests, streams_share_the_window_of_the_connection);
    tcase_add_test(tests, a_server_that_does_not_read_stops_the_content);
    tcase_add_test(tests, the_server_can_respond_before_the_request_ends);
    tcase_add_loop_test(tests, a_request_can_be_cancelled, 0, 2);
    tcase_add_test(tests, a_request_can_be_cancelled_before_it_is_sent);
    tcase_add_test(tests, refused_streams_were_not_processed);
    tcase_add_test(tests, goaway_names_the_streams_that_were_not_processed);
    tcase_add_test(tests, goaway_closes_requests_that_were_not_sent);
    tcase_add_test(tests, the_servers_stream_limit_is_respected);
    tcase_add_test(tests, the_session_can_be_ended);
    tcase_add_loop_test(tests, responses_are_validated_as_in_rfc_9113, 0, 2 * COUNT_OF(responses));
    tcase_add_loop_test(tests, a_reset_without_error_ends_a_complete_response, 0,
                        2 * COUNT_OF(resets));
    tcase_add_loop_test(tests, a_header_list_above_the_limit_is_refused, 0, 2);
    tcase_add_test(tests, long_trailers_are_refused);
    tcase_add_loop_test(tests, floods_end_the_session_with_their_cause, 0, COUNT_OF(floods));
    tcase_add_test(tests, a_server_may_refuse_every_stream);
    tcase_add_test(tests, a_server_may_reset_every_stream_after_its_response);
    tcase_add_test(tests, late_responses_to_cancelled_requests_are_dropped);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
