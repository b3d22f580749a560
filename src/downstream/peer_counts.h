/* peer_counts.h - counts the connections of each address, of all workers, and refuses those over
 * size_limits.connections_per_ip. */
#ifndef WEIR_DOWNSTREAM_PEER_COUNTS_H
#define WEIR_DOWNSTREAM_PEER_COUNTS_H

#include "net/address.h"

struct worker;

/* Counts a connection for its peer's address. Sets `*counted` to false for exempt peers (trusted
 * proxies, unix sockets). False: the address is over its limit; the refusal is counted. */
MUST_CHECK bool peer_count(struct worker *worker, const struct address *peer, bool *counted);
/* Removes a connection that was counted. */
void peer_uncount(struct worker *worker, const struct address *peer);

#endif
