#include "downstream/http2_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "downstream/peer_counts.h"
#include "net/listener.h"
#include "proxy/exchange.h"

enum {
    SECOND_GOAWAY_US = 1000000, /* if the PING between the two is not answered */
    ROUNDS_MAX = 4,             /* buffers written per connection and loop iteration */
    FREE_REQUESTS_MAX = 256,
    LINGER_HEADS_MAX = 64 * 1024, /* dropped in the lingering close, beside content */
    RESETS_OF_PROXIES = 1000000   /* per second: no bound */
};

static struct http2_client *connection_of(const struct client *client)
{
    return socket_client_of(client)->http2;
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Ends of sessions: a bounded number of lines per cause and worker. Errors of single streams: at
 * level debug, as for HTTP/1.1. */
static void on_fault(void *context, enum http2_cause cause, const char *why)
{
    struct http2_client *connection = context;
    struct worker *w = connection->client->client.worker;
    bool of_stream = cause == HTTP2_MALFORMED || cause == HTTP2_TOO_MANY_STREAMS;
    uint64_t suppressed = 0;
    struct address address;
    char peer[ADDRESS_TEXT_MAX];

    counter_add(&w->stats.http2_errors[cause], 1);
    if (of_stream
            ? log_threshold < LEVEL_DEBUG
            : !log_throttle_allows(&connection->shared->throttle[cause], clock_us(), &suppressed))
        return;
    log_write(
        of_stream ? LEVEL_DEBUG : LEVEL_WARN, "client %s: HTTP/2 %s: %s%s%s%s",
        address_format(address_of_peer(&connection->client->client.origin.peer, &address), peer),
        of_stream || cause == HTTP2_HEADER_LIST ? "stream reset" : "connection closed",
        http2_cause_text[cause], why ? ": " : "", why ? why : "",
        log_throttle_more(suppressed).text);
}

static const struct http2_events events = {.request = http2_on_request,
                                           .refused = http2_on_refused,
                                           .content = http2_on_content,
                                           .content_end = http2_on_content_end,
                                           .writable = http2_on_writable,
                                           .closed = http2_on_closed,
                                           .fault = on_fault};

/* ---- end --------------------------------------------------------------------------------- */

/* Takes the connection off the list of those to be flushed. */
static void take_off(struct http2_client *connection)
{
    struct http2_worker *h = connection->shared;

    if (!connection->dirty)
        return;
    connection->dirty = false;
    TAILQ_REMOVE(&h->dirty, connection, dirty_link);
    h->dirty_count--;
}

/* Frees the session, and ends the requests of its streams as abandoned. */
static void end_session(struct http2_client *connection)
{
    struct http2_request *r;

    connection->lost = true;
    while ((r = TAILQ_FIRST(&connection->requests))) {
        r->stream = NULL;
        exchange_client_gone(r->downstream.exchange);
    }
    take_off(connection);
    deadline_cancel(&connection->second);
    http2_session_free(connection->session);
    free(connection);
}

static void end_client(struct client *client)
{
    end_session(connection_of(client));
    socket_client_end(client);
}

/* Requests may get 503 when weir stops: the connection then ends with them. The next cut ends the
 * rest of them, and the one after it the connection. */
static void cut(struct client *client, enum cause cause)
{
    struct http2_client *connection = connection_of(client);
    bool ends_later = cause == CAUSE_SHUTDOWN && !TAILQ_EMPTY(&connection->requests);

    for (struct http2_request *r = TAILQ_FIRST(&connection->requests), *next; r; r = next) {
        next = TAILQ_NEXT(r, link);
        exchange_cut(r->downstream.exchange, cause);
    }
    if (!ends_later) {
        client_close(client);
        return;
    }
    connection->stopping = true;
    http2_session_shut_down(connection->session);
    http2_session_shut_down(connection->session);
    http2_touch(connection);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void wait_in(struct client *c, struct deadline_queue *queue, uint64_t after_us)
{
    if (c->deadline.queue != queue)
        deadline_arm(queue, &c->deadline, clock_cached_us(), after_us);
}

static void await_reader(struct http2_client *connection, bool moved)
{
    struct client *c = &connection->client->client;
    struct deadline_queue *queue = &connection->shared->unsent;
    const struct timeouts *timeouts = &c->worker->policy->timeouts;
    uint64_t now = clock_cached_us(), taken = connection->client->stream.sent;

    if (c->deadline.queue != queue)
        send_rate_begin(&connection->rate, now, taken);
    else if (!moved || !send_rate_moved(&connection->rate, timeouts, now, taken))
        return;
    deadline_arm(queue, &c->deadline, now, timeouts->send_us / 2);
}

/* The time for a header counts from its beginning, also if output has waited for the client since.
 * The first header shares the deadline of the connection's opening. */
static void await_header(struct http2_client *connection, uint64_t since_us)
{
    struct client *c = &connection->client->client;
    struct deadline_queue *queue = &c->worker->downstream->queue.head;
    uint64_t armed_us = connection->head_since_us, now = clock_cached_us(),
             at_us = since_us + c->worker->policy->timeouts.request_header_us;

    connection->head_since_us = since_us;
    if (c->deadline.queue != queue || (armed_us && armed_us != since_us))
        deadline_arm(queue, &c->deadline, now, at_us > now ? at_us - now : 0);
}

/* Chooses the connection's list and deadline. A connection with requests needs none: they have
 * their own. After GOAWAY, the client has timeouts.send to take the ends of the last responses:
 * libnghttp2 sends END_STREAM only if the stream's window is open. */
static void choose_list_and_deadline(struct http2_client *connection, bool moved)
{
    struct client *c = &connection->client->client;
    struct worker *w = c->worker;
    const struct timeouts *timeouts = &w->policy->timeouts;
    bool unsent = stream_holds_output(&connection->client->stream),
         busy = unsent || !TAILQ_EMPTY(&connection->requests);
    uint64_t head_since_us = http2_session_head_since(connection->session);

    if (busy)
        client_enter(c, CLIENT_EXCHANGE);
    else if (c->state == CLIENT_EXCHANGE || http2_session_is_open(connection->session)) {
        if (c->state != CLIENT_IDLE)
            c->since_ms = client_now_ms();
        client_enter(c, CLIENT_IDLE);
    }
    if (unsent)
        await_reader(connection, moved);
    else if (head_since_us)
        await_header(connection, head_since_us);
    else if (c->state == CLIENT_HEAD)
        wait_in(c, &w->downstream->queue.head, timeouts->request_header_us);
    else if (busy)
        deadline_cancel(&c->deadline);
    else if (connection->stopping || connection->idle_over)
        wait_in(c, &connection->shared->leaving, timeouts->send_us);
    else
        wait_in(c, &w->downstream->queue.idle, timeouts->keepalive_us);
}

static void idle_timed_out(struct client *c)
{
    struct http2_client *connection = connection_of(c);

    connection->idle_over = true;
    http2_session_shut_down(connection->session);
    http2_session_shut_down(connection->session);
    http2_touch(connection);
}

static void unsent_passed(struct deadline *deadline)
{
    struct client *c = CONTAINER_OF(deadline, struct client, deadline);
    struct http2_client *connection = connection_of(c);
    const struct timeouts *timeouts = &c->worker->policy->timeouts;
    uint64_t now = clock_us(), taken = stream_taken(&connection->client->stream);

    if (send_rate_renew(&connection->rate, timeouts, now, taken))
        deadline_arm(&connection->shared->unsent, deadline, now, timeouts->send_us / 2);
    else
        cut(c, CAUSE_CLIENT_STALLED);
}

static void leaving_passed(struct deadline *deadline)
{
    client_close(CONTAINER_OF(deadline, struct client, deadline));
}

static void second_passed(struct deadline *deadline)
{
    struct http2_client *connection = CONTAINER_OF(deadline, struct http2_client, second);
    http2_session_shut_down(connection->session);
    http2_touch(connection);
}

/* GOAWAY, then the end of all streams, then the close. */
static void stop(struct client *c)
{
    struct http2_client *connection = connection_of(c);

    if (connection->stopping)
        return;
    connection->stopping = true;
    http2_session_shut_down(connection->session);
    deadline_arm(&connection->shared->second, &connection->second, clock_cached_us(),
                 SECOND_GOAWAY_US);
    http2_touch(connection);
}

/* ---- output ---------------------------------------------------------------------------------- */

void http2_touch(struct http2_client *connection)
{
    struct http2_worker *h = connection->shared;

    if (connection->dirty)
        return;
    connection->dirty = true;
    TAILQ_INSERT_TAIL(&h->dirty, connection, dirty_link);
    h->dirty_count++;
}

/* Requests, resets and window updates of a client are read while output waits for it, so that a
 * slow download does not delay them. */
static bool may_read(const struct http2_client *connection)
{
    return !stream_holds_output(&connection->client->stream) ||
           http2_session_takes_input(connection->session);
}

/* The client has closed the connection, or it has failed. Requests whose content is complete and
 * whose response was sent go on: the server still gets the rest of the content, which weir has
 * read, as over HTTP/1.1. They have no stream any more. */
static void client_left(struct http2_client *connection)
{
    struct socket_client *c = connection->client;
    struct http2_request *r, *next;

    connection->lost = connection->left = true;
    for (r = TAILQ_FIRST(&connection->requests); r; r = next) {
        next = TAILQ_NEXT(r, link);
        if (!r->stream)
            continue;
        r->stream = NULL;
        exchange_client_gone(r->downstream.exchange);
    }
    stream_drop_output(&c->stream, &c->client.worker->buffers);
    stream_want_write(&c->stream, false);
    stream_want_read(&c->stream, false);
    deadline_cancel(&c->client.deadline);
    http2_touch(connection);
}

/* The session is over: the client may still be sending, and must receive the GOAWAY. */
static void linger_after_goaway(struct http2_client *connection)
{
    struct socket_client *c = connection->client;
    uint64_t window = c->client.worker->policy->http2.initial_window;

    end_session(connection);
    linger_begin(c, HTTP2_CONNECTION_WINDOWS * window + LINGER_HEADS_MAX);
}

static void flush(struct http2_client *connection)
{
    struct socket_client *c = connection->client;
    struct http2_session *session = connection->session;
    bool moved = false, sent = true;

    if (connection->left) {
        http2_report_ready(connection);
        if (TAILQ_EMPTY(&connection->requests))
            client_close(&c->client);
        return;
    }
    for (unsigned i = 0; i < ROUNDS_MAX && sent && !connection->lost; i++) {
        http2_report_ready(connection);
        http2_session_send(session);
        if (!c->stream.out && !http2_session_has_work(session))
            break;
        size_t held = iobuf_held(c->stream.out);
        sent = http2_push(connection);
        moved |= iobuf_held(c->stream.out) < held;
    }
    if (connection->lost)
        client_left(connection);
    else if (sent && http2_session_is_over(session) && !http2_awaits_servers(connection))
        linger_after_goaway(connection);
    else {
        stream_want_read(&c->stream, may_read(connection));
        if (sent && (c->stream.out || http2_session_has_work(session)))
            http2_touch(connection);
        choose_list_and_deadline(connection, moved);
    }
}

static void free_ended(struct http2_worker *h)
{
    for (struct http2_request *r; (r = TAILQ_FIRST(&h->ended));) {
        TAILQ_REMOVE(&h->ended, r, link);
        MAGIC_WIPE(r);
        if (h->free_requests.count < FREE_REQUESTS_MAX)
            free_list_put(&h->free_requests, r);
        else
            free(r);
    }
}

static void flush_all(struct protocol_worker *protocol)
{
    struct http2_worker *h = CONTAINER_OF(protocol, struct http2_worker, protocol);

    for (unsigned n = h->dirty_count; n && h->dirty_count; n--) {
        struct http2_client *connection = TAILQ_FIRST(&h->dirty);
        take_off(connection); // NOLINT(clang-analyzer-unix.Malloc): it leaves the list
        flush(connection);
    }
    free_ended(h);
    if (h->dirty_count) /* the loop must not wait for events */
        event_active(&h->wake, EV_TIMEOUT, 1);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void readable(struct socket_client *c, bool closed)
{
    struct http2_client *connection = c->http2;
    char *receive = connection->shared->receive;

    (void)closed;
    if (!may_read(connection)) { /* resumed by flush() */
        stream_want_read(&c->stream, false);
        return;
    }
    ssize_t n = stream_read(&c->stream, receive, IOBUF_READ_MAX);
    if (n == STREAM_AGAIN)
        return;
    if (n <= 0) {
        client_left(connection);
        return;
    }
    http2_session_receive(connection->session, (struct slice){receive, (size_t)n}, clock_us());
    http2_touch(connection);
}

static void writable(struct socket_client *c)
{
    struct http2_client *connection = c->http2;
    size_t held = iobuf_held(c->stream.out);

    if (http2_push(connection) || connection->lost)
        http2_touch(connection);
    else
        choose_list_and_deadline(connection, iobuf_held(c->stream.out) < held);
}

static bool awaits_reader(const struct client *c, uint64_t *count)
{
    const struct http2_client *connection = connection_of(c);
    const struct stream *stream = &connection->client->stream;
    bool full = stream_holds_output(stream);
    const struct http2_request *r;

    TAILQ_FOREACH (r, &connection->requests, link)
        if (!r->downstream.pending)
            return false;
    *count = full ? stream_taken(stream) : connection->content_sent;
    return full || !TAILQ_EMPTY(&connection->requests);
}

static const struct socket_protocol http2_protocol = {
    .client = {.has_input = socket_client_has_input,
               .head_timed_out = http2_head_timed_out,
               .idle_timed_out = idle_timed_out,
               .stop = stop,
               .cut = cut,
               .awaits_reader = awaits_reader,
               .memory = http2_memory,
               .shed = http2_shed,
               .is_verified = socket_client_is_verified,
               .end = end_client,
               .free = socket_client_free},
    .readable = readable,
    .writable = writable};

/* ---- of a worker ----------------------------------------------------------------------------- */

static void wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg; /* flush_all() follows */
}

static void free_all(struct protocol_worker *protocol)
{
    struct http2_worker *h = CONTAINER_OF(protocol, struct http2_worker, protocol);

    free_ended(h);
    free_list_drop(&h->free_requests, UINT_MAX);
    event_del(&h->wake);
    http2_scratch_free(h->scratch);
    free(h);
}

static struct http2_worker *worker_of(struct worker *w)
{
    struct http2_worker *h = w->downstream->http2;

    if (h || !(h = calloc(1, sizeof *h)))
        return h;
    if (!(h->scratch = http2_scratch_new())) {
        free(h);
        return NULL;
    }
    TAILQ_INIT(&h->dirty);
    TAILQ_INIT(&h->ended);
    event_assign(&h->wake, w->base, -1, 0, wake, NULL);
    deadline_queue_init(&w->deadlines, &h->unsent, unsent_passed);
    deadline_queue_init(&w->deadlines, &h->leaving, leaving_passed);
    deadline_queue_init(&w->deadlines, &h->second, second_passed);
    h->protocol = (struct protocol_worker){.flush = flush_all, .free = free_all};
    clients_add_protocol(w, &h->protocol);
    return w->downstream->http2 = h;
}

/* ---- begin ----------------------------------------------------------------------------------- */

/* A proxy resets each of its calls that takes too long. It has many on one connection, which would
 * all end with it. */
static struct http2_settings settings_for(const struct socket_client *c)
{
    struct http2_settings settings = c->client.worker->policy->http2;

    if (peer_may_ask(c->client.worker, c->listener, &c->client.origin.peer))
        settings.resets_per_second = RESETS_OF_PROXIES;
    return settings;
}

void http2_begin(struct socket_client *c, struct slice bytes)
{
    struct worker *w = c->client.worker;
    const struct http2_settings settings = settings_for(c);
    struct http2_worker *h = worker_of(w);
    struct http2_client *connection = h ? calloc(1, sizeof *connection) : NULL;

    if (connection)
        connection->session = http2_session_new(&settings, false, &events, connection, h->scratch,
                                                &w->buffers, &c->stream.out, clock_us());
    if (!connection || !connection->session) {
        log_no_memory("an HTTP/2 connection is closed");
        free(connection);
        client_close(&c->client);
        return;
    }
    socket_limit_unsent(c->stream.fd);
    connection->client = c;
    connection->shared = h;
    TAILQ_INIT(&connection->requests);
    TAILQ_INIT(&connection->ready);
    socket_client_use(c, &http2_protocol);
    c->http2 = connection;
    c->client.origin.version = HTTP_VERSION_2;
    counter_add(&w->stats.http2_connections, 1);
    if (bytes.n) {
        memcpy(h->receive, bytes.p, bytes.n);
        http2_session_receive(connection->session, (struct slice){h->receive, bytes.n}, clock_us());
    }
    http2_touch(connection);
}
