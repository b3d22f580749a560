/* slot.h - maps keys to the 16384 slots of Redis Cluster, and parses redirections. */
#ifndef WEIR_REDIS_SLOT_H
#define WEIR_REDIS_SLOT_H

#include "base/slice.h"
#include "net/address.h"

enum { REDIS_SLOTS = 16384 };

/* Returns CRC16 modulo 16384 of the hash tag (the text in the first pair of braces, if not
 * empty), else of the whole key. */
unsigned redis_slot_of(struct slice key);

/* Parses "MOVED 3999 127.0.0.1:6381" or "ASK ...". If the host is missing or "?", it is the host
 * of `answered`. Returns false if `error` is not a redirection or has no IP address. */
MUST_CHECK bool redis_redirect_read(const char *error, const struct address *answered, bool *asking,
                                    unsigned *slot, struct address *address);

/* Parses a node's host and port, as above. Returns false if the host is not an IP address (for
 * example, a host name). */
MUST_CHECK bool redis_node_read(struct slice host, struct slice port,
                                const struct address *answered, struct address *address);

#endif
