#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "downstream/client.h"
#include "http/rewrite.h"
#include "net/ip_shares.h"
#include "proxy/drain.h"
#include "proxy/exchange.h"
#include "proxy/generation.h"
#include "proxy/service_listener.h"
#include "proxy/worker_state.h"
#include "upstream/endpoint_set.h"
#include "upstream/upstream.h"
#include "worker/worker.h"

enum {
    LAST_REQUESTS_US = 1000000, /* for clients that connected at the end of timeouts.drain */
    CUT_AGAIN_US = 500000,      /* for clients to take the last responses */
    REDIS_WAIT_MIN_US = 200000,
    ITERATION_US = 2000,      /* time limit of a loop iteration; the rest waits for the next */
    RELOAD_AGAIN_US = 100000, /* after memory ran out */
};

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
    return w->downstream->listeners_closed && !clients_any(w) && TAILQ_EMPTY(&w->drains);
}

static void publish_state(struct worker *w)
{
    atomic_store_explicit(&w->redis_ready, limiter_redis_ready(w->now->limiter),
                          memory_order_relaxed);
    atomic_store_explicit(&w->redis_unreachable, limiter_redis_away(w->now->limiter),
                          memory_order_relaxed);
    atomic_store_explicit(&w->redis_breaker, limiter_breaker(w->now->limiter),
                          memory_order_relaxed);
    atomic_store_explicit(&w->iterations, w->iteration, memory_order_relaxed);
}

/* Ends a long loop iteration. With thousands of ready sockets an iteration would take tens of
 * milliseconds. Decisions would be sent to Redis, and time out, that much late. Unprocessed events
 * come first in the next iteration: libevent's queue and the pollers' batches are kept. */
static void iteration_is_long(void *arg)
{
    struct worker *w = arg;
    poller_stop(&w->downstream->poller);
    poller_stop(&w->upstream.poller);
    event_base_loopbreak(w->base);
}

/* Requests and responses pass between HTTP/2 clients and servers: each flush may give the other
 * work. What is left is done in the next iteration, which does not wait. */
static void flush_upstreams(struct worker *w)
{
    upstream_worker_flush(&w->upstream);
    clients_flush(w);
    if (upstream_worker_has_work(&w->upstream))
        upstream_worker_wake(&w->upstream);
}

static void verify_clients_again(struct worker *w)
{
    w->downstream->generation = w->generation_number;
    clients_verify_again(w);
}

static void run_iteration(struct worker *w)
{
    clock_iteration_begin();
    w->upstream.iteration = ++w->iteration;
    event_base_loop(w->base, EVLOOP_ONCE);
    generations_flush(w);
    if (w->downstream->generation != w->generation_number)
        verify_clients_again(w);
    if (w->service.watch_count)
        service_watches_update(w);
    servers_refresh(&w->now->pools);
    worker_memory_check(w);
    clients_flush(w);
    if (upstream_worker_has_work(&w->upstream))
        flush_upstreams(w);
    generations_wake(w);
    clients_free_closed(w);
    upstream_worker_free_closed(&w->upstream);
    if (w->downstream->slots_exhausted)
        listeners_resume(w);
    publish_state(w);
    log_thread_flush();
}

static void first_wait_passed(struct deadline *deadline)
{
    (void)deadline; /* the timer only wakes the loop */
}

static bool redis_is_ready(const struct worker *w)
{
    return !policy_needs_redis(w->policy) || limiter_redis_ready(w->now->limiter);
}

static bool names_are_resolved(const struct worker *w)
{
    return endpoint_set_is_resolved(w->now->endpoint_set);
}

static bool keys_are_known(const struct worker *w)
{
    return token_checker_is_ready(w->now->tokens);
}

static void wait_until(struct worker *w, bool (*done)(const struct worker *w), uint64_t most_us)
{
    deadline_arm(&w->first_queue, &w->first_wait, clock_us(), most_us);
    while (!done(w) && deadline_is_armed(&w->first_wait))
        run_iteration(w);
    deadline_cancel(&w->first_wait);
}

/* Waits until upstream names are resolved, and until keys by URL are fetched or cannot be, for at
 * most 1 s each, and then until Redis is connected: for
 * redis.timeout, but at least 200 ms, since the first connection may take longer than a decision.
 * Meanwhile connections wait in the kernel. */
static void await_readiness(struct worker *w)
{
    uint64_t redis_us = w->policy->redis.timeout_us;

    redis_us = redis_us < REDIS_WAIT_MIN_US ? REDIS_WAIT_MIN_US : redis_us;
    wait_until(w, names_are_resolved, GENERATION_WAIT_US);
    wait_until(w, keys_are_known, GENERATION_WAIT_US);
    wait_until(w, redis_is_ready, redis_us < GENERATION_WAIT_US ? redis_us : GENERATION_WAIT_US);
}

static void serve(struct worker *w)
{
    if (!w->downstream->listeners_closed)
        listeners_start(w);
    w->shared->serving(w->shared->context);
}

static void *worker_thread(void *arg)
{
    struct worker *w = arg;
    char name[16]; /* the kernel's maximum */

    snprintf(name, sizeof name, "weir worker %u", w->number % 1000);
    pthread_setname_np(pthread_self(), name);
    log_thread_begin();
    clock_iteration_limit(ITERATION_US, iteration_is_long, w);
    await_readiness(w);
    serve(w);
    while (!all_done(w))
        run_iteration(w);
    /* Limits on requests in flight release the last requests. */
    wait_until(w, generations_quiet, GENERATION_WAIT_US);
    upstream_pools_retire(&w->now->pools);
    upstream_worker_free_closed(&w->upstream);
    log_thread_end();
    w->shared->ended(w->shared->context);
    return NULL;
}

static void shutdown_passed(struct deadline *deadline)
{
    struct worker *w = CONTAINER_OF(deadline, struct worker, shutdown);

    if (!w->cut && counter_read(&w->stats.requests_active)) /* otherwise connections linger */
        log_warn("worker %u: requests still in progress after timeouts.shutdown: closing their "
                 "connections",
                 w->number);
    w->cut = true;
    clients_cut(w);
    drains_cut(w);
    deadline_arm(&w->shutdown_queue, &w->shutdown, clock_us(), CUT_AGAIN_US);
}

static void stop_clients(struct worker *w)
{
    w->stopping = true;
    clients_stop(w);
    upstream_worker_stop(&w->upstream);
}

static void last_requests_passed(struct deadline *deadline)
{
    stop_clients(CONTAINER_OF(deadline, struct worker, last_requests));
}

/* After a drain, clients that have just connected still send a request; those that were idle all
 * the time may send one too. */
static void begin_to_stop(struct worker *w)
{
    listeners_close(w);
    if (w->draining)
        deadline_arm(&w->last_requests_queue, &w->last_requests, clock_us(), LAST_REQUESTS_US);
    else
        stop_clients(w);
    deadline_arm(&w->shutdown_queue, &w->shutdown, clock_us(), w->policy->timeouts.shutdown_us);
}

/* Starts to use the newest policy, if there is a new one. */
static void take_endpoint_set(struct worker *w)
{
    struct endpoint_set *endpoint_set = atomic_exchange(&w->reload, NULL), *none = NULL;
    struct generation *next = endpoint_set ? generation_new(w, endpoint_set) : NULL;

    if (!endpoint_set)
        return;
    if (next)
        generation_announce(w, next);
    else {
        log_no_memory("a worker uses the previous policy and tries again every 0.1 s");
        deadline_arm(&w->reload_again_queue, &w->reload_again, clock_us(), RELOAD_AGAIN_US);
        if (atomic_compare_exchange_strong(&w->reload, &none, endpoint_set))
            return; /* otherwise there is a newer one */
    }
    endpoint_set_drop(endpoint_set);
}

static void reload_again(struct deadline *deadline)
{
    take_endpoint_set(CONTAINER_OF(deadline, struct worker, reload_again));
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct worker *w = arg;
    uint64_t count;
    (void)what;

    MAGIC_CHECK(w, WORKER_MAGIC);
    if (read(fd, &count, sizeof count) < 0)
        return;
    if (!deadline_is_armed(&w->reload_again))
        take_endpoint_set(w);
    listeners_receive(w);
    exchanges_keys_changed(w);
    w->draining = atomic_load(&w->drain);
    if (atomic_load(&w->stop) && !w->downstream->listeners_closed)
        begin_to_stop(w);
}

/* ---- creation and destruction ---------------------------------------------------------------- */

struct worker *worker_new(struct worker_shared *shared, struct endpoint_set *endpoint_set,
                          unsigned number, const int *listen_fds)
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
    w->wake_fd = -1;
    w->date_second = -1;
    if (getrandom(w->random, sizeof w->random, 0) != (ssize_t)sizeof w->random ||
        !worker_make_rows(w) || !(w->base = event_base_new()) ||
        deadlines_init(&w->deadlines, w->base) != 0)
        goto failed;
    request_ids_init(w);
    if (!clients_init(w))
        goto failed;
    verification_init(w);
    exchanges_init(w);
    worker_memory_init(w);
    deadline_queue_init(&w->deadlines, &w->shutdown_queue, shutdown_passed);
    deadline_queue_init(&w->deadlines, &w->last_requests_queue, last_requests_passed);
    deadline_queue_init(&w->deadlines, &w->reload_again_queue, reload_again);
    deadline_queue_init(&w->deadlines, &w->first_queue, first_wait_passed);
    if (!upstream_worker_init(&w->upstream, w->base, &w->deadlines,
                              &(struct body_io){&w->buffers, w->receive, &w->trailers}))
        goto failed;
    generations_init(w);
    if (!top_clients_init(&w->top_clients) ||
        !(w->requests_by_ip = ip_shares_new(shared->requests_by_ip, shared->workers)) ||
        !(w->quotas = quota_client_new(shared->quotas, w->base, &w->deadlines)))
        goto failed;
    if ((w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0 ||
        !(first = generation_new(w, endpoint_set)))
        goto failed;
    generation_install(w, first);
    event_assign(&w->wake, w->base, w->wake_fd, EV_READ | EV_PERSIST, on_wake, w);
    event_add(&w->wake, NULL);
    if (!listeners_init(w, listen_fds))
        goto failed;
    publish_state(w);
    return w;
failed:;
    int error = errno ? errno : ENOMEM;
    bool taken = w->downstream && w->downstream->listeners;
    for (unsigned i = 0; !taken && i < policy->listen_count; i++)
        if (listen_fds[i] >= 0)
            close(listen_fds[i]);
    worker_free(w);
    errno = error;
    return NULL;
}

int worker_start(struct worker *w)
{
    int failure = pthread_create(&w->thread, NULL, worker_thread, w);
    errno = failure;
    return failure ? -1 : 0;
}

void worker_drain(struct worker *w)
{
    atomic_store(&w->drain, true);
    worker_wake(w);
}

void worker_stop(struct worker *w)
{
    atomic_store(&w->stop, true);
    worker_wake(w);
}

void worker_reload(struct worker *w, struct endpoint_set *endpoint_set)
{
    endpoint_set_drop(atomic_exchange(&w->reload, endpoint_set_hold(endpoint_set)));
    worker_wake(w);
}

bool worker_uses(const struct worker *w, const struct endpoint_set *endpoint_set)
{
    return atomic_load(&w->current_set) == endpoint_set;
}

bool worker_make_rows(struct worker *w)
{
    unsigned rows[NAMES_COUNT];

    for (unsigned n = 0; n < NAMES_COUNT; n++)
        rows[n] = w->shared->names[n].count;
    return worker_tables_grow(w, rows);
}

void worker_join(struct worker *w)
{
    pthread_join(w->thread, NULL);
}

void worker_free(struct worker *w)
{
    if (!w)
        return;
    if (w->downstream)
        listeners_free(w);
    generations_free(w);
    if (w->wake_fd >= 0) {
        event_del(&w->wake);
        close(w->wake_fd);
    }
    clients_free(w);
    exchanges_free(w);
    quota_client_free(w->quotas);
    deadlines_clear(&w->deadlines);
    upstream_worker_clear(&w->upstream);
    if (w->base)
        event_base_free(w->base);
    iobuf_pool_clear(&w->buffers);
    top_clients_clear(&w->top_clients);
    ip_shares_free(w->requests_by_ip);
    worker_tables_clear(w);
    endpoint_set_drop(atomic_exchange(&w->reload, NULL));
    MAGIC_WIPE(w);
    free(w);
}

const struct worker_stats *worker_stats(const struct worker *w)
{
    return &w->stats;
}

const struct upstream_stats *worker_upstream_stats(const struct worker *w)
{
    return &w->upstream.stats;
}

const struct top_clients *worker_top_clients(const struct worker *w)
{
    return &w->top_clients;
}

const struct limiter_stats *worker_limiter_stats(const struct worker *w)
{
    return &w->limiter_stats;
}

uint64_t worker_iterations(const struct worker *w)
{
    return atomic_load_explicit(&w->iterations, memory_order_relaxed);
}

bool worker_redis_ready(const struct worker *w)
{
    return atomic_load_explicit(&w->redis_ready, memory_order_relaxed);
}

bool worker_redis_unreachable(const struct worker *w)
{
    return atomic_load_explicit(&w->redis_unreachable, memory_order_relaxed);
}

enum redis_breaker worker_redis_breaker(const struct worker *w)
{
    return (enum redis_breaker)atomic_load_explicit(&w->redis_breaker, memory_order_relaxed);
}
