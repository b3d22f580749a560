/* worker.h - one thread with everything it needs: event loop, listeners, clients, upstream pool, limiter. It
 * shares nothing that it writes with other workers on the path of a request.
 *
 *   loop iteration:  event_base_loop(ONCE) -> limiter_flush() -> free what was closed -> log_thread_flush()
 */
#ifndef WEIR_PROXY_WORKER_H
#define WEIR_PROXY_WORKER_H

#include "limit/limiter.h"
#include "proxy/stats.h"
#include "quota/quotas.h"

struct worker;
struct endpoint_set;

/* What all workers of a process have in common. Outlives them. */
struct worker_shared {
    struct fallback *fallback;
    struct quotas *quotas;
    unsigned workers;    /* how many there are */
    struct worker **all; /* set before any of them starts */
    unsigned
        connections_max; /* clients for which there are descriptors, where size_limits.connections is more; 0: any */
    struct ip_counts *ip_counts; /* connections by address; NULL when size_limits.connections_per_ip is 0 */
    /* Called from a worker's thread: it accepts connections; it judges by another endpoint set's policy; it has left its loop. */
    void (*serving)(void *context);
    void (*reloaded)(void *context);
    void (*ended)(void *context);
    void *context;
};

/* Makes a worker for `endpoint set` (which is held) and its policy, with its own listening sockets `listen_fds[0 ..
 * policy->listen_count)`, which it takes over, also on failure. NULL: errno says why. */
struct worker *worker_new(struct worker_shared *shared, struct endpoint_set *endpoint_set, unsigned number,
                          const int *listen_fds);

/* Runs the worker in a thread of its own. -1 with errno. */
MUST_CHECK int worker_start(struct worker *worker);

/* From any thread: take no new connections, close idle ones, finish what is under way within
 * timeouts.shutdown, then end. */
void worker_stop(struct worker *worker);

/* From the main thread: requests that begin from now on are judged by the endpoint set's policy and go to its members; it
 * is held. The policy's rows were made room for (worker_make_rows). Listeners stay as they are. */
void worker_reload(struct worker *worker, struct endpoint_set *endpoint_set);
/* From any thread: are requests that begin now judged by this endpoint set's policy? Not at once after worker_reload(). */
bool worker_judges_by(const struct worker *worker, const struct endpoint_set *endpoint_set);
/* From any thread: look at the endpoint set again. */
void worker_wake(struct worker *worker);

/* From the main thread: room for so many rows of rules and of limits. False: no memory. */
MUST_CHECK bool worker_make_rows(struct worker *worker, unsigned rules, unsigned limits);

/* Waits for the thread's end. */
void worker_join(struct worker *worker);

/* After worker_join, or when it was never started. */
void worker_free(struct worker *worker);

/* For the admin listener, from any thread, at any time between worker_new and worker_free. */
const struct worker_stats *worker_stats(const struct worker *worker);
const struct limiter_stats *worker_limiter_stats(const struct worker *worker);
/* All of Redis can be asked; nothing of it can: of a cluster a part may be away. */
bool worker_redis_ready(const struct worker *worker);
bool worker_redis_away(const struct worker *worker);
enum redis_breaker worker_redis_breaker(const struct worker *worker);
/* Some server of every upstream is believed to be up. */
bool worker_upstreams_ready(const struct worker *worker);
#endif
