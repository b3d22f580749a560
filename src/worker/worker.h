/* worker.h - one thread with its own event loop, listeners, clients, upstream pools and limiter.
 * On the request path a worker writes nothing that it shares with other workers.
 *
 * This directory owns the thread: its start, loop, reload and stop. It contains nothing of single
 * requests. What exchanges and clients use of their worker is in proxy/worker_state.h.
 *
 *   loop iteration:  event_base_loop(ONCE) -> generations_flush() -> servers_refresh()
 *                    -> worker_memory_check() -> clients_flush() -> upstream_worker_flush()
 *                    -> free closed objects -> log_thread_flush() */
#ifndef WEIR_WORKER_WORKER_H
#define WEIR_WORKER_WORKER_H

#include "proxy/worker_shared.h"
#include "proxy/worker_tables.h"
#include "upstream/upstream_stats.h"

struct worker;
struct endpoint_set;
struct top_clients;

/* Creates a worker for `endpoint_set`, which is held, and its policy. Takes over the listening
 * sockets `listen_fds[0 .. policy->listen_count)`; -1: other workers accept for this listener.
 * Returns NULL with errno on failure, with the sockets closed unless the first allocation
 * failed. */
struct worker *worker_new(struct worker_shared *shared, struct endpoint_set *endpoint_set,
                          unsigned number, const int *listen_fds);

/* Starts the worker's thread. Returns -1 with errno on failure. */
MUST_CHECK int worker_start(struct worker *worker);

/* From now on, each response announces the end of its connection. After worker_stop(), clients that
 * have sent no request get LAST_REQUESTS_US for it. Callable from any thread. */
void worker_drain(struct worker *worker);
/* Begins a graceful stop: no new connections, idle ones close, requests in progress finish
 * within timeouts.shutdown. Callable from any thread. */
void worker_stop(struct worker *worker);

/* Switches new requests to the endpoint set, which is held, and its policy. Listeners do not
 * change. Call worker_make_rows for the policy first. Main thread only. */
void worker_reload(struct worker *worker, struct endpoint_set *endpoint_set);
/* Returns whether new requests use this endpoint set's policy. The switch follows
 * worker_reload() with a delay. Callable from any thread. */
bool worker_uses(const struct worker *worker, const struct endpoint_set *endpoint_set);

/* Grows the counter tables to the names in worker_shared. False: no memory. Main thread only. */
MUST_CHECK bool worker_make_rows(struct worker *worker);

/* Waits until the thread has ended. */
void worker_join(struct worker *worker);

/* Frees the worker, after worker_join or if it was never started. */
void worker_free(struct worker *worker);

/* Returns the number of completed loop iterations. Callable from any thread. */
uint64_t worker_iterations(const struct worker *worker);

/* For the admin listener. Callable from any thread between worker_new and worker_free. */
const struct worker_stats *worker_stats(const struct worker *worker);
const struct upstream_stats *worker_upstream_stats(const struct worker *worker);
const struct top_clients *worker_top_clients(const struct worker *worker);
const struct limiter_stats *worker_limiter_stats(const struct worker *worker);
/* ready: all of Redis is reachable. away: none of it is. Both are false if part of a cluster is
 * unreachable. */
bool worker_redis_ready(const struct worker *worker);
bool worker_redis_unreachable(const struct worker *worker);
enum redis_breaker worker_redis_breaker(const struct worker *worker);

/* worker_memory.c, for worker.c: keeps a worker's buffers within size_limits.memory, and returns
 * the memory of what is not used any more. */
void worker_memory_init(struct worker *worker);
/* Called once per loop iteration. May reset requests and close connections. */
void worker_memory_check(struct worker *worker);

#endif
