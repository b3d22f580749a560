#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "http/rewrite.h"
#include "net/ip_counts.h"
#include "net/listener.h"
#include "policy/identity.h"
#include "proxy/client.h"
#include "proxy/endpoint_set.h"
#include "proxy/exchange.h"
#include "proxy/hold.h"
#include "proxy/upstream.h"
#include "proxy/worker_internal.h"

enum {
    ACCEPTS_PER_TURN = 64,    /* so that a connection flood does not starve open connections */
    ACCEPT_PAUSE_US = 100000, /* pause in accepting when descriptors or slots are exhausted */
    EVICTED_AT_ONCE = 8,      /* clients evicted per shortage of descriptors */
    TURN_US = 2000,           /* time limit of a loop iteration; the rest waits for the next */
    /* Sockets per epoll_wait. The limit is higher for upstream connections than for clients:
     * requests in progress complete before new ones start. This keeps the requests in flight, and
     * the upstream connections in use, few with any number of clients. */
    CLIENTS_PER_BATCH = 128,
    LINKS_PER_BATCH = 256
};

/* One listening socket of this worker. */
struct listener {
    struct worker *worker;
    unsigned index; /* index in the policy: a reload keeps the listeners and their order */
    int fd;
    struct event event, resume;
    bool paused;
};

/* ---- accepting ------------------------------------------------------------------------------- */

static void listener_pause(struct listener *l)
{
    struct timeval pause = {.tv_usec = ACCEPT_PAUSE_US};
    l->paused = true;
    event_del(&l->event);
    event_add(&l->resume, &pause);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct listener *l = arg;
    (void)fd, (void)what;
    l->paused = false;
    event_add(&l->event, NULL);
}

/* Evicts clients to free descriptors, which refill the reserve first, and pauses accepting. */
static void wait_for_descriptors(struct listener *l)
{
    struct client *leaves;

    for (unsigned n = 0; n < EVICTED_AT_ONCE && (leaves = client_to_evict(l->worker, false)); n++)
        client_evict(leaves);
    listener_pause(l);
}

/* The kernel has no descriptor or memory. weir waits, because retrying at once fails again. */
static void accept_failed(struct listener *l, int error)
{
    static _Thread_local uint64_t said_us;
    uint64_t now = clock_us();

    if (descriptors_lack(error))
        descriptors_note_lack(error);
    else if (now - said_us > 10000000) {
        said_us = now;
        log_error("cannot accept connections: %s; trying again every 100 ms", strerror(error));
    }
    wait_for_descriptors(l);
}

/* Each worker has a share of size_limits.connections. If it is taken, a connection goes to a
 * worker with a free slot (handoff.h). If there is none, the worker evicts one of its own
 * connections. */
unsigned worker_share_of(const struct worker *w, unsigned number)
{
    unsigned max = w->policy->size_limits.connections, workers = w->shared->workers;

    if (w->shared->connections_max && max > w->shared->connections_max)
        max = w->shared->connections_max;
    unsigned share = max / workers + (number < max % workers);
    return max && !share ? 1 : share;
}

unsigned worker_connections_max(const struct worker *w)
{
    return worker_share_of(w, w->number);
}

static bool is_full(const struct worker *w)
{
    unsigned max = worker_connections_max(w);
    return max && atomic_load_explicit(&w->handoff.places, memory_order_relaxed) >= max;
}

/* Warns at most once per 10 s: the peer may be a proxy that is missing in trusted_proxies. */
static void report_refused(const struct address *peer, unsigned max)
{
    static _Thread_local uint64_t said_us;
    uint64_t now = clock_us();
    char text[ADDRESS_TEXT_MAX];

    if (said_us && now - said_us < 10000000)
        return;
    said_us = now;
    log_warn(
        "connection of %s refused: its address has %u already (size_limits.connections_per_ip; a proxy's "
        "address belongs to identity.trusted_proxies, which are not counted)",
        address_format(peer, text), max);
}

/* The default is a quarter of size_limits.connections, or of the connections for which there are
 * descriptors if that is less. */
static unsigned connections_per_ip_max(const struct worker *w)
{
    const struct size_limits *sizes = &w->policy->size_limits;
    unsigned places = w->shared->connections_max;

    if (!sizes->connections_per_ip_derived || places == 0 || places >= sizes->connections)
        return sizes->connections_per_ip;
    return places < 4 ? 1 : places / 4;
}

bool worker_count_peer(struct worker *w, const struct address *peer, bool *counted)
{
    unsigned max = connections_per_ip_max(w);

    *counted = w->shared->ip_counts && !identity_trusts(&w->policy->identity, peer);
    if (!*counted || ip_counts_enter(w->shared->ip_counts, peer, max))
        return true;
    *counted = false;
    counter_add(&w->stats.connections_refused, 1);
    report_refused(peer, max);
    return false;
}

/* Returns whether the peer may connect. On a PROXY protocol listener the peer must be trusted;
 * its client is counted after the header is read. */
static bool may_connect(struct listener *l, const struct address *peer, bool *counted)
{
    struct worker *w = l->worker;

    *counted = false;
    if (!w->policy->listen[l->index].proxy_protocol)
        return worker_count_peer(w, peer, counted);
    if (identity_trusts(&w->policy->identity, peer))
        return true;
    counter_add(&w->stats.proxy_headers_refused, 1);
    return false;
}

/* Opens an accepted connection. Its slot was taken before, or is freed by evicting `leaves`. A
 * refused connection evicts nobody. */
static void admit(struct listener *l, int fd, const struct address *peer, struct client *leaves)
{
    struct worker *w = l->worker;
    bool counted;

    counter_add(&w->stats.connections_accepted, 1);
    if (!may_connect(l, peer, &counted)) {
        close(fd);
        if (!leaves)
            place_free(w);
        return;
    }
    if (leaves) {
        place_take_over(w);
        client_evict(leaves);
    }
    socket_set_options(fd, peer);
    if (!client_open(w, fd, peer, l->index, counted)) {
        counter_add(&w->stats.connections_refused, 1);
        worker_client_closed(w, counted ? peer : NULL);
    }
}

/* Resumes accepting before the pause ends: slots are free and connections wait. */
static void listeners_resume(struct worker *w)
{
    w->crowded = false;
    for (unsigned i = 0; i < w->listener_count; i++) {
        struct listener *l = &w->listeners[i];
        if (!l->paused || l->fd < 0)
            continue;
        event_del(&l->resume);
        on_resume(-1, 0, l);
    }
}

/* Passes a connection to worker `to`, where a slot was taken. If `to` accepts no more, the
 * connection is served here if a slot is free. */
static void hand_over(struct listener *l, struct worker *to, int fd, const struct address *peer)
{
    struct handed connection = {fd, l->index, *peer};

    if (handoff_give(to, &connection))
        return;
    place_free(to);
    if (place_take_here(l->worker))
        admit(l, fd, peer, NULL);
    else {
        close(fd);
        counter_add(&l->worker->stats.connections_refused, 1);
    }
}

/* Accepts one connection. False: none waits, or none may be accepted now. */
static bool accept_one(struct listener *l)
{
    struct worker *w = l->worker, *to = place_take(w);
    struct client *leaves = to ? NULL : client_to_evict(w, true);
    struct address peer = {.length = sizeof peer.local};

    if (!to && !leaves) {
        w->crowded = true;
        listener_pause(l); /* the connection waits in the kernel */
        return false;
    }
    int client = accept4(l->fd, &peer.any, &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC), error = errno;
    if (client >= 0 && to && to != w)
        hand_over(l, to, client, &peer);
    else if (client >= 0)
        admit(l, client, &peer, leaves);
    if (client >= 0)
        return true;
    if (to)
        place_free(to);
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
        accept_failed(l, error);
    else if (error != EAGAIN && error != EWOULDBLOCK)
        return true; /* that connection has failed: try the next one */
    return false;
}

/* Accepts at most `most` waiting connections. Nothing is evicted before a new connection was
 * accepted. */
static void accept_waiting(struct listener *l, unsigned most)
{
    while (most-- && accept_one(l))
        ;
}

/* Opens the connections that other workers passed to this one. */
static void receive_handed(struct worker *w)
{
    struct handed connection;

    while (handoff_receive(w, &connection))
        admit(&w->listeners[connection.listener], connection.fd, &connection.peer, NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    if (unlikely(descriptors_are_scarce()))
        wait_for_descriptors(arg);
    else
        accept_waiting(arg, ACCEPTS_PER_TURN);
}

void worker_client_closed(struct worker *w, const struct address *peer)
{
    place_free(w);
    if (w->shared->ip_counts && peer)
        ip_counts_leave(w->shared->ip_counts, peer);
}

/* Closing a SO_REUSEPORT listener resets the connections in its queue, so they are accepted
 * first. */
static void listeners_close(struct worker *w)
{
    for (unsigned i = 0; i < w->listener_count; i++) {
        struct listener *l = &w->listeners[i];
        if (l->fd < 0)
            continue;
        accept_waiting(l, LISTENER_BACKLOG);
        event_del(&l->event);
        event_del(&l->resume);
        close(l->fd);
        l->fd = -1;
    }
}

/* ---- services for exchanges ------------------------------------------------------------------ */

struct slice worker_date(struct worker *w)
{
    int64_t second = (int64_t)(clock_cached_wall_us() / 1000000);
    if (second != w->date_second) {
        w->date_second = second;
        http_date_write(w->date, second);
    }
    return (struct slice){w->date, sizeof w->date};
}

/* xoshiro256** (Blackman and Vigna, 2018). Not for secrets. */
uint64_t worker_random(struct worker *w)
{
    uint64_t *s = w->random, x = s[1] * 5, t = s[1] << 17;
    uint64_t result = (x << 7 | x >> 57) * 9;

    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* Ids never repeat within a worker: the finaliser of splitmix64 (Steele, Lea and Flood, 2014) is
 * a bijection. It is invertible. Without the key in its middle, two ids would reveal the number of
 * requests between them. */
size_t worker_request_id(struct worker *w, char *id)
{
    uint64_t x = w->id_count++;
    struct text out = text_over(id, sizeof w->id_start + 16);

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u ^ w->id_key;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    text_bytes(&out, w->id_start, sizeof w->id_start);
    text_hex_fixed(&out, x ^ x >> 31, 16);
    return out.n;
}

static void request_ids_init(struct worker *w)
{
    struct text start = text_over(w->id_start, sizeof w->id_start);

    text_hex_fixed(&start, worker_random(w), 16);
    w->id_count = worker_random(w);
    w->id_key = worker_random(w);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static bool all_done(const struct worker *w)
{
    return w->stopping && !clients_any(w);
}

static void publish(struct worker *w)
{
    atomic_store_explicit(&w->redis_ready, limiter_redis_ready(w->now->limiter), memory_order_relaxed);
    atomic_store_explicit(&w->redis_away, limiter_redis_away(w->now->limiter), memory_order_relaxed);
    atomic_store_explicit(&w->redis_breaker, limiter_breaker(w->now->limiter), memory_order_relaxed);
    atomic_store_explicit(&w->upstreams_ready, upstreams_ready(w->now), memory_order_relaxed);
}

/* Ends a long loop iteration. With thousands of ready sockets an iteration would take tens of
 * milliseconds. Decisions would be sent to Redis, and time out, that much late. Unprocessed events
 * come first in the next iteration: libevent's queue and the pollers' batches are kept. */
static void iteration_is_long(void *arg)
{
    struct worker *w = arg;
    poller_stop(&w->client_poller);
    poller_stop(&w->link_poller);
    event_base_loopbreak(w->base);
}

static void turn(struct worker *w)
{
    clock_iteration_begin();
    w->turn++;
    event_base_loop(w->base, EVLOOP_ONCE);
    generations_flush(w);
    servers_refresh(w->now);
    clients_free_closed(w);
    upstreams_free_closed(w);
    if (unlikely(w->crowded) && !is_full(w))
        listeners_resume(w);
    publish(w);
    log_thread_flush();
}

static void first_wait_passed(struct deadline *deadline)
{
    (void)deadline; /* the timer only wakes the loop */
}

static bool is_ready(const struct worker *w)
{
    return (!policy_needs_redis(w->policy) || limiter_redis_ready(w->now->limiter)) &&
           endpoint_set_is_resolved(w->now->endpoint_set);
}

/* Waits until Redis is connected and upstream names are resolved, for at most 1 s. Meanwhile
 * connections wait in the kernel. */
static void await_readiness(struct worker *w)
{
    deadline_arm(&w->first_queue, &w->first_wait, clock_us(), GENERATION_WAIT_US);
    while (!is_ready(w) && deadline_is_armed(&w->first_wait))
        turn(w);
    deadline_cancel(&w->first_wait);
}

static void serve(struct worker *w)
{
    for (unsigned i = 0; i < w->listener_count && !w->stopping; i++)
        event_add(&w->listeners[i].event, NULL);
    if (!w->stopping)
        handoff_open(w);
    w->shared->serving(w->shared->context);
}

/* Waits until limits on requests in flight have released the last requests, for at most 1 s. */
static void give_back(struct worker *w)
{
    deadline_arm(&w->first_queue, &w->first_wait, clock_us(), GENERATION_WAIT_US);
    while (!generations_quiet(w) && deadline_is_armed(&w->first_wait))
        turn(w);
    deadline_cancel(&w->first_wait);
}

static void *run(void *arg)
{
    struct worker *w = arg;

    log_thread_begin();
    clock_iteration_limit(TURN_US, iteration_is_long, w);
    await_readiness(w);
    serve(w);
    while (!all_done(w))
        turn(w);
    give_back(w);
    upstream_retire(w->now);
    upstreams_free_closed(w);
    log_thread_end();
    w->shared->ended(w->shared->context);
    return NULL;
}

static void shutdown_passed(struct deadline *deadline)
{
    struct worker *w = CONTAINER_OF(deadline, struct worker, shutdown);
    log_warn("worker %u: requests still under way after timeouts.shutdown: closing their connections",
             w->number);
    clients_cut(w);
}

static void begin_to_stop(struct worker *w)
{
    handoff_close(w);
    receive_handed(w);
    listeners_close(w);
    w->stopping = true;
    clients_stop(w);
    upstream_retire(w->now);
    deadline_arm(&w->shutdown_queue, &w->shutdown, clock_us(), w->policy->timeouts.shutdown_us);
}

static void take_endpoint_set(struct worker *w, struct endpoint_set *endpoint_set)
{
    struct generation *next = generation_new(w, endpoint_set);

    if (next)
        generation_announce(w, next);
    else
        log_error("worker %u: no memory for the new policy: it goes on with the one before", w->number);
    endpoint_set_drop(endpoint_set);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct worker *w = arg;
    uint64_t count;
    (void)what;

    MAGIC_CHECK(w, WORKER_MAGIC);
    if (read(fd, &count, sizeof count) < 0)
        return;
    struct endpoint_set *endpoint_set = atomic_exchange(&w->reload, NULL);
    if (endpoint_set)
        take_endpoint_set(w, endpoint_set);
    receive_handed(w);
    if (atomic_load(&w->stop) && !w->stopping)
        begin_to_stop(w);
}

/* ---- creation and destruction ---------------------------------------------------------------- */

static bool listeners_init(struct worker *w, const int *fds)
{
    unsigned count = w->policy->listen_count;

    if (!(w->listeners = calloc(count ? count : 1, sizeof *w->listeners)))
        return false; /* worker_new closes them */
    w->listener_count = count;
    for (unsigned i = 0; i < count; i++) {
        struct listener *l = &w->listeners[i];
        l->worker = w;
        l->index = i;
        l->fd = fds[i];
        event_assign(&l->event, w->base, l->fd, EV_READ | EV_PERSIST, on_accept, l);
        evtimer_assign(&l->resume, w->base, on_resume, l);
    }
    return true;
}

struct worker *worker_new(struct worker_shared *shared, struct endpoint_set *endpoint_set, unsigned number,
                          const int *listen_fds)
{
    struct policy *policy = endpoint_set_policy(endpoint_set);
    struct worker *w = calloc(1, sizeof *w);
    struct generation *first;

    if (!w)
        return NULL;
    MAGIC_SET(w, WORKER_MAGIC);
    w->number = number;
    w->shared = shared;
    w->policy = policy;

    handoff_init(&w->handoff);
    w->wake_fd = -1;
    w->date_second = -1;
    if (getrandom(w->random, sizeof w->random, 0) != (ssize_t)sizeof w->random ||
        !worker_make_rows(w, policy->rule_count, policy->limit_count) || !(w->base = event_base_new()) ||
        poller_init(&w->link_poller, w->base, LINKS_PER_BATCH) != 0 ||
        poller_init(&w->client_poller, w->base, CLIENTS_PER_BATCH) != 0 ||
        deadlines_init(&w->deadlines, w->base) != 0)
        goto failed;
    request_ids_init(w);
    clients_init(w);
    holds_init(w);
    exchanges_init(w);
    deadline_queue_init(&w->deadlines, &w->shutdown_queue, shutdown_passed);
    deadline_queue_init(&w->deadlines, &w->first_queue, first_wait_passed);
    upstreams_init(w);
    generations_init(w);
    if (!(w->quotas = quota_client_new(shared->quotas, w->base, &w->deadlines)))
        goto failed;
    if ((w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0 ||
        !(first = generation_new(w, endpoint_set)))
        goto failed;
    generation_install(w, first);
    event_assign(&w->wake, w->base, w->wake_fd, EV_READ | EV_PERSIST, on_wake, w);
    event_add(&w->wake, NULL);
    if (!listeners_init(w, listen_fds))
        goto failed;
    publish(w);
    return w;
failed:;
    int error = errno ? errno : ENOMEM;
    for (unsigned i = 0; !w->listeners && i < policy->listen_count; i++)
        close(listen_fds[i]);
    worker_free(w);
    errno = error;
    return NULL;
}

int worker_start(struct worker *w)
{
    int failure = pthread_create(&w->thread, NULL, run, w);
    errno = failure;
    return failure ? -1 : 0;
}

static void wake(struct worker *w)
{
    uint64_t one = 1;
    while (write(w->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void worker_stop(struct worker *w)
{
    atomic_store(&w->stop, true);
    wake(w);
}

void worker_wake(struct worker *w)
{
    wake(w);
}

void worker_reload(struct worker *w, struct endpoint_set *endpoint_set)
{
    endpoint_set_drop(atomic_exchange(&w->reload, endpoint_set_hold(endpoint_set)));
    wake(w);
}

bool worker_judges_by(const struct worker *w, const struct endpoint_set *endpoint_set)
{
    return atomic_load(&w->judged_by) == endpoint_set;
}

bool worker_make_rows(struct worker *w, unsigned rules, unsigned limits)
{
    return counter_table_grow(&w->stats.by_rule, rules) &&
           counter_table_grow(&w->limiter_stats.by_limit, limits);
}

void worker_join(struct worker *w)
{
    pthread_join(w->thread, NULL);
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    for (unsigned i = 0; w->listeners && i < w->listener_count; i++)
        if (w->listeners[i].fd >= 0) {
            event_del(&w->listeners[i].event);
            event_del(&w->listeners[i].resume);
            close(w->listeners[i].fd);
        }
    handoff_clear(&w->handoff);
    generations_free(w);
    if (w->wake_fd >= 0) {
        event_del(&w->wake);
        close(w->wake_fd);
    }
    if (w->clients.tqh_last)
        clients_free(w);
    holds_clear(w);
    if (w->decided.tqh_last)
        event_del(&w->act);
    exchanges_free(w);
    quota_client_free(w->quotas);
    deadlines_clear(&w->deadlines);
    poller_clear(&w->client_poller);
    poller_clear(&w->link_poller);
    if (w->base)
        event_base_free(w->base);
    iobuf_pool_clear(&w->buffers);
    free(w->listeners);
    counter_table_clear(&w->stats.by_rule);
    counter_table_clear(&w->limiter_stats.by_limit);
    endpoint_set_drop(atomic_exchange(&w->reload, NULL));
    MAGIC_WIPE(w);
    free(w);
}

const struct worker_stats *worker_stats(const struct worker *w)
{
    return &w->stats;
}

const struct limiter_stats *worker_limiter_stats(const struct worker *w)
{
    return &w->limiter_stats;
}

bool worker_redis_ready(const struct worker *w)
{
    return atomic_load_explicit(&w->redis_ready, memory_order_relaxed);
}

bool worker_redis_away(const struct worker *w)
{
    return atomic_load_explicit(&w->redis_away, memory_order_relaxed);
}

enum redis_breaker worker_redis_breaker(const struct worker *w)
{
    return (enum redis_breaker)atomic_load_explicit(&w->redis_breaker, memory_order_relaxed);
}

bool worker_upstreams_ready(const struct worker *w)
{
    return atomic_load_explicit(&w->upstreams_ready, memory_order_relaxed);
}
