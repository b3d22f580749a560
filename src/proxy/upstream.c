#include "proxy/upstream.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/listener.h"
#include "proxy/exchange.h"

enum {
    LINK_MAGIC = 0x4c494e4b,
    POOLED_MAX = 256,              /* idle links a worker keeps for a server */
    POOLED_IDLE_US = 60 * 1000000, /* and for how long */
    DOWN_US = 1000000              /* a server that could not be reached is the last choice for so long */
};

struct server {
    const struct upstream_server *settings;
    struct pool *pool;
    unsigned index;
    unsigned outstanding; /* links CONNECTING or BUSY */
    unsigned pooled_count;
    uint64_t down_until_us;          /* 0: believed to be up */
    TAILQ_HEAD(pooled, link) pooled; /* last used first */
};

/* A worker's view of one upstream. */
struct pool {
    const struct upstream *settings;
    struct generation *generation;
    struct server *servers;
    unsigned next; /* where to start looking: equal servers take turns */
};

const char *link_server_text(const struct link *link)
{
    return link->server->settings->text;
}

/* ---- a server's state -------------------------------------------------------------------------------- */

/* One line a change of state, not a request. */
static void server_failed(struct server *server, const char *why)
{
    if (server->down_until_us == 0)
        log_warn("upstream %s: server %s: %s; trying others first, and it again every second",
                 server->pool->settings->name, server->settings->text, why);
    server->down_until_us = clock_us() + DOWN_US;
}

void upstream_note_answer(struct link *link)
{
    struct server *server = link->server;
    if (server->down_until_us == 0)
        return;
    server->down_until_us = 0;
    log_info("upstream %s: server %s answers again", server->pool->settings->name, server->settings->text);
}

bool upstreams_ready(const struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        const struct pool *pool = &g->pools[i];
        bool up = false;
        for (unsigned s = 0; s < pool->settings->server_count && !up; s++)
            up = pool->servers[s].down_until_us == 0;
        if (!up)
            return false;
    }
    return true;
}

/* The server with the least outstanding requests; one that is down only when all are. NULL: all were tried.
 */
static struct server *choose(struct pool *pool, const struct upstream_tries *tries, uint64_t now_us)
{
    struct server *best = NULL;
    bool best_down = false;
    unsigned count = pool->settings->server_count;

    pool->next = (pool->next + 1) % count;
    for (unsigned i = 0; i < count; i++) {
        struct server *s = &pool->servers[(pool->next + i) % count];
        bool down = s->down_until_us > now_us;
        if (s->index < 64 && (tries->servers >> s->index & 1))
            continue;
        if (!best || (best_down && !down) || (best_down == down && s->outstanding < best->outstanding)) {
            best = s;
            best_down = down;
        }
    }
    return best;
}

/* ---- a link's life ----------------------------------------------------------------------------------- */

static void link_close(struct link *link)
{
    struct worker *w = link->worker;

    if (link->state == LINK_CLOSED)
        return;
    if (link->state == LINK_POOLED) {
        TAILQ_REMOVE(&link->server->pooled, link, link);
        link->server->pooled_count--;
    } else
        link->server->outstanding--;
    link->state = LINK_CLOSED;
    link->exchange = NULL;
    deadline_cancel(&link->deadline);
    stream_close(&link->stream, &w->buffers);
    counter_subtract(&w->stats.upstream_connections_open, 1);
    TAILQ_INSERT_TAIL(&w->link_graveyard, link, link);
}

static void link_connected(struct link *link)
{
    deadline_cancel(&link->deadline);
    link->state = LINK_BUSY;
    stream_want_write(&link->stream, false);
    stream_want_read(&link->stream, true);
}

static void link_finish_connect(struct link *link)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(link->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error == 0) {
        link_connected(link);
        exchange_connected(link->exchange);
        return;
    }
    server_failed(link->server, strerror(error));
    struct exchange *x = link->exchange;
    link_close(link);
    exchange_connect_failed(x, CAUSE_UPSTREAM_CONNECT);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_BUSY)
        exchange_link_readable(link->exchange);
    else if (link->state == LINK_POOLED)
        link_close(
            link); /* the server closed it, or sent bytes nobody asked for: either way it is of no use */
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_CONNECTING)
        link_finish_connect(link);
    else if (link->state == LINK_BUSY)
        exchange_link_writable(link->exchange);
}

static void connect_timed_out(struct deadline *deadline)
{
    struct link *link = CONTAINER_OF(deadline, struct link, deadline);
    struct exchange *x = link->exchange;

    server_failed(link->server, "no connection within connect_timeout");
    link_close(link);
    exchange_connect_failed(x, CAUSE_CONNECT_TIMEOUT);
}

static void response_timed_out(struct deadline *deadline)
{
    exchange_link_timed_out(CONTAINER_OF(deadline, struct link, deadline)->exchange);
}

static void pooled_for_long(struct deadline *deadline)
{
    link_close(CONTAINER_OF(deadline, struct link, deadline));
}

/* A link to `server` that is connecting or, on a unix socket, connected. NULL with errno. */
static struct link *dial(struct worker *w, struct server *server, struct exchange *x)
{
    const struct address *to = &server->settings->address;
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct link *link = fd < 0 ? NULL : calloc(1, sizeof *link);

    if (!link) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    socket_set_options(fd, to);
    bool at_once = connect(fd, &to->any, to->length) == 0;
    if (!at_once && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        free(link);
        errno = error;
        return NULL;
    }
    MAGIC_SET(link, LINK_MAGIC);
    link->state = LINK_CONNECTING;
    link->worker = w;
    link->server = server;
    link->exchange = x;
    stream_open(&link->stream, w->base, fd, on_readable, on_writable, link);
    server->outstanding++;
    counter_add(&w->stats.upstream_connections_opened, 1);
    counter_add(&w->stats.upstream_connections_open, 1);
    if (at_once)
        link_connected(link);
    else {
        stream_want_write(&link->stream, true);
        deadline_arm(&w->queue.connect, &link->deadline, clock_us(),
                     server->pool->settings->connect_timeout_us);
    }
    return link;
}

static struct link *take_pooled(struct server *server, struct exchange *x)
{
    struct link *link = TAILQ_FIRST(&server->pooled);
    TAILQ_REMOVE(&server->pooled, link, link);
    server->pooled_count--;
    server->outstanding++;
    deadline_cancel(&link->deadline);
    link->state = LINK_BUSY;
    link->reused = true;
    link->exchange = x;
    counter_add(&link->worker->stats.upstream_reused, 1);
    return link;
}

struct link *upstream_take(struct exchange *exchange, bool fresh, struct upstream_tries *tries,
                           enum cause *cause)
{
    struct generation *g = exchange->generation;
    struct worker *worker = g->worker;
    struct pool *pool = &g->pools[exchange->rule->upstream->index];
    uint64_t now = clock_us();

    for (struct server *server; (server = choose(pool, tries, now));) {
        if (!fresh && !TAILQ_EMPTY(&server->pooled))
            return take_pooled(server, exchange);
        if (server->index < 64)
            tries->servers |= (uint64_t)1 << server->index;
        tries->count++;
        struct link *link = dial(worker, server, exchange);
        if (link)
            return link;
        if (errno == ENOMEM || errno == EMFILE || errno == ENFILE) {
            log_error("upstream %s: cannot open a connection: %s", pool->settings->name, strerror(errno));
            *cause = CAUSE_NO_MEMORY;
            return NULL;
        }
        server_failed(server, strerror(errno));
        if (server->index >= 64)
            break;
    }
    *cause = CAUSE_UPSTREAM_CONNECT;
    return NULL;
}

void upstream_release(struct link *link, bool reusable)
{
    struct server *server = link->server;
    struct worker *w = link->worker;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (!reusable || link->state != LINK_BUSY || link->stream.in || link->stream.out || link->stream.eof ||
        w->stopping || server->pool->generation != w->now || server->pooled_count >= POOLED_MAX) {
        link_close(link);
        return;
    }
    server->outstanding--;
    server->pooled_count++;
    link->state = LINK_POOLED;
    link->exchange = NULL;
    link->scanned = 0;
    TAILQ_INSERT_HEAD(&server->pooled, link, link);
    stream_want_read(&link->stream, true);
    deadline_arm(&w->queue.pooled, &link->deadline, clock_us(), POOLED_IDLE_US);
}

/* ---- the pools of a generation ----------------------------------------------------------------------- */

void upstreams_init(struct worker *w)
{
    deadline_queue_init(&w->deadlines, &w->queue.connect, connect_timed_out);
    deadline_queue_init(&w->deadlines, &w->queue.response, response_timed_out);
    deadline_queue_init(&w->deadlines, &w->queue.pooled, pooled_for_long);
    TAILQ_INIT(&w->link_graveyard);
}

void upstreams_bury(struct worker *w)
{
    for (struct link *link; (link = TAILQ_FIRST(&w->link_graveyard));) {
        TAILQ_REMOVE(&w->link_graveyard, link, link);
        MAGIC_WIPE(link);
        free(link);
    }
}

int upstream_init(struct generation *g)
{
    const struct policy *policy = g->policy;

    if (!(g->pools = calloc(policy->upstream_count ? policy->upstream_count : 1, sizeof *g->pools)))
        return -1;
    for (unsigned i = 0; i < policy->upstream_count; i++) {
        struct pool *pool = &g->pools[i];
        pool->settings = &policy->upstreams[i];
        pool->generation = g;
        if (!(pool->servers = calloc(pool->settings->server_count, sizeof *pool->servers)))
            return -1;
        for (unsigned s = 0; s < pool->settings->server_count; s++) {
            pool->servers[s] =
                (struct server){.settings = &pool->settings->servers[s], .pool = pool, .index = s};
            TAILQ_INIT(&pool->servers[s].pooled);
        }
    }
    return 0;
}

void upstream_close_pooled(struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        struct pool *pool = &g->pools[i];
        for (unsigned s = 0; pool->servers && s < pool->settings->server_count; s++)
            for (struct link *link; (link = TAILQ_FIRST(&pool->servers[s].pooled));)
                link_close(link);
    }
}

void upstream_free(struct generation *g)
{
    if (!g->pools)
        return;
    upstream_close_pooled(g);
    upstreams_bury(g->worker); /* they point at these pools */
    for (unsigned i = 0; i < g->policy->upstream_count; i++)
        free(g->pools[i].servers);
    free(g->pools);
    g->pools = NULL;
}
