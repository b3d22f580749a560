/* Passes HTTP/2 frames of a server to a session in which weir is the client. Properties: the
 * HTTP/1.1 response that weir sends on has the meaning of the HTTP/2 response; the parts of a
 * response are reported in order; its content has the declared length; stored content stays within
 * its limits; every request that was opened is closed.
 *
 * Three requests are sent before the input: one without content, one with content, and a HEAD
 * request. A SETTINGS frame is received before the input, so that short inputs reach later
 * states. */
#include "fuzz.h"
#include "http/rewrite.h"
#include "http2/client_session.h"

enum { HEAD_MAX = 256 * 1024, WINDOW = 1024, LIST_MAX = 4096, REQUESTS = 3 };

static const struct http2_settings settings = {100, WINDOW, LIST_MAX, 100};

static struct http2_scratch *scratch;
static struct iobuf_pool pool;
static struct iobuf *out;
static uint32_t choices; /* random choices: bits of the input's hash */
static size_t stored;    /* content not consumed yet */

static bool choose(unsigned one_in)
{
    choices = choices * 1664525 + 1013904223;
    return (choices >> 16) % one_in == 0;
}

static struct request {
    struct http2_stream *stream; /* NULL: closed or detached */
    enum method method;
    size_t stored, left;
    bool has_head, has_length, has_end, trailers;
    uint64_t length;
} requests[REQUESTS];

static void detach(struct request *request)
{
    stored -= request->stored;
    request->stored = 0;
    http2_stream_detach(request->stream);
    request->stream = NULL;
}

/* Parsing the response written as HTTP/1.1 gives the same response. */
static void assert_parses_back(const struct response_head *head)
{
    static char bytes[HEAD_MAX];
    static struct response_head again;
    struct text text = text_over(bytes, sizeof bytes);
    struct response response = {.status = head->status, .fields = &head->fields, .body = BODY_NONE};
    static const struct response_connection connection = {.client_minor = 1};
    struct refusal refusal;
    size_t seen = 0, size = 0;

    if (head->fields.count > RESPONSE_FIELDS_MAX - 10)
        return;
    response_head_write(&text, &response, &connection);
    PROPERTY(!text.failed);
    PROPERTY(response_head_read(text_slice(&text), &seen, &size, &again, &refusal) == SCAN_WHOLE &&
             size == text.n);
    PROPERTY(again.status == head->status && again.keep_alive);
    PROPERTY(!fields_have(&head->fields, FIELD_CONNECTION) &&
             !fields_have(&head->fields, FIELD_UPGRADE));
}

static void on_interim(struct http2_stream *stream, struct response_head *head)
{
    const struct request *request = http2_stream_user(stream);
    PROPERTY(!request->has_head && head->status >= 100 && head->status < 200 &&
             head->status != 101);
}

static void on_response(struct http2_stream *stream, struct response_head *head,
                        const struct framing *framing, bool end)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(!request->has_head && head->status >= 200 && head->status < 600);
    PROPERTY(framing->kind != FRAMING_UNTIL_CLOSE && (!end || framing->kind == FRAMING_NONE));
    PROPERTY(request->method != METHOD_HEAD || framing->kind == FRAMING_NONE);
    assert_parses_back(head);
    request->has_head = true;
    request->has_end = end;
    request->has_length = framing->kind != FRAMING_CHUNKED;
    request->length = framing->length;
    if (choose(8))
        http2_reset(stream);
    else if (choose(8))
        detach(request);
}

static void on_content(struct http2_stream *stream, struct slice bytes)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(request->has_head && !request->has_end);
    PROPERTY(!request->has_length || request->length >= bytes.n);
    request->length -= bytes.n;
    request->stored += bytes.n;
    stored += bytes.n;
    PROPERTY(stored <= 65535); /* the window before the settings are acknowledged */
    if (choose(2)) {
        http2_consume(stream, request->stored);
        stored -= request->stored;
        request->stored = 0;
    }
    if (choose(16))
        detach(request);
}

static void on_content_end(struct http2_stream *stream, struct slice text)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(request->has_head && !request->has_end);
    PROPERTY(!request->has_length || request->length == 0);
    PROPERTY(text.n == 0 || (text.n > 4 && memcmp(text.p + text.n - 4, "\r\n\r\n", 4) == 0));
    request->has_end = true;
}

static void send_more(struct http2_stream *stream)
{
    static const char zeros[100000];
    static struct fields sum = {.count = 1, .at = {{.name = {"X-Sum", 5}, .value = {"9", 1}}}};
    struct request *request = http2_stream_user(stream);

    request->left -=
        http2_send_content(stream, (struct slice){zeros, request->left}, !request->trailers);
    if (request->left == 0 && request->trailers)
        request->trailers = !http2_send_trailers(stream, &sum);
}

static void on_closed(struct http2_stream *stream, bool complete)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(request->stream == stream);
    PROPERTY(!complete || (request->has_end && request->left == 0));
    stored -= request->stored;
    request->stored = 0;
    request->stream = NULL;
}

static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    (void)context, (void)why;
    PROPERTY(cause < HTTP2_CAUSE_COUNT && cause != HTTP2_NO_MEMORY && http2_cause_name[cause]);
}

static const struct http2_events events = {.interim = on_interim,
                                           .response = on_response,
                                           .content = on_content,
                                           .content_end = on_content_end,
                                           .writable = send_more,
                                           .closed = on_closed,
                                           .fault = on_fault};

static void send_output(struct http2_session *session)
{
    for (unsigned i = 0; i < 100; i++) {
        http2_session_send(session);
        if (!iobuf_held(out))
            break;
        iobuf_take(out, choose(2) ? iobuf_held(out) : 1 + iobuf_held(out) / 2);
    }
}

static void receive(struct http2_session *session, const char *bytes, size_t n, size_t step)
{
    for (size_t at = 0; at < n && !http2_session_is_over(session); at += step) {
        size_t part = n - at < step ? n - at : step;
        http2_session_receive(session, (struct slice){bytes + at, part}, at);
        if (choose(64))
            http2_client_session_end(session);
        send_output(session);
    }
}

static void open_request(struct http2_session *session, struct request *request, const char *text)
{
    static struct request_head head;
    struct refusal refusal;

    *request = (struct request){.stream = NULL};
    PROPERTY(request_head_parse((struct slice){text, strlen(text)}, &head, &refusal));
    request->method = head.method;
    bool content = head.method == METHOD_POST;
    request->stream = http2_open(session, &head, (struct slice){"http", 4}, content, request);
    PROPERTY(request->stream != NULL);
    if (!content)
        return;
    request->left = choose(2) ? 10 : 100000;
    request->trailers = choose(2);
    send_more(request->stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char first[] = "\0\0\0\4\0\0\0\0\0"; /* SETTINGS */

    if (!scratch && !(scratch = http2_scratch_new()))
        return 0;
    choices = fuzz_choice(data, size);
    stored = 0;
    struct http2_session *session =
        http2_session_new(&settings, true, &events, NULL, scratch, &pool, &out, 0);
    PROPERTY(session != NULL);
    open_request(session, &requests[0], "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    open_request(session, &requests[1], "POST / HTTP/1.1\r\nHost: a\r\n\r\n");
    open_request(session, &requests[2], "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    send_output(session);
    char *bytes = fuzz_copy(data, size);
    receive(session, first, sizeof first - 1, sizeof first);
    receive(session, bytes, size, choose(2) ? size + 1 : choices % 64 + 1);
    free(bytes);
    http2_session_free(session);
    iobuf_put(&pool, &out);
    return 0;
}
