/* Passes HTTP/2 frames of a client to a session; the request handling behind it is a stub.
 * Properties: the HTTP/1.1 request that weir forwards has the meaning of the HTTP/2 request, and
 * output and stored content stay within their limits.
 *
 * An input that starts with the client's preface is a complete connection. Otherwise the preface
 * and the frames of a first request are sent before it, so that short inputs reach later states. */
#include "fuzz.h"
#include "http/rewrite.h"
#include "http2/session_internal.h"

enum { HEAD_MAX = 128 * 1024, WINDOW = 1024, STREAMS = 10, LIST_MAX = 4096 };

static const struct forward_facts facts = {.peer_ip = {"192.0.2.7", 9},
                                           .scheme = {"http", 4},
                                           .host = {"upstream.test", 13},
                                           .client = {"id:client-2", 11},
                                           .request_id = {"made-by-weir", 12}};
static const struct http2_settings settings = {STREAMS, WINDOW, LIST_MAX, 100};

static struct http2_scratch *scratch;
static struct iobuf_pool pool;
static struct iobuf *out;
static uint32_t choices; /* random choices of the stub: bits of the input's hash */
static size_t stored;    /* content not consumed yet */

static bool choose(unsigned one_in)
{
    choices = choices * 1664525 + 1013904223;
    return (choices >> 16) % one_in == 0;
}

/* The state of a stream in the stub. */
struct request {
    struct request *next, **to_this;
    size_t stored, left;
    bool has_length, length_ends;
    uint64_t length;
};

static struct request *requests;

static struct request *request_new(void)
{
    struct request *request = calloc(1, sizeof *request);
    PROPERTY(request != NULL);
    if ((request->next = requests))
        requests->to_this = &request->next;
    request->to_this = &requests;
    return requests = request;
}

static void request_free(struct request *request)
{
    stored -= request->stored;
    if ((*request->to_this = request->next))
        request->next->to_this = request->to_this;
    free(request);
}

static bool is_clean(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (((unsigned char)s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] == 0x7f)
            return false;
    return true;
}

static void assert_parses_back(const struct request_head *head, const struct framing *framing)
{
    static char bytes[HEAD_MAX];
    static struct request_head again;
    struct text text = text_over(bytes, sizeof bytes);
    struct framing framing_again;
    struct refusal refusal;
    size_t seen = 0, size = 0;

    PROPERTY(is_clean(head->method_text) && is_clean(head->path) && is_clean(head->query) &&
             is_clean(head->host));
    PROPERTY(!fields_have(&head->fields, FIELD_CONNECTION) &&
             !fields_have(&head->fields, FIELD_UPGRADE));
    if (head->fields.count > HEAD_FIELDS_MAX - 10) /* weir adds some fields */
        return;
    request_head_write(&text, head, framing, &facts);
    PROPERTY(!text.failed);
    PROPERTY(request_head_read(text_slice(&text), &seen, &size, &again, &refusal) == SCAN_WHOLE &&
             size == text.n);
    PROPERTY(request_framing(&again, &framing_again, &refusal));
    PROPERTY(framing_again.kind == framing->kind && framing_again.length == framing->length);
    PROPERTY(slice_equal(again.method_text, head->method_text) &&
             slice_equal(again.host, head->host));
    PROPERTY(slice_equal(again.path, head->path) && slice_equal(again.query, head->query));
    PROPERTY(again.keep_alive && !fields_have(&again.fields, FIELD_CONNECTION));
}

static void send_more(struct http2_stream *stream, struct request *request)
{
    static const char zeros[200000];
    request->left -= http2_send_content(stream, (struct slice){zeros, request->left}, true);
}

static void respond(struct http2_stream *stream)
{
    static const struct http2_field fields[] = {{{"Content-Type", 12}, {"text/plain", 10}},
                                                {{"X-Empty", 7}, {"", 0}}};
    struct request *request = http2_stream_user(stream);

    if (choose(4))
        PROPERTY(http2_send_interim(stream, 103, fields, 1, 0));
    request->left = choose(2) ? 0 : choose(2) ? 10 : 200000;
    PROPERTY(http2_send_head(stream, 200, fields, 2, 0, request->left == 0));
    if (request->left)
        send_more(stream, request);
}

static void detach(struct http2_stream *stream)
{
    request_free(http2_stream_user(stream));
    http2_stream_detach(stream);
}

static void on_request(struct http2_stream *stream, struct request_head *head,
                       const struct framing *framing)
{
    PROPERTY(http2_stream_user(stream) == NULL);
    struct request *request = request_new();
    http2_stream_set_user(stream, request);
    assert_parses_back(head, framing);
    request->has_length = framing->kind != FRAMING_CHUNKED;
    request->length = framing->length;
    PROPERTY(http2_session_streams(http2_stream_session(stream)) <= STREAMS * 2);
    if (choose(8))
        http2_reset(stream);
    else if (choose(8))
        detach(stream);
    else if (framing->kind == FRAMING_NONE || choose(4))
        respond(stream);
}

static void on_refused(struct http2_stream *stream, const struct refusal *refusal,
                       struct slice text)
{
    (void)text;
    PROPERTY(refusal->status >= 400 && refusal->status < 600 && refusal->why);
    PROPERTY(http2_send_head(stream, refusal->status, NULL, 0, 0, true));
    http2_stream_detach(stream);
}

static void on_content(struct http2_stream *stream, struct slice bytes)
{
    struct request *request = http2_stream_user(stream);
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
        detach(stream);
}

static void assert_trailers(struct slice text)
{
    PROPERTY(text.n == 0 || (text.n > 4 && memcmp(text.p + text.n - 4, "\r\n\r\n", 4) == 0));
}

static void on_content_end(struct http2_stream *stream, struct slice trailers)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(!request->has_length || request->length == 0);
    assert_trailers(trailers);
    if (request->left == 0 && !stream->sent_all && choose(2))
        http2_reset(stream);
}

static void on_writable(struct http2_stream *stream)
{
    send_more(stream, http2_stream_user(stream));
}

static void on_closed(struct http2_stream *stream, bool complete)
{
    struct request *request = http2_stream_user(stream);
    PROPERTY(request && (!complete || request->left == 0));
    request_free(request);
}

static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    (void)context, (void)why;
    PROPERTY(cause < HTTP2_CAUSE_COUNT && cause != HTTP2_NO_MEMORY && http2_cause_name[cause]);
}

static const struct http2_events events = {.request = on_request,
                                           .refused = on_refused,
                                           .content = on_content,
                                           .content_end = on_content_end,
                                           .writable = on_writable,
                                           .closed = on_closed,
                                           .fault = on_fault};

static void receive(struct http2_session *session, const char *bytes, size_t n, size_t step)
{
    for (size_t at = 0; at < n && !http2_session_is_over(session); at += step) {
        size_t part = n - at < step ? n - at : step;
        http2_session_receive(session, (struct slice){bytes + at, part}, at);
        if (choose(64))
            http2_session_shut_down(session);
        for (unsigned i = 0; i < 100; i++) {
            http2_session_send(session);
            if (!iobuf_held(out))
                break;
            iobuf_take(out, choose(2) ? iobuf_held(out) : 1 + iobuf_held(out) / 2);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char first[] =
        "\0\0\0\4\0\0\0\0\0"
        "\0\0\0\4\1\0\0\0\0"                      /* SETTINGS, acknowledgement */
        "\0\0\x05\1\4\0\0\0\1\x83\x87\x84\x41\0"; /* POST https / with empty :authority */
    bool whole = size >= 4 && memcmp(data, "PRI ", 4) == 0;

    if (!scratch && !(scratch = http2_scratch_new()))
        return 0;
    choices = fuzz_choice(data, size);
    stored = 0;
    struct http2_session *session =
        http2_session_new(&settings, false, &events, NULL, scratch, &pool, &out, 0);
    PROPERTY(session != NULL);
    char *bytes = fuzz_copy(data, size);
    if (!whole) {
        receive(session, http2_preface, HTTP2_PREFACE_SIZE, HTTP2_PREFACE_SIZE);
        receive(session, first, sizeof first - 1, sizeof first);
    }
    receive(session, bytes, size, choose(2) ? size + 1 : choices % 64 + 1);
    free(bytes);
    /* the connection is lost: the caller closes its streams */
    while (requests)
        request_free(requests);
    http2_session_free(session);
    iobuf_put(&pool, &out);
    return 0;
}
