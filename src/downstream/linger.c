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
#include "downstream/socket_client.h"

enum {
    LINGER_PAUSE_US = 5 * 1000000,
    LINGER_RATE_MIN = 1000,           /* bytes per second */
    LINGER_STOPPING_US = 2 * 1000000, /* remaining time when weir stops */
    LINGERING_MAX = 1024              /* if size_limits.connections is 0 */
};

static const struct socket_protocol lingering;

static unsigned lingering_max(const struct worker *w)
{
    unsigned slots = worker_connections_max(w);
    return slots == 0 ? LINGERING_MAX : slots < 4 ? 1 : slots / 4;
}

/* Closes the oldest lingering connection if the limit is reached. */
static void evict_oldest(struct worker *w)
{
    if (counter_read(&w->stats.connections_lingering) >= lingering_max(w))
        client_close(TAILQ_FIRST(&w->downstream->lists[CLIENTS_LINGERING]));
}

void linger_arm(struct client *c)
{
    uint64_t left = c->worker->stopping ? LINGER_STOPPING_US : LINGER_PAUSE_US;
    uint64_t most = c->worker->policy->timeouts.linger_us;

    deadline_arm(&c->worker->downstream->queue.linger, &c->deadline, clock_us(),
                 left < most ? left : most);
}

static void enter_lingering(struct socket_client *c, enum client_state state, uint64_t dropped_max)
{
    evict_oldest(c->client.worker);
    c->client.since_ms = client_now_ms();
    c->dropped = 0;
    c->dropped_max = dropped_max;
    client_enter(&c->client, state);
    stream_want_read(&c->stream, true);
    linger_arm(&c->client);
}

void linger_begin(struct socket_client *c, uint64_t dropped_max)
{
    struct worker *w = c->client.worker;

    socket_client_use(c, &lingering);
    iobuf_put(&w->buffers, &c->stream.in);
    if (c->stream.eof || w->policy->timeouts.linger_us == 0 || !stream_end(&c->stream))
        client_close(&c->client);
    else
        enter_lingering(c, CLIENT_LINGER, dropped_max);
}

void linger_begin_drain(struct socket_client *c)
{
    enter_lingering(c, CLIENT_DRAIN, UINT64_MAX);
}

/* Counts `n` dropped bytes. False: it has lingered too long, or the input is too slow or too
 * much. */
static bool may_linger(struct socket_client *c, uint64_t n)
{
    uint64_t elapsed_us = client_since_us(&c->client);

    c->dropped += n;
    if (elapsed_us > c->client.worker->policy->timeouts.linger_us || c->dropped > c->dropped_max ||
        (elapsed_us > LINGER_PAUSE_US && c->dropped < LINGER_RATE_MIN * (elapsed_us / 1000000)))
        return false;
    if (n && !c->client.worker->stopping)
        linger_arm(&c->client);
    return true;
}

static void read_and_drop(struct socket_client *c, bool closed)
{
    ssize_t n = stream_read(&c->stream, c->client.worker->receive, IOBUF_READ_MAX);

    (void)closed;
    if (n != STREAM_AGAIN && (n <= 0 || !may_linger(c, (uint64_t)n)))
        client_close(&c->client);
}

/* The message framing marks the next request. */
bool linger_drain(struct socket_client *c, bool receive)
{
    struct body_reader *request = &c->http1.request;
    struct body_io io = {&c->client.worker->buffers, c->client.worker->receive, NULL};
    struct content_piece piece;
    const char *why;
    uint64_t before = request->bytes;
    enum body_status status = body_read(request, &c->stream, receive, &io, &piece, &why);
    bool usable =
        status == BODY_READ ? body_consume(&c->stream, &piece, &io) : status == BODY_AGAIN;

    if (usable && request->ended)
        return true;
    if (!usable || !may_linger(c, request->bytes - before))
        client_close(&c->client);
    return false;
}

static const struct socket_protocol lingering = {.client = {.has_input = socket_client_has_input,
                                                            .stop = linger_arm,
                                                            .memory = socket_client_memory,
                                                            .shed = socket_client_shed,
                                                            .end = socket_client_end,
                                                            .free = socket_client_free},
                                                 .readable = read_and_drop};

/* On a busy machine the deadline may fire before timely input is read. */
static void linger_passed(struct deadline *deadline)
{
    struct socket_client *c = CONTAINER_OF(deadline, struct socket_client, client.deadline);

    MAGIC_CHECK(&c->client, CLIENT_MAGIC);
    if (!c->client.worker->stopping && stream_has_unread(&c->stream) && may_linger(c, 0))
        linger_arm(&c->client);
    else
        client_close(&c->client);
}

void linger_init(struct worker *w)
{
    deadline_queue_init(&w->deadlines, &w->downstream->queue.linger, linger_passed);
}
