/* generation.h - what a worker made of one policy: its limiter with a link to Redis, its upstream pools.
 *
 * A reload gives every worker a new generation. Exchanges end with the one they began with; when the last
 * has, and its last decision is answered or given up, the old generation goes. */
#ifndef WEIR_PROXY_GENERATION_H
#define WEIR_PROXY_GENERATION_H

#include "proxy/endpoint_set.h"
#include "proxy/worker_internal.h"

struct generation {
    struct worker *worker;
    struct endpoint_set *endpoint_set; /* held */
    unsigned endpoint_set_version;     /* that the pools are made after */
    struct policy *policy;             /* the endpoint set's; held */
    struct limiter *limiter;
    struct rejections *rejections;
    struct pool *pools;           /* by upstream index */
    unsigned exchanges;           /* under way */
    TAILQ_ENTRY(generation) link; /* worker's retired */
};

/* Holds `endpoint set` and its policy. NULL: no memory. */
struct generation *generation_new(struct worker *worker, struct endpoint_set *endpoint_set);

/* Makes `next` the one that new exchanges get, at once; the one before retires. */
void generation_install(struct worker *worker, struct generation *next);

/* As generation_install, but as soon as `next` is connected to Redis and its names are resolved, so that a reload does
 * not send decisions to on_failure; after GENERATION_WAIT_US in any case. One that was coming before is dropped. */
enum { GENERATION_WAIT_US = 1000000 };
void generation_announce(struct worker *worker, struct generation *next);
/* All that requests have to give back has been, as far as Redis can be told. */
bool generations_quiet(const struct worker *worker);
void generations_init(struct worker *worker);

/* Once per loop iteration, after all callbacks: sends what the limiters have gathered, frees retired generations
 * that nobody uses. */
void generations_flush(struct worker *worker);

/* At the end: all of them, whoever uses them. */
void generations_free(struct worker *worker);

#endif
