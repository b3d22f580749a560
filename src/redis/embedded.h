/* embedded.h - a private redis-server, started and stopped with weir (`redis.address:
 * embedded`).
 *
 * Runs redis-server (or valkey-server) without persistence, on a Unix socket in a directory of
 * mode 0700. The server is killed when weir dies for any reason (parent-death signal). Used by
 * the main thread only. */
#ifndef WEIR_REDIS_EMBEDDED_H
#define WEIR_REDIS_EMBEDDED_H

#include <event2/event.h>

#include "net/address.h"

struct embedded;

/* Starts the server and waits until it answers (at most 5 s, before the workers start). Returns
 * NULL after logging the error; if no binary is found, the error names the Debian package. */
struct embedded *embedded_start(void);

/* Starts a server for testing scripts that may be broken. Its memory is bounded, and
 * embedded_stop() kills it at once. Returns NULL if there is no binary (not logged) or if it did
 * not start (logged). */
struct embedded *embedded_start_trial(void);

/* Starts a server for one command, which has one thread. Whatever ends the process, the server and
 * its directory vanish. Returns NULL after logging the error; `needed_by` is its subject if there
 * is no binary: "weir test runs limits in a private Redis". */
struct embedded *embedded_start_private(const char *needed_by);

/* Copies the text that follows `mark` in the last line of the server's log that contains it.
 * Returns false if no line does. */
bool embedded_last_line(const struct embedded *embedded, const char *mark, char *line, size_t room);

/* Returns the CPU time in microseconds that the server has used since it started; 0 if it does
 * not run. */
uint64_t embedded_cpu_us(const struct embedded *embedded);

/* Returns the address of the server's socket. It does not change, even if the server is
 * restarted. */
const struct address *embedded_address(const struct embedded *embedded);

/* Watches the server from the main loop. If it exits, weir logs this and restarts it with
 * back-off. */
void embedded_watch(struct embedded *embedded, struct event_base *base);

/* Stops the server, waits for its exit and removes its directory. NULL is allowed. */
void embedded_stop(struct embedded *embedded);

#endif
