/* redis_memory.h - how much memory Redis uses, for the metrics: INFO, asked from a script now and then on the main thread's loop.
 *
 * It goes over the connection of the grant reader, so it follows sentinels and asks each master of a cluster. Where the user may
 * not run INFO nothing is known, and it is not asked again on that connection. The main thread's alone. */
#ifndef WEIR_CLIENTS_REDIS_MEMORY_H
#define WEIR_CLIENTS_REDIS_MEMORY_H

#include "net/address.h"
#include "redis/redis_client.h"

enum { REDIS_MEMORY_EVERY_US = 10000000, REDIS_MEMORY_PARTS_MAX = 256 };

struct redis_memory;

/* The part of the script that it needs. ARGV: memory -> { used, most }, in bytes; -1 where it is not known. */
extern const char redis_memory_script[];

/* Asks over `store`, which outlives it and has the script. NULL: no memory. */
struct redis_memory *redis_memory_new(struct event_base *base, struct redis_client *store);
void redis_memory_free(struct redis_memory *memory); /* after the store's calls were given back */

/* Asks, where the last answer is old enough. Call every few seconds. */
void redis_memory_look(struct redis_memory *memory);
/* The connection is a new one: asks at once, also where INFO was refused before. */
void redis_memory_reconnected(struct redis_memory *memory);

/* What one Redis, or one master of a cluster, has answered within the last minute. */
struct redis_memory_part {
    char node[ADDRESS_TEXT_MAX];
    uint64_t used, max; /* bytes; max 0: no maxmemory is set */
    uint64_t at_us;
};
/* The parts in force; they are valid until the loop goes on. */
unsigned redis_memory_parts(const struct redis_memory_part **parts);

#endif
