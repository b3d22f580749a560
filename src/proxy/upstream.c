#include "proxy/upstream.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/listener.h"
#include "net/tls.h"
#include "proxy/exchange.h"

enum {
    LINK_MAGIC = 0x4c494e4b,
    POOLED_MAX = 256,              /* idle links a worker keeps for a server */
    POOLED_IDLE_US = 60 * 1000000, /* and for how long */
    FAILURES_MAX = 5,              /* bad answers in a row that eject a server which has others beside it */
    EJECTED_MIN_US = 1000000,      /* how long a server is left alone, doubled with every failed probe */
    EJECTED_MAX_US = 32 * 1000000
};

/* A server is up, or ejected: it gets requests only when all its fellows are ejected too, and is probed by
 * connecting to it until that succeeds. */
struct server {
    const struct upstream_server *settings;
    struct pool *pool;
    unsigned index;
    unsigned outstanding; /* links CONNECTING, PROBING or BUSY */
    unsigned pooled_count;
    unsigned failures; /* bad answers in a row */
    bool ejected;
    bool said; /* that it was ejected; a server that comes and goes is not logged more than once a second */
    uint64_t said_us;
    uint64_t ejected_us;   /* for how long, last time */
    struct deadline probe; /* armed while ejected and not being probed */
    struct link *probing;  /* the probe under way, or NULL */
    struct tls_resumption resumption;
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

/* One line a change of state, not a request, and for a server that comes and goes not more than one a second. */
static void say_ejected(struct server *server, const char *why)
{
    uint64_t now = clock_us();

    server->said = now - server->said_us > 1000000;
    if (!server->said)
        return;
    server->said_us = now;
    log_warn("upstream %s: server %s: %s; ejected until it accepts connections again",
             server->pool->settings->name, server->settings->text, why);
}

static void eject(struct server *server, const char *why)
{
    const struct generation *g = server->pool->generation;

    if (server->ejected && deadline_is_armed(&server->probe))
        return;
    if (!server->ejected)
        say_ejected(server, why);
    server->ejected_us = server->ejected ? server->ejected_us * 2 : EJECTED_MIN_US;
    if (server->ejected_us > EJECTED_MAX_US)
        server->ejected_us = EJECTED_MAX_US;
    server->ejected = true;
    if (g == g->worker->now && !g->worker->stopping)
        deadline_arm(&g->worker->queue.probe, &server->probe, clock_us(), server->ejected_us);
}

static void admit(struct server *server, const char *what)
{
    server->failures = 0;
    if (!server->ejected)
        return;
    server->ejected = false;
    deadline_cancel(&server->probe);
    log_at(server->said ? LEVEL_INFO : LEVEL_DEBUG, "upstream %s: server %s %s again",
           server->pool->settings->name, server->settings->text, what);
}

void upstream_note_answer(struct link *link)
{
    admit(link->server, "answers");
}

void upstream_note_failure(struct link *link, const char *why)
{
    struct server *server = link->server;

    if (++server->failures >= FAILURES_MAX && server->pool->settings->server_count > 1)
        eject(server, why);
}

bool upstreams_ready(const struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        const struct pool *pool = &g->pools[i];
        bool up = false;
        for (unsigned s = 0; s < pool->settings->server_count && !up; s++)
            up = !pool->servers[s].ejected;
        if (!up)
            return false;
    }
    return true;
}

uint64_t upstreams_ejected(const struct generation *g)
{
    uint64_t bits = 0;
    unsigned number = 0;

    for (unsigned i = 0; i < g->policy->upstream_count; i++)
        for (unsigned s = 0; s < g->pools[i].settings->server_count && number < 64; s++)
            bits |= (uint64_t)g->pools[i].servers[s].ejected << number++;
    return bits;
}

/* The server with the least outstanding requests; one that is ejected only when all are. NULL: all were
 * tried. */
static struct server *choose(struct pool *pool, const struct upstream_tries *tries)
{
    struct server *best = NULL;
    unsigned count = pool->settings->server_count;

    pool->next = (pool->next + 1) % count;
    for (unsigned i = 0; i < count; i++) {
        struct server *s = &pool->servers[(pool->next + i) % count];
        if (s->index < 64 && (tries->servers >> s->index & 1))
            continue;
        if (!best || (best->ejected && !s->ejected) ||
            (best->ejected == s->ejected && s->outstanding < best->outstanding))
            best = s;
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
    if (link->server->probing == link)
        link->server->probing = NULL;
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
    if (link->server->probing == link)
        link->server->probing = NULL;
    link->state = LINK_BUSY;
    stream_want_write(&link->stream, false);
    stream_want_read(&link->stream, true);
}

/* Whoever the link was for: a request goes to another server, a probe is made again later. */
static void connect_failed(struct link *link, enum cause cause, const char *why)
{
    struct exchange *x = link->exchange;
    struct server *server = link->server;

    link_close(link);
    eject(server, why);
    if (x)
        exchange_connect_failed(x, cause);
}

/* The connection is a good one for the next request. */
static void probe_succeeded(struct link *link)
{
    admit(link->server, "accepts connections");
    link_connected(link);
    upstream_release(link, true);
}

static void link_is_up(struct link *link)
{
    if (link->state == LINK_PROBING)
        probe_succeeded(link);
    else {
        link_connected(link);
        exchange_connected(link->exchange);
    }
}

static void shake_hands(struct link *link)
{
    char why[TLS_WHY_MAX];

    switch (tls_handshake(&link->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE: link_is_up(link); break;
    case TLS_FAILED:
        tls_connect_failure(&link->stream, why);
        tls_resumption_clear(&link->server->resumption);
        connect_failed(link, CAUSE_UPSTREAM_TLS, why);
    }
}

static void begin_tls(struct link *link)
{
    struct server *server = link->server;
    const struct upstream_tls *tls = &server->pool->settings->tls;
    const char *host = tls->server_name ? tls->server_name : server->settings->host;

    stream_want_write(&link->stream, false);
    /* A unix socket without server_name is not verified, and is told no name. */
    if (tls_connect(&link->stream, tls->client, host ? host : "localhost", &server->resumption))
        shake_hands(link);
    else
        connect_failed(link, CAUSE_NO_MEMORY, "no memory for TLS");
}

static void link_finish_connect(struct link *link)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(link->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error)
        connect_failed(link, CAUSE_UPSTREAM_CONNECT, strerror(error));
    else if (link->server->pool->settings->tls.on)
        begin_tls(link);
    else
        link_is_up(link);
}

/* Does the link hold, or its socket, what nobody asked for? What TLS has to say to itself (RFC 8446 section 4.6.1: tickets, new keys)
 * is not that. */
static bool is_stale(struct link *link)
{
    enum { RECORDS_MAX = 8 }; /* more than a server has any reason to send at once */
    char byte;

    for (unsigned i = 0; i < RECORDS_MAX; i++) {
        if (link->stream.layer && stream_read(&link->stream, &byte, 1) != STREAM_AGAIN)
            return true;
        if (recv(link->stream.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
            return errno != EAGAIN && errno != EWOULDBLOCK;
        if (!link->stream.layer)
            return true;
    }
    return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_BUSY)
        exchange_link_readable(link->exchange);
    else if (link->state == LINK_CONNECTING || link->state == LINK_PROBING)
        shake_hands(link);
    else if (link->state == LINK_POOLED && (!link->stream.layer || is_stale(link)))
        link_close(link); /* the server closed it, or said what nobody asked for: it is of no use */
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, LINK_MAGIC);
    if (link->state == LINK_CONNECTING || link->state == LINK_PROBING)
        link_finish_connect(link);
    else if (link->state == LINK_BUSY)
        exchange_link_writable(link->exchange);
}

static void connect_timed_out(struct deadline *deadline)
{
    struct link *link = CONTAINER_OF(deadline, struct link, deadline);
    connect_failed(link, CAUSE_CONNECT_TIMEOUT,
                   link->stream.layer ? "no TLS handshake within connect_timeout"
                                      : "no connection within connect_timeout");
}

static void response_timed_out(struct deadline *deadline)
{
    exchange_link_timed_out(CONTAINER_OF(deadline, struct link, deadline)->exchange);
}

static void pooled_for_long(struct deadline *deadline)
{
    link_close(CONTAINER_OF(deadline, struct link, deadline));
}

/* A link to `server` that is connecting or, on a unix socket, connected; without an exchange, a probe. NULL
 * with errno. */
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
    link->state = x ? LINK_CONNECTING : LINK_PROBING;
    link->worker = w;
    link->server = server;
    link->exchange = x;
    stream_open(&link->stream, w->base, fd, on_readable, on_writable, link);
    server->outstanding++;
    server->probing = x ? server->probing : link;
    counter_add(&w->stats.upstream_connections_opened, 1);
    counter_add(&w->stats.upstream_connections_open, 1);
    if (at_once && !server->pool->settings->tls.on)
        link_connected(link);
    else {
        stream_want_write(&link->stream, true);
        deadline_arm(&w->queue.connect, &link->deadline, clock_us(),
                     server->pool->settings->connect_timeout_us);
    }
    return link;
}

static void probe(struct deadline *deadline)
{
    struct server *server = CONTAINER_OF(deadline, struct server, probe);
    struct link *link = dial(server->pool->generation->worker, server, NULL);

    if (!link)
        eject(server, strerror(errno));
    else if (link->state == LINK_BUSY)
        probe_succeeded(link);
}

/* NULL: there is none. What cannot be sent again is not risked on a link that may be dead; the rest saves the system call. */
static struct link *take_pooled(struct server *server, struct exchange *x)
{
    bool repeatable = x->idempotent && x->request.kind == FRAMING_NONE;
    struct link *link;

    while ((link = TAILQ_FIRST(&server->pooled)) && !repeatable && is_stale(link))
        link_close(link);
    if (!link)
        return NULL;
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
    struct link *link;

    for (struct server *server; (server = choose(pool, tries));) {
        if (!fresh && (link = take_pooled(server, exchange)))
            return link;
        if (server->index < 64)
            tries->servers |= (uint64_t)1 << server->index;
        tries->count++;
        if ((link = dial(worker, server, exchange)))
            return link;
        if (errno == ENOMEM || errno == EMFILE || errno == ENFILE) {
            log_error("upstream %s: cannot open a connection: %s", pool->settings->name, strerror(errno));
            *cause = CAUSE_NO_MEMORY;
            return NULL;
        }
        eject(server, strerror(errno));
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
    if (!reusable || link->state != LINK_BUSY || stream_holds_input(&link->stream) || link->stream.in ||
        link->stream.out || link->stream.eof || w->stopping || server->pool->generation != w->now ||
        server->pooled_count >= POOLED_MAX) {
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
    deadline_arm(&w->queue.pooled, &link->deadline, clock_turn_us(), POOLED_IDLE_US);
}

/* ---- the pools of a generation ----------------------------------------------------------------------- */

void upstreams_init(struct worker *w)
{
    deadline_queue_init(&w->deadlines, &w->queue.connect, connect_timed_out);
    deadline_queue_init(&w->deadlines, &w->queue.response, response_timed_out);
    deadline_queue_init(&w->deadlines, &w->queue.pooled, pooled_for_long);
    deadline_queue_init(&w->deadlines, &w->queue.probe, probe);
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

void upstream_retire(struct generation *g)
{
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        struct pool *pool = &g->pools[i];
        for (unsigned s = 0; pool->servers && s < pool->settings->server_count; s++) {
            struct server *server = &pool->servers[s];
            deadline_cancel(&server->probe);
            if (server->probing)
                link_close(server->probing);
            for (struct link *link; (link = TAILQ_FIRST(&server->pooled));)
                link_close(link);
        }
    }
}

void upstream_free(struct generation *g)
{
    if (!g->pools)
        return;
    upstream_retire(g);
    upstreams_bury(g->worker); /* they point at these pools */
    for (unsigned i = 0; i < g->policy->upstream_count; i++) {
        for (unsigned s = 0; g->pools[i].servers && s < g->pools[i].settings->server_count; s++)
            tls_resumption_clear(&g->pools[i].servers[s].resumption);
        free(g->pools[i].servers);
    }
    free(g->pools);
    g->pools = NULL;
}
