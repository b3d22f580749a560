/* linger.c - lingering close: reads and drops input that a client still sends after its response.
 *
 * Many clients send the whole request before they read. If weir closed its socket meanwhile, the
 * kernel would answer further content with a reset. The client would see EPIPE or ECONNRESET and no
 * response (RFC 9112 section 9.6). weir therefore reads the content while it keeps arriving, within
 * these bounds:
 *
 *   total time    timeouts.linger
 *   pause         LINGER_PAUSE_US without a byte
 *   rate          LINGER_RATE_MIN on average, after LINGER_PAUSE_US
 *   bytes         over HTTP/2, what the windows permit: a client that sends more ignores GOAWAY
 *   connections   a quarter of the worker's; the one that has lingered longest closes first
 *
 * A lingering connection owns no buffer. Dropped input is never parsed as a request: in
 * CLIENT_DRAIN the message framing marks the start of the next request, in CLIENT_LINGER there is
 * none. */
#include "base/clock.h"
#include "downstream/client_internal.h"
#include "http2/session.h"

enum {
    LINGER_PAUSE_US = 5 * 1000000,
    LINGER_RATE_MIN = 1000,           /* bytes per second */
    LINGER_STOPPING_US = 2 * 1000000, /* remaining time when weir stops */
    LINGER_HEADS_MAX = 64 * 1024,     /* over HTTP/2, beside content */
    LINGERING_MAX = 1024              /* if size_limits.connections is 0 */
};

static void drain(struct client *c, bool readable);

static unsigned lingering_max(const struct worker *w)
{
    unsigned slots = worker_connections_max(w);
    return slots == 0 ? LINGERING_MAX : slots < 4 ? 1 : slots / 4;
}

/* Closes the oldest lingering connection if the limit is reached. */
static void make_room(struct worker *w)
{
    if (counter_read(&w->stats.connections_lingering) >= lingering_max(w))
        client_close(TAILQ_FIRST(&w->downstream->lingering));
}

static void arm(struct client *c)
{
    uint64_t left = c->worker->stopping ? LINGER_STOPPING_US : LINGER_PAUSE_US;
    uint64_t most = c->worker->policy->timeouts.linger_us;

    deadline_arm(&c->worker->downstream->queue.linger, &c->deadline, clock_us(),
                 left < most ? left : most);
}

static void begin(struct client *c, enum client_state state)
{
    make_room(c->worker);
    c->since_ms = client_now_ms();
    c->dropped = 0;
    client_enter(c, state);
    stream_want_read(&c->stream, true);
    arm(c);
}

void linger_begin(struct client *c)
{
    iobuf_put(&c->worker->buffers, &c->stream.in);
    if (c->stream.eof || c->worker->policy->timeouts.linger_us == 0 || !stream_end(&c->stream))
        client_close(c);
    else
        begin(c, CLIENT_LINGER);
}

void linger_drain(struct client *c)
{
    begin(c, CLIENT_DRAIN);
    drain(c, false);
}

/* Returns the most bytes to drop. */
static uint64_t dropped_max(const struct client *c)
{
    return c->origin.version == HTTP_VERSION_2
               ? HTTP2_CONNECTION_WINDOWS * c->worker->policy->http2.initial_window +
                     LINGER_HEADS_MAX
               : UINT64_MAX;
}

/* Counts `n` dropped bytes. False: it has lingered too long, or the input is too slow or too
 * much. */
static bool goes_on(struct client *c, uint64_t n)
{
    uint64_t elapsed_us = (uint64_t)(client_now_ms() - c->since_ms) * 1000;

    c->dropped += n;
    if (elapsed_us > c->worker->policy->timeouts.linger_us || c->dropped > dropped_max(c) ||
        (elapsed_us > LINGER_PAUSE_US && c->dropped < LINGER_RATE_MIN * (elapsed_us / 1000000)))
        return false;
    if (n && !c->worker->stopping)
        arm(c);
    return true;
}

static void read_and_drop(struct client *c)
{
    ssize_t n = stream_read(&c->stream, c->worker->receive, IOBUF_READ_MAX);

    if (n != STREAM_AGAIN && (n <= 0 || !goes_on(c, (uint64_t)n)))
        client_close(c);
}

/* Reads and drops the rest of a request body. Its framing marks the next request. */
static void drain(struct client *c, bool readable)
{
    struct body_reader *request = &c->http1.request;
    struct body_io io = {&c->worker->buffers, c->worker->receive, NULL};
    struct content_piece piece;
    const char *why;
    uint64_t before = request->bytes;
    enum body_status status = body_read(request, &c->stream, readable, &io, &piece, &why);
    bool usable =
        status == BODY_READ ? body_consume(&c->stream, &piece, &io) : status == BODY_AGAIN;

    if (usable && request->ended)
        c->protocol->drained(c);
    else if (!usable || !goes_on(c, request->bytes - before))
        client_close(c);
}

void linger_readable(struct client *c)
{
    if (c->state == CLIENT_DRAIN)
        drain(c, true);
    else
        read_and_drop(c);
}

void linger_stop(struct worker *w)
{
    for (struct client *c = TAILQ_FIRST(&w->downstream->lingering); c; c = TAILQ_NEXT(c, link))
        arm(c);
}

/* On a busy machine the deadline may fire before timely input is read. */
static void linger_passed(struct deadline *deadline)
{
    struct client *c = CONTAINER_OF(deadline, struct client, deadline);

    MAGIC_CHECK(c, CLIENT_MAGIC);
    if (!c->worker->stopping && stream_has_unread(&c->stream) && goes_on(c, 0))
        arm(c);
    else
        client_close(c);
}

void linger_init(struct worker *w)
{
    TAILQ_INIT(&w->downstream->lingering);
    deadline_queue_init(&w->deadlines, &w->downstream->queue.linger, linger_passed);
}
