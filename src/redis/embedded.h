/* embedded.h - a private redis-server, started and stopped with weir (`redis.address: embedded`).
 *
 * A real redis-server (or valkey-server) on a Unix socket in a directory of mode 0700, without persistence.
 * It dies with weir, however weir dies (parent-death signal). Used by the main thread only. */
#ifndef WEIR_REDIS_EMBEDDED_H
#define WEIR_REDIS_EMBEDDED_H

#include <event2/event.h>

#include "net/address.h"

struct embedded;

/* Starts the server and waits (at most 5 s, before the workers start) until it answers. NULL: an error was
 * logged that names the Debian package when there is no binary. */
struct embedded *embedded_start(void);

/* The same for trying scripts that may be broken: with bounded memory, and killed at once by embedded_stop,
 * whatever it is doing. NULL: there is no binary, about which nothing is said, or it did not start. */
struct embedded *embedded_start_trial(void);

/* What stands behind `mark` in the last line of the server's log that has it. False: none does. */
bool embedded_last_line(const struct embedded *embedded, const char *mark, char *line, size_t room);

/* The CPU time that the server has used since it was started, in microseconds. 0: it does not run. */
uint64_t embedded_cpu_us(const struct embedded *embedded);

/* Where it listens; constant for its whole life, also when the server had to be started again. */
const struct address *embedded_address(const struct embedded *embedded);

/* Watches the server from the main loop: when it ends by itself, says so and starts it again with back-off.
 */
void embedded_watch(struct embedded *embedded, struct event_base *base);

/* Ends the server, waits for it, removes its directory. NULL is allowed. */
void embedded_stop(struct embedded *embedded);

#endif
