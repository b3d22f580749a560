/* generation.h - a worker's state for one policy: the limiter with its Redis connection, and the
 * upstream pools.
 *
 * A reload gives every worker a new generation. An exchange keeps the generation it began with. The
 * old generation is freed after its last exchange has ended and its last decision was answered or
 * given up. Its limiter is freed when only responses and tunnels without charge and permit are
 * left: event streams and WebSockets may last for days. */
#ifndef WEIR_PROXY_GENERATION_H
#define WEIR_PROXY_GENERATION_H

#include "proxy/worker_state.h"
#include "upstream/upstream.h"

struct generation {
    struct endpoint_set *endpoint_set; /* held */
    struct policy *policy;             /* of the endpoint set; held */
    struct limiter *limiter;           /* NULL: retired, and no exchange needs it */
    struct rejections *rejections;
    struct token_checker *tokens; /* NULL: no jwt source */
    struct upstream_pools pools;
    unsigned exchanges;           /* number in progress */
    unsigned without_limiter;     /* of these, those that do not need the limiter any more */
    TAILQ_ENTRY(generation) link; /* worker's retired */
};

/* Creates a generation. Holds `endpoint_set` and its policy. NULL: no memory. */
struct generation *generation_new(struct worker *worker, struct endpoint_set *endpoint_set);

/* Switches new exchanges to `next` at once and retires the current generation. */
void generation_install(struct worker *worker, struct generation *next);

/* As generation_install, but waits until `next` is connected to Redis, its names are resolved and
 * its keys by URL are fetched. This way a reload does not send decisions to on_failure. It waits at
 * most GENERATION_WAIT_US. Replaces a generation that was announced earlier and still waits. */
enum { GENERATION_WAIT_US = 1000000 };
void generation_announce(struct worker *worker, struct generation *next);
/* Returns whether all pending Redis operations have ended, such as the release of slots of
 * requests in flight. */
bool generations_quiet(const struct worker *worker);
void generations_init(struct worker *worker);

/* Called once per loop iteration, after all callbacks. Sends the limiters' batched commands,
 * installs an announced generation that is ready, and frees unused retired generations. */
void generations_flush(struct worker *worker);

/* Called at the end of a loop iteration: the next one begins at once if the limiters have anything
 * to send that came after generations_flush(). */
void generations_wake(struct worker *worker);

/* Frees all generations, at shutdown. */
void generations_free(struct worker *worker);

#endif
