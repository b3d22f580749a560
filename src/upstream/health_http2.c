#include "upstream/health_http2.h"

#include <stdlib.h>

#include "base/clock.h"
#include "http/grpc_status.h"
#include "http/trailers.h"
#include "http2/client_session.h"
#include "policy/upstream_settings.h"
#include "service/grpc_message.h"

enum {
    HEAD_MAX = 16 * 1024,
    WINDOW = 65535,
    RESETS_PER_SECOND = 10,
    MESSAGE_MAX = 256 /* a HealthCheckResponse has 2 bytes */
};

struct health_http2 {
    struct http2_session *session;
    struct http2_scratch *scratch;
    unsigned status;
    const char *why;

    /* gRPC */
    bool ended;      /* the response is complete */
    int grpc_status; /* or GRPC_STATUS_NONE */
    char message[MESSAGE_MAX];
    size_t size;
};

static void note_grpc_status(struct health_http2 *h, const struct fields *fields)
{
    h->ended = true;
    h->grpc_status = grpc_status_of(fields);
}

static void on_interim(struct http2_stream *stream, struct response_head *head)
{
    (void)stream, (void)head;
}

static void on_response(struct http2_stream *stream, struct response_head *head,
                        const struct framing *framing, bool end)
{
    struct health_http2 *h = http2_stream_user(stream);
    (void)framing;

    h->status = head->status;
    if (end)
        note_grpc_status(h, &head->fields);
}

/* Content is read for gRPC alone: other connections are closed after the head. */
static void on_content(struct http2_stream *stream, struct slice bytes)
{
    struct health_http2 *h = http2_stream_user(stream);

    if (bytes.n > sizeof h->message - h->size) {
        h->why = "its response is too large";
        return;
    }
    memcpy(h->message + h->size, bytes.p, bytes.n);
    h->size += bytes.n;
    http2_consume(stream, bytes.n);
}

static void on_content_end(struct http2_stream *stream, struct slice trailers)
{
    static struct fields fields; /* used by the main thread only */
    const char *why;

    fields.count = 0;
    if (trailers.n && !trailers_parse(trailers, &fields, &why))
        fields.count = 0;
    note_grpc_status(http2_stream_user(stream), &fields);
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

/* A HealthCheckRequest: { string service = 1; }. */
static bool send_message(struct http2_stream *stream, const char *service)
{
    size_t n = strlen(service), size = 0;
    char message[GRPC_PREFIX + 3 + HEALTH_SERVICE_MAX];

    if (n) {
        message[GRPC_PREFIX + size++] = 1 << 3 | 2;
        if (n > 127)
            message[GRPC_PREFIX + size++] = (char)(0x80 | (n & 127));
        message[GRPC_PREFIX + size++] = (char)(n > 127 ? n >> 7 : n);
        memcpy(message + GRPC_PREFIX + size, service, n);
        size += n;
    }
    grpc_message_prefix(message, size);
    struct slice all = {message, GRPC_PREFIX + size};
    return http2_send_content(stream, all, true) == all.n;
}

static bool open_stream(struct health_http2 *h, struct slice request, const char *grpc, bool secure)
{
    static struct request_head head; /* used by the main thread only */
    struct refusal refusal;
    struct http2_stream *stream =
        request_head_parse(request, &head, &refusal)
            ? http2_open(h->session, &head, secure ? SLICE("https") : SLICE("http"), grpc, h)
            : NULL;

    return stream && (!grpc || send_message(stream, grpc));
}

struct health_http2 *health_http2_begin(struct iobuf_pool *pool, struct iobuf **out,
                                        struct slice request, const char *grpc, bool secure)
{
    static const struct http2_settings settings = {.max_concurrent_streams = 1,
                                                   .initial_window = WINDOW,
                                                   .max_header_list = HEAD_MAX,
                                                   .resets_per_second = RESETS_PER_SECOND};
    struct health_http2 *h = calloc(1, sizeof *h);

    if (h)
        h->grpc_status = GRPC_STATUS_NONE;
    if (h && (h->scratch = http2_scratch_new()) &&
        (h->session =
             http2_session_new(&settings, true, &events, h, h->scratch, pool, out, clock_us())) &&
        open_stream(h, request, grpc, secure)) {
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

/* ---- gRPC ------------------------------------------------------------------------------------ */

/* Reads a varint of protobuf. Returns the byte after it, or NULL. */
static const unsigned char *varint(const unsigned char *p, const unsigned char *end,
                                   uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
        *value |= (uint64_t)(*p & 127) << shift;
        if (!(*p++ & 128))
            return p;
    }
    return NULL;
}

/* Reads a HealthCheckResponse: { ServingStatus status = 1; }, of which other fields are skipped.
 * Returns the status, or -1 if it is malformed. */
static int serving_status(const unsigned char *p, const unsigned char *end)
{
    enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
    uint64_t tag, value = 0;
    int status = 0;

    while (p < end) {
        if (!(p = varint(p, end, &tag)))
            return -1;
        switch (tag & 7) {
        case VARINT:
            if (!(p = varint(p, end, &value)))
                return -1;
            if (tag >> 3 == 1)
                status = value < 4 ? (int)value : -1;
            continue;
        case FIXED64: value = 8; break;
        case FIXED32: value = 4; break;
        case BYTES:
            if (!(p = varint(p, end, &value)))
                return -1;
            break;
        default: return -1;
        }
        if (value > (uint64_t)(end - p))
            return -1;
        p += value;
    }
    return status;
}

static const char *message_fault(const struct health_http2 *h)
{
    static const char *const faults[] = {"it reports UNKNOWN", NULL, "it reports NOT_SERVING",
                                         "it reports SERVICE_UNKNOWN"};
    struct slice all = {h->message, h->size}, message;

    if (grpc_message_read(all, &message) != GRPC_MESSAGE_READ)
        return "its response is no gRPC message";
    const unsigned char *p = (const unsigned char *)message.p;
    int status = serving_status(p, p + message.n);
    return status < 0 ? "its response is no HealthCheckResponse" : faults[status];
}

bool health_http2_serving(const struct health_http2 *h, const char **why)
{
    enum { NOT_FOUND = 5, UNIMPLEMENTED = 12 };

    *why = NULL;
    if (h->status && h->status != 200)
        *why = "its status is not 200";
    else if (h->ended)
        *why = h->grpc_status == 0               ? message_fault(h)
               : h->grpc_status == NOT_FOUND     ? "it does not know the service (grpc-status 5)"
               : h->grpc_status == UNIMPLEMENTED ? "it has no health service (grpc-status 12)"
                                                 : "its grpc-status is not 0";
    else
        *why = h->why;
    return h->ended || *why;
}

void health_http2_free(struct health_http2 *h)
{
    if (!h)
        return;
    http2_session_free(h->session);
    http2_scratch_free(h->scratch);
    free(h);
}
