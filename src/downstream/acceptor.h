/* acceptor.h - a worker's listeners: accepts connections, within the limits of size_limits, and
 * opens or passes them on (handoff.h). All functions run in the worker's own thread, or before it
 * starts and after it has ended. */
#ifndef WEIR_DOWNSTREAM_ACCEPTOR_H
#define WEIR_DOWNSTREAM_ACCEPTOR_H

#include <stdbool.h>

#include "base/macros.h"

struct worker;

/* Creates the listeners for `fds[0 .. policy->listen_count)`; -1: other workers accept for this
 * one. Takes over the sockets. False: no memory, and the sockets stay the caller's. */
MUST_CHECK bool listeners_init(struct worker *worker, const int *fds);
/* Starts accepting, and receiving connections of other workers. */
void listeners_start(struct worker *worker);
/* Opens the connections that other workers passed to this one. */
void listeners_receive(struct worker *worker);
/* Ends the pause in accepting if slots are free again. */
void listeners_resume(struct worker *worker);
/* Ends accepting. Connections that wait in the kernel are opened before, except those of inherited
 * sockets, which the next process accepts. */
void listeners_close(struct worker *worker);
void listeners_free(struct worker *worker);

#endif
