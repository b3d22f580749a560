/* http1_head.c - reads the heads of HTTP/1.1 requests from a client connection. */
#include <assert.h>
#include <string.h>

#include "downstream/http1_head.h"
#include "downstream/http2.h"
#include "downstream/socket_client.h"
#include "http/trailers.h"
#include "proxy/exchange.h"

/* ---- between requests ------------------------------------------------------------------------ */

void http1_await_request(struct socket_client *c)
{
    struct worker *w = c->client.worker;

    c->scanned = 0;
    if (w->stopping || c->client.ends || (c->stream.eof && !iobuf_held(c->stream.in))) {
        client_close(&c->client);
        return;
    }
    client_enter(&c->client, CLIENT_IDLE);
    c->client.since_ms = client_now_ms();
    stream_want_read(&c->stream, !c->stream.eof);
    deadline_arm(&w->downstream->queue.idle, &c->client.deadline, clock_cached_us(),
                 w->policy->timeouts.keepalive_us);
    if (iobuf_held(c->stream.in)) { /* through the event loop: no recursion or starvation */
        c->unread = true;
        stream_wake(&c->stream);
    }
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Received bytes of a request, in either buffer. */
struct request_head_bytes {
    struct slice all;
    bool kept; /* in stream.in, else in worker->receive */
};

/* Reads bytes of a head. False: nothing new, or the connection is closed. */
static bool receive_head(struct socket_client *c, struct request_head_bytes *got)
{
    struct worker *w = c->client.worker;
    ssize_t n;

    got->kept = c->stream.in != NULL;
    if (c->unread) {
        c->unread = false;
        assert(c->stream.in); /* `unread` is set only if the buffer has bytes */
        got->all = iobuf_slice(c->stream.in);
        return true;
    }
    if (got->kept)
        n = stream_read_in(&c->stream, &w->buffers, IOBUF_LARGE);
    else
        n = stream_read(&c->stream, w->receive, IOBUF_READ_MAX);
    if (n == STREAM_AGAIN)
        return false;
    if (n <= 0) {
        client_close(&c->client); /* no complete request, so no response is due */
        return false;
    }
    got->all = got->kept ? iobuf_slice(c->stream.in) : (struct slice){w->receive, (size_t)n};
    return true;
}

static void consume_head(struct socket_client *c, struct request_head_bytes *got, size_t n)
{
    if (got->kept)
        stream_take(&c->stream, &c->client.worker->buffers, n);
    got->all.p += n;
    got->all.n -= n;
}

/* Keeps an incomplete head until the rest arrives. */
static void keep_partial_head(struct socket_client *c, const struct request_head_bytes *got)
{
    struct worker *w = c->client.worker;

    if (c->client.state == CLIENT_IDLE) {
        client_enter(&c->client, CLIENT_HEAD);
        c->client.since_ms = client_now_ms();
        deadline_arm(&w->downstream->queue.head, &c->client.deadline, clock_us(),
                     w->policy->timeouts.request_header_us);
    }
    if (got->kept)
        return;
    if (!(c->stream.in = iobuf_get(&w->buffers, IOBUF_LARGE)))
        client_close(&c->client);
    else
        iobuf_append(c->stream.in, got->all);
}

/* Waits for the rest of a head. A client that has closed its sending side sends none. */
static void await_head(struct socket_client *c, const struct request_head_bytes *got)
{
    if (c->stream.eof)
        client_close(&c->client);
    else if (got->all.n)
        keep_partial_head(c, got);
}

/* Rejects a request. `bytes`: the received part of its head. Its end is unknown, and the client may
 * still be sending. */
static void refuse_request(struct socket_client *c, struct slice bytes, enum cause cause,
                           uint16_t status, const char *why)
{
    struct request_line line = request_line_peek(bytes);

    client_enter(&c->client, CLIENT_EXCHANGE);
    c->may_be_http2 = false;
    deadline_cancel(&c->client.deadline);
    c->http1 =
        (struct http1){.minor = 1, .keep_alive = true, .end_unknown = true, .request.ended = true};
    if (!exchange_refuse(&c->downstream, cause, status, why, &line))
        client_close(&c->client);
    else if (c->client.state == CLIENT_EXCHANGE)
        iobuf_put(&c->client.worker->buffers, &c->stream.in);
}

void http1_refuse(struct socket_client *c, const char *why)
{
    refuse_request(c, SLICE(""), CAUSE_BAD_REQUEST, 400, why);
}

void http1_head_timed_out(struct client *client)
{
    struct socket_client *c = socket_client_of(client);

    if (iobuf_held(c->stream.in))
        refuse_request(c, iobuf_slice(c->stream.in), CAUSE_HEAD_TIMEOUT,
                       cause_table[CAUSE_HEAD_TIMEOUT].status, NULL);
    else
        client_close(&c->client); /* no bytes were received */
}

static enum scan refused(struct http1_head_result *result, const struct refusal *refusal)
{
    result->cause = refusal->status == 431   ? CAUSE_HEAD_TOO_LARGE
                    : refusal->status == 414 ? CAUSE_TARGET_TOO_LONG
                                             : CAUSE_BAD_REQUEST;
    result->status = refusal->status;
    result->why = refusal->why;
    return SCAN_REFUSED;
}

/* RFC 9112 section 3: a target that is too long gets 414, any other oversized head 431. */
static enum scan refused_size(struct http1_head_result *result, struct slice bytes, size_t max)
{
    bool in_target = memchr(bytes.p, '\n', bytes.n < max ? bytes.n : max) == NULL;

    result->cause = in_target ? CAUSE_TARGET_TOO_LONG : CAUSE_HEAD_TOO_LARGE;
    result->status = cause_table[result->cause].status;
    result->why = "see size_limits.request_header";
    return SCAN_REFUSED;
}

inline enum scan http1_head_parse(struct slice bytes, size_t max, size_t *seen,
                                  struct request_head *head, struct http1_head_result *result)
{
    struct refusal refusal;
    size_t size;
    enum scan scan = request_head_read(bytes, seen, &size, head, &refusal);

    if (scan == SCAN_PARTIAL ? bytes.n >= max : size > max)
        return refused_size(result, bytes, max);
    if (scan == SCAN_REFUSED ||
        (scan == SCAN_WHOLE && !request_framing(head, &result->framing, &refusal)))
        return refused(result, &refusal);
    return scan;
}

/* Uses a complete head in place, without copying it. */
static void use_head(struct socket_client *c, struct request_head_bytes *got,
                     struct request_head *head, const struct framing *framing)
{
    struct worker *w = c->client.worker;
    size_t size = head->whole.n;
    struct slice rest = {got->all.p + size, got->all.n - size};

    if (got->kept) /* the bytes stay valid until the next read, which is after use */
        c->stream.in->start += (uint32_t)size;
    else if (!stream_keep(&c->stream, &w->buffers, rest)) {
        client_close(&c->client);
        return;
    }
    client_enter(&c->client, CLIENT_EXCHANGE);
    c->may_be_http2 = false;
    deadline_cancel(&c->client.deadline);
    c->scanned = 0;
    c->http1 = (struct http1){.minor = head->minor,
                              .keep_alive = head->keep_alive,
                              .accepts_trailers = request_accepts_trailers(head, HTTP_VERSION_1)};
    body_reader_begin(&c->http1.request, framing);
    if (!exchange_begin(&c->downstream, head, framing)) {
        client_close(&c->client);
        return;
    }
    if (c->stream.in && !iobuf_held(c->stream.in))
        iobuf_put(&w->buffers, &c->stream.in);
}

/* Recognises the preface of HTTP/2 (RFC 9113 section 3.3, prior knowledge) in the first bytes of a
 * connection. Returns true if it is there, or may be: then the bytes are not read as a head. */
static bool take_preface(struct socket_client *c, const struct request_head_bytes *got)
{
    size_t n = got->all.n < HTTP2_PREFACE_SIZE ? got->all.n : HTTP2_PREFACE_SIZE;

    if (memcmp(got->all.p, http2_preface, n) != 0)
        return false;
    if (n < HTTP2_PREFACE_SIZE) {
        keep_partial_head(c, got);
        return true;
    }
    struct iobuf *in = c->stream.in;
    c->stream.in = NULL;
    http2_begin(c, got->all);
    iobuf_put(&c->client.worker->buffers, &in);
    return true;
}

void http1_read_head(struct socket_client *c)
{
    struct request_head_bytes got;
    struct http1_head_result result;
    struct request_head *head = &c->client.worker->request;
    size_t seen = c->scanned, max = c->client.worker->policy->size_limits.request_header;

    if (!receive_head(c, &got))
        return;
    if (c->scanned == 0)
        consume_head(c, &got, request_skip_empty_line(got.all));
    if (got.all.n == 0) {
        await_head(c, &got);
        return;
    }
    if (c->may_be_http2 && take_preface(c, &got))
        return;
    enum scan scan = http1_head_parse(got.all, max, &seen, head, &result);
    c->scanned = (uint32_t)seen;
    if (scan == SCAN_REFUSED)
        refuse_request(c, got.all, result.cause, result.status, result.why);
    else if (scan == SCAN_PARTIAL)
        await_head(c, &got);
    else
        use_head(c, &got, head, &result.framing);
}
