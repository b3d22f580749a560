/* http2_connection.c - an HTTP/2 connection to a server: its session, input, output, end.
 *
 * weir reads from the server even while it has unsent output, so that a server that reads only when
 * its own output is taken does not wait for ever. What the session then holds is bounded: content
 * by the windows, acknowledgements and frames by http2/frame_limits.h. */
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/tls.h"
#include "policy/policy.h"
#include "upstream/http2_upstream_internal.h"

enum {
    ROUNDS_MAX = 4, /* buffers written per connection and loop iteration */
    SILENCE_MAX_US = 10 * 1000000
};

/* ---- faults ---------------------------------------------------------------------------------- */

/* Faults of the server: a bounded number of lines per cause and worker. */
static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    struct http2_connection *h = context;
    struct upstream_worker *w = h->connection->link.worker;
    bool of_stream = cause == HTTP2_MALFORMED || cause == HTTP2_HEADER_LIST;
    bool of_session = !of_stream && cause != HTTP2_NO_PING_RESPONSE;
    uint64_t suppressed;

    counter_add(&w->stats.http2_errors[cause], 1);
    const char *text = cause == HTTP2_HEADER_LIST ? http2_link_too_large : http2_cause_text[cause];

    if (of_session)
        h->why = why && cause == HTTP2_PROTOCOL_ERROR ? why : text;
    if (!log_throttle_allows(&w->http2_throttle[cause], clock_us(), &suppressed))
        return;
    log_warn("server %s: HTTP/2 %s: %s%s%s", h->server->endpoint->text,
             of_stream ? "stream reset" : "connection closed", text, why ? ": " : "",
             why ? why : "");
}

static void on_capacity(void *context)
{
    http2_upstream_touch(context); /* http2_serve() follows */
}

static const struct http2_events events = {.interim = http2_link_on_interim,
                                           .response = http2_link_on_response,
                                           .capacity = on_capacity,
                                           .content = http2_link_on_content,
                                           .content_end = http2_link_on_content_end,
                                           .writable = http2_link_on_writable,
                                           .closed = http2_link_on_closed,
                                           .fault = on_fault};

/* ---- begin ----------------------------------------------------------------------------------- */

static void begin_session(struct http2_connection *h)
{
    struct connection *c = h->connection;
    struct upstream_worker *w = c->link.worker;
    const struct policy *policy = h->server->pool->pools->policy;
    struct http2_upstreams *u = http2_upstreams_of(w);
    struct http2_settings settings = {.max_concurrent_streams = HTTP2_UPSTREAM_STREAMS_MAX,
                                      .initial_window = HTTP2_UPSTREAM_WINDOW,
                                      .max_header_list = policy->size_limits.response_header,
                                      .resets_per_second = policy->http2.resets_per_second};

    if (u)
        h->session = http2_session_new(&settings, true, &events, h, u->scratch, w->io.buffers,
                                       &c->stream.out, clock_us());
    if (h->session)
        http2_upstream_touch(h);
    else
        connection_failed(c, LINK_FAILED_NO_MEMORY, "no memory for HTTP/2");
}

static void on_up(struct connection *c)
{
    struct http2_connection *h = c->http2;
    const struct upstream *settings = h->server->pool->settings;

    if (!settings->tls.on || tls_chose_http2(&h->connection->stream)) {
        h->server->http2.is_http1 = false;
        begin_session(h);
    } else if (settings->protocol == UPSTREAM_AUTO)
        http2_becomes_http1(h);
    else
        connection_failed(h->connection, LINK_FAILED_TLS,
                          "the server does not offer HTTP/2 (ALPN h2)");
}

/* The server's SETTINGS have arrived, and allow streams. */
static void open_connection(struct http2_connection *h)
{
    struct http2_server *s = &h->server->http2;
    unsigned capacity = http2_session_capacity(h->session);

    h->open = true;
    s->connecting--;
    s->streams = capacity > HTTP2_UPSTREAM_STREAMS_MAX ? HTTP2_UPSTREAM_STREAMS_MAX : capacity;
    deadline_cancel(&h->connection->link.deadline);
    if (h->probe)
        server_admit(h->server, "accepts connections");
}

/* ---- end ------------------------------------------------------------------------------------- */

static void unlist_dirty(struct http2_connection *h)
{
    struct http2_upstreams *u = h->connection->link.worker->http2;

    if (!h->dirty)
        return;
    h->dirty = false;
    TAILQ_REMOVE(&u->dirty, h, dirty_entry);
    u->dirty_count--;
}

static void on_failed(struct connection *c, struct link_owner *owner, enum link_failure failure)
{
    struct http2_connection *h = c->http2;
    struct server *server = h->server;
    (void)owner;

    unlist_dirty(h);
    http2_connection_free(h);
    http2_fail_waiting(server, failure);
}

/* Closes an open connection; its links are notified. */
static void end_connection(struct http2_connection *h)
{
    struct server *server = h->server;
    struct http2_link *l;

    while ((l = TAILQ_FIRST(&h->links)))
        http2_link_lose(l);
    unlist_dirty(h);
    connection_close(h->connection);
    http2_connection_free(h);
    http2_serve(server);
}

/* The connection can carry nothing any more. */
static void lose_connection(struct http2_connection *h)
{
    if (h->open)
        end_connection(h);
    else if (h->why)
        connection_failed(h->connection,
                          h->why == http2_cause_text[HTTP2_NO_MEMORY] ? LINK_FAILED_NO_MEMORY
                                                                      : LINK_FAILED_CONNECT,
                          h->why);
    else if (http2_session_is_open(h->session))
        connection_failed(h->connection, LINK_FAILED_CONNECT, "the server allows no HTTP/2 stream");
    else
        connection_failed(h->connection, LINK_FAILED_CLOSED,
                          "the server closed the connection before its SETTINGS");
}

void http2_connection_idle(struct http2_connection *h)
{
    h->draining = true;
    http2_client_session_end(h->session);
    http2_upstream_touch(h);
}

/* ---- silence --------------------------------------------------------------------------------- */

/* While requests are open, a server that sends nothing for this long gets a PING. If it sends
 * nothing for as long again, it is gone without a trace. Both end before response_timeout does. */
static uint64_t silence_us(const struct http2_connection *h)
{
    uint64_t third = h->server->pool->settings->response_timeout_us / 3;

    return third < SILENCE_MAX_US ? third : SILENCE_MAX_US;
}

/* Arms the deadline of an open connection: of silence if it has links, else of being idle. */
static void arm_idle_or_silence(struct http2_connection *h)
{
    struct deadline *deadline = &h->connection->link.deadline;
    struct upstream_worker *w = h->connection->link.worker;
    bool idle = TAILQ_EMPTY(&h->links);
    struct deadline_queue *queue = idle ? &w->queue.pooled : &w->queue.http2_silence;

    if (deadline->queue != queue)
        deadline_arm(queue, deadline, clock_cached_us(), idle ? CONNECTION_IDLE_US : silence_us(h));
}

void http2_silence_passed(struct deadline *deadline)
{
    struct http2_connection *h = CONTAINER_OF(deadline, struct connection, link.deadline)->http2;
    uint64_t now = clock_us(), allowed = silence_us(h), silent = now - h->received_us;

    if (h->pinged) {
        on_fault(h, HTTP2_NO_PING_RESPONSE, NULL);
        h->lost = true;
    } else if (silent >= allowed)
        h->pinged = http2_client_session_ping(h->session);
    else
        allowed -= silent;
    if (!h->lost)
        deadline_arm(&h->connection->link.worker->queue.http2_silence, deadline, now, allowed);
    http2_upstream_touch(h);
}

/* ---- the end of a loop iteration ------------------------------------------------------------- */

/* A connection of a policy that was replaced is kept while links wait for one: http2_serve() has
 * not given them this one yet. */
static bool is_unused(const struct http2_connection *h)
{
    bool is_kept = server_keeps_idle(h->server) || !TAILQ_EMPTY(&h->server->http2.waiting);

    if (!h->open)
        return http2_session_is_open(h->session) && !http2_session_accepts(h->session);
    return TAILQ_EMPTY(&h->links) &&
           (h->draining || !is_kept || !http2_session_accepts(h->session));
}

/* A server may allow no streams at first (RFC 9113 section 6.5.2). Such a connection counts as one
 * that is being made: weir makes no others meanwhile, and gives up after connect_timeout. */
static bool becomes_open(const struct http2_connection *h)
{
    return !h->lost && !h->open && http2_session_is_open(h->session) &&
           http2_session_capacity(h->session) > 0;
}

static void flush(struct http2_connection *h)
{
    struct stream *s = &h->connection->stream;
    bool sent = true;

    for (unsigned i = 0; i < ROUNDS_MAX && sent && !h->lost; i++) {
        http2_session_send(h->session);
        if (!s->out && !http2_session_has_work(h->session))
            break;
        sent = http2_upstream_write(h);
    }
    if (becomes_open(h))
        open_connection(h);
    if (h->lost || http2_session_is_over(h->session) || is_unused(h)) {
        lose_connection(h);
        return;
    }
    if (sent && (s->out || http2_session_has_work(h->session)))
        http2_upstream_touch(h);
    if (h->open) {
        arm_idle_or_silence(h);
        http2_serve(h->server);
    }
}

void http2_upstreams_flush(struct upstream_worker *w)
{
    struct http2_upstreams *u = w->http2;

    if (!u)
        return;
    http2_links_report(u);
    for (unsigned n = u->dirty_count; n && u->dirty_count; n--) {
        struct http2_connection *h = TAILQ_FIRST(&u->dirty);
        unlist_dirty(h);
        flush(h);
    }
}

bool upstream_worker_has_work(const struct upstream_worker *w)
{
    return w->http2 && (w->http2->dirty_count || !TAILQ_EMPTY(&w->http2->ready));
}

void http2_connection_close(struct http2_connection *h)
{
    if (h->session) {
        http2_client_session_end(h->session);
        http2_session_send(h->session);
        (void)http2_upstream_write(h);
    }
    unlist_dirty(h);
    connection_close(h->connection);
    http2_connection_free(h);
}

/* ---- input ----------------------------------------------------------------------------------- */

static void on_readable(struct connection *c)
{
    struct http2_connection *h = c->http2;
    struct stream *s = &h->connection->stream;
    struct http2_upstreams *u = h->connection->link.worker->http2;
    ssize_t n = stream_read(s, u->receive, IOBUF_READ_MAX);

    if (n == STREAM_AGAIN)
        return;
    if (n <= 0) {
        h->lost = true;
        stream_want_read(s, false);
    } else {
        h->received_us = clock_cached_us();
        h->pinged = false;
        http2_session_receive(h->session, (struct slice){u->receive, (size_t)n}, clock_us());
    }
    http2_upstream_touch(h);
}

static void on_writable(struct connection *c)
{
    struct http2_connection *h = c->http2;

    if (http2_upstream_write(h) || h->lost)
        http2_upstream_touch(h);
}

static void on_idle(struct connection *c)
{
    http2_connection_idle(c->http2);
}

const struct connection_events http2_connection_events = {.up = on_up,
                                                          .failed = on_failed,
                                                          .readable = on_readable,
                                                          .writable = on_writable,
                                                          .idle = on_idle};

void http2_upstreams_free(struct upstream_worker *w)
{
    struct http2_upstreams *u = w->http2;

    if (!u)
        return;
    http2_upstreams_free_ended(w);
    free_list_drop(&u->free_links, UINT_MAX);
    http2_scratch_free(u->scratch);
    free(u);
    w->http2 = NULL;
}
