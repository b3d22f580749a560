/* replay_clients.h - clients, with a count of each: of their requests, or of rejections. Bounded:
 * clients beyond REPLAY_CLIENTS_MAX are counted together. */
#ifndef WEIR_REPLAY_REPLAY_CLIENTS_H
#define WEIR_REPLAY_REPLAY_CLIENTS_H

#include "base/hash.h"

enum {
    REPLAY_CLIENTS_MAX = 1 << 20, /* clients; about 100 bytes each */
    CLIENT_NAME_MAX = 80          /* bytes of a name that are kept */
};

struct client_count {
    uint64_t hash; /* of the whole name */
    uint64_t count;
    char *name; /* NUL-terminated, cut to CLIENT_NAME_MAX bytes */
};

struct replay_clients {
    struct hash_key key;
    struct client_count *slots; /* open addressing; count 0: free */
    size_t capacity, used;
    uint64_t beyond; /* counts of clients that had no room */
};

/* `key`: the same for tables whose hashes are compared. */
void replay_clients_init(struct replay_clients *table, struct hash_key key);
void replay_clients_free(struct replay_clients *table);
/* Adds 1 to the client's count. */
void replay_clients_add(struct replay_clients *table, struct slice name);
/* Returns the count of the client with this hash of its name; 0: it is not in the table. */
uint64_t replay_clients_count(const struct replay_clients *table, uint64_t hash);
/* Writes the clients with the highest counts, highest first; returns how many there are. */
unsigned replay_clients_top(const struct replay_clients *table, const struct client_count **top,
                            unsigned max);

#endif
