/* redis_memory.h - Redis' memory use, for the metrics. A script runs INFO periodically on the
 * main thread's loop.
 *
 * It uses the grant reader's connection, so it follows sentinels and queries each master of a
 * cluster. If the user may not run INFO, there is no value, and INFO is not tried again on that
 * connection. Main thread only. */
#ifndef WEIR_ADMIN_REDIS_MEMORY_H
#define WEIR_ADMIN_REDIS_MEMORY_H

#include "net/address.h"
#include "redis/redis_client.h"

enum { REDIS_MEMORY_EVERY_US = 10000000, REDIS_MEMORY_PARTS_MAX = 256 };

struct redis_memory;

/* The script's part for this call. ARGV: memory -> { used, max }, in bytes; -1: not available. */
extern const char redis_memory_script[];

/* Queries over `store`, which must outlive it and contain the script. Returns NULL if out of
 * memory. */
struct redis_memory *redis_memory_new(struct event_base *base, struct redis_client *store);
void redis_memory_free(struct redis_memory *memory); /* after the store's calls have ended */

/* Queries if the last reply is old enough. Call every few seconds. */
void redis_memory_look(struct redis_memory *memory);
/* A new connection: queries at once, even if INFO was refused before. */
void redis_memory_reconnected(struct redis_memory *memory);

/* Reply of one Redis, or one master of a cluster, from the last minute. */
struct redis_memory_part {
    char node[ADDRESS_TEXT_MAX];
    uint64_t used, max; /* bytes; max 0: no maxmemory */
    uint64_t at_us;
};
/* Returns the current values, valid until control returns to the event loop. */
unsigned redis_memory_parts(const struct redis_memory_part **parts);

#endif
