/* handoff.h - which worker serves an accepted connection, and the way from the worker that accepted it to that one.
 *
 * The kernel chooses a worker's listening socket by a hash (SO_REUSEPORT): with 64 workers and 640 connections the busiest one has 1.8
 * times the mean. So a worker that has more connections than another one, picked at random, gives that one what it accepts. Where
 * its share of size_limits.connections is taken, it looks for a place at all others. All of it is per connection, never per request. */
#ifndef WEIR_PROXY_HANDOFF_H
#define WEIR_PROXY_HANDOFF_H

#include <pthread.h>

#include "net/address.h"

struct worker;

enum { HANDOFFS_MAX = 64 };

/* A worker's places, and connections on their way to it. */
struct handoff {
    _Atomic unsigned places; /* taken: connections that are open, on their way, or about to be accepted */
    _Atomic bool takes;      /* it serves and does not stop */
    pthread_mutex_t lock;    /* of what follows */
    bool closed;
    unsigned count;
    struct handed {
        int fd;
        unsigned listener;
        struct address peer;
    } handed[HANDOFFS_MAX];
};

void handoff_init(struct handoff *handoff);
/* Closes what nobody took. */
void handoff_clear(struct handoff *handoff);

/* From the worker's own thread: others may give it connections; no longer. */
void handoff_open(struct worker *worker);
void handoff_close(struct worker *worker);

/* Takes a place for the next connection that `worker` accepts, there or at another worker, which is returned. NULL: all places of all workers
 * are taken. */
struct worker *place_take(struct worker *worker);
/* Takes one at `worker` itself, where one is free. */
bool place_take_here(struct worker *worker);
/* Takes one for a connection in whose favour another one of this worker closes right now. */
void place_take_over(struct worker *worker);
void place_free(struct worker *worker);

/* Gives an accepted connection to a worker at which a place was taken for it. False: it takes no more; the place and `fd` stay
 * the caller's. */
MUST_CHECK bool handoff_give(struct worker *to, const struct handed *connection);
/* From the worker's own thread: the next one that was given to it. False: none. */
bool handoff_receive(struct worker *worker, struct handed *connection);

#endif
