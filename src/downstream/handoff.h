/* handoff.h - chooses the worker for an accepted connection and passes the connection to it.
 *
 * The kernel chooses a worker's listening socket by a hash (SO_REUSEPORT). With 64 workers and 640
 * connections, the busiest worker has 1.8 times the mean. Each worker therefore compares itself
 * with one worker picked at random, and passes a new connection on if that one has clearly fewer.
 * If its own share of size_limits.connections is taken, it looks for a free slot at all other
 * workers. All of this happens per connection, never per request. */
#ifndef WEIR_DOWNSTREAM_HANDOFF_H
#define WEIR_DOWNSTREAM_HANDOFF_H

#include "downstream/downstream_worker.h"

void handoff_init(struct handoff *handoff);
/* Closes the connections that were not received. */
void handoff_clear(struct handoff *handoff);

/* Start and stop receiving connections of other workers. Called in the worker's own thread. */
void handoff_open(struct worker *worker);
void handoff_close(struct worker *worker);

/* Takes a slot for the next connection that `worker` accepts. Returns the worker that has the
 * slot: `worker` or another one. NULL: all slots of all workers are taken. */
struct worker *slot_take(struct worker *worker);
/* Takes a slot at `worker` itself. False: none is free. */
bool slot_take_here(struct worker *worker);
/* Takes a slot for a connection that replaces one of this worker, which closes right after. */
void slot_take_extra(struct worker *worker);
void slot_free(struct worker *worker);

/* Passes an accepted connection to worker `to`, where the caller has taken a slot. False: `to`
 * accepts no more connections, and the caller keeps the slot and `fd`. */
MUST_CHECK bool handoff_give(struct worker *to, const struct handed *connection);
/* Receives the next connection passed to this worker. Called in its own thread. False: none. */
bool handoff_receive(struct worker *worker, struct handed *connection);

#endif
