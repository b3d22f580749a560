#include "upstream/health_http2.h"

#include <stdlib.h>

#include "base/clock.h"
#include "http2/client_session.h"

enum { HEAD_MAX = 16 * 1024, WINDOW = 65535, RESETS_PER_SECOND = 10 };

struct health_http2 {
    struct http2_session *session;
    struct http2_scratch *scratch;
    unsigned status;
    const char *why;
};

static void on_interim(struct http2_stream *stream, struct response_head *head)
{
    (void)stream, (void)head;
}

static void on_response(struct http2_stream *stream, struct response_head *head,
                        const struct framing *framing, bool end)
{
    struct health_http2 *h = http2_stream_user(stream);
    (void)framing, (void)end;

    h->status = head->status;
}

/* Content is not read: the connection is closed behind the head. */
static void on_content(struct http2_stream *stream, struct slice bytes)
{
    (void)stream, (void)bytes;
}

static void on_content_end(struct http2_stream *stream, struct slice trailers)
{
    (void)stream, (void)trailers;
}

static void on_writable(struct http2_stream *stream)
{
    (void)stream;
}

static void on_closed(struct http2_stream *stream, bool complete)
{
    struct health_http2 *h = http2_stream_user(stream);
    const char *fault = http2_stream_why(stream);
    (void)complete;

    h->why = fault ? fault : "it reset the stream";
}

static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    struct health_http2 *h = context;
    h->why = why ? why : http2_cause_text[cause];
}

static const struct http2_events events = {.interim = on_interim,
                                           .response = on_response,
                                           .content = on_content,
                                           .content_end = on_content_end,
                                           .writable = on_writable,
                                           .closed = on_closed,
                                           .fault = on_fault};

static bool open_stream(struct health_http2 *h, struct slice request, bool secure)
{
    static struct request_head head; /* used by the main thread only */
    struct refusal refusal;

    return request_head_parse(request, &head, &refusal) &&
           http2_open(h->session, &head, secure ? SLICE("https") : SLICE("http"), false, h);
}

struct health_http2 *health_http2_begin(struct iobuf_pool *pool, struct iobuf **out,
                                        struct slice request, bool secure)
{
    static const struct http2_settings settings = {.max_concurrent_streams = 1,
                                                   .initial_window = WINDOW,
                                                   .max_header_list = HEAD_MAX,
                                                   .resets_per_second = RESETS_PER_SECOND};
    struct health_http2 *h = calloc(1, sizeof *h);

    if (h && (h->scratch = http2_scratch_new()) &&
        (h->session =
             http2_client_session_new(&settings, &events, h, h->scratch, pool, out, clock_us())) &&
        open_stream(h, request, secure)) {
        http2_session_send(h->session);
        return h;
    }
    health_http2_free(h);
    return NULL;
}

void health_http2_receive(struct health_http2 *h, struct slice bytes)
{
    http2_session_receive(h->session, bytes, clock_us());
    http2_session_send(h->session);
}

unsigned health_http2_status(const struct health_http2 *h, const char **why)
{
    *why = h->status ? NULL : h->why;
    return h->status;
}

void health_http2_free(struct health_http2 *h)
{
    if (!h)
        return;
    http2_session_free(h->session);
    http2_scratch_free(h->scratch);
    free(h);
}
