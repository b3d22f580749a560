/* slot.h - to which of the 16384 slots of Redis Cluster a key belongs, and what a cluster says of slots. */
#ifndef WEIR_REDIS_SLOT_H
#define WEIR_REDIS_SLOT_H

#include "base/slice.h"
#include "net/address.h"

enum { REDIS_SLOTS = 16384 };

/* CRC16 of what stands in the first pair of braces, where that is not empty, else of the whole key. */
unsigned redis_slot_of(struct slice key);

/* "MOVED 3999 127.0.0.1:6381", "ASK ...". The host may be missing or "?": then it is that of the node that answered.
 * False: not one of them, or no address. */
MUST_CHECK bool redis_redirect_read(const char *error, const struct address *answered, bool *asking,
                                    unsigned *slot, struct address *address);

/* A node's host and port, as above. False: no address, perhaps a name. */
MUST_CHECK bool redis_node_read(struct slice host, struct slice port, const struct address *answered,
                                struct address *address);

#endif
