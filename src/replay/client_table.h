/* client_table.h - clients, with a count of each: of their requests, or of rejections. Bounded:
 * clients beyond CLIENT_TABLE_MAX are counted together. */
#ifndef WEIR_REPLAY_CLIENT_TABLE_H
#define WEIR_REPLAY_CLIENT_TABLE_H

#include "base/hash.h"

enum {
    CLIENT_TABLE_MAX = 1 << 20, /* clients; about 100 bytes each */
    CLIENT_NAME_MAX = 80        /* bytes of a name that are kept */
};

struct client_count {
    uint64_t hash; /* of the whole name */
    uint64_t count;
    char *name; /* NUL-terminated, cut to CLIENT_NAME_MAX bytes */
};

struct client_table {
    struct hash_key key;
    struct client_count *slots; /* open addressing; count 0: free */
    size_t capacity, used;
    uint64_t beyond; /* counts of clients that had no room */
};

void client_table_init(struct client_table *table);
void client_table_free(struct client_table *table);
/* Adds 1 to the client's count. */
void client_table_add(struct client_table *table, struct slice name);
/* Returns the client's count; 0: it is not in the table. */
uint64_t client_table_count(const struct client_table *table, struct slice name);
/* Writes the clients with the highest counts, highest first; returns how many there are. */
unsigned client_table_top(const struct client_table *table, const struct client_count **top,
                          unsigned max);

#endif
