/* peer_counts.h - counts the connections of each address, of all workers, and refuses those over
 * size_limits.connections_per_ip. */
#ifndef WEIR_DOWNSTREAM_PEER_COUNTS_H
#define WEIR_DOWNSTREAM_PEER_COUNTS_H

#include "net/address.h"

struct worker;

/* Counts a connection for its peer's address. Sets `*counted` to false for exempt peers (trusted
 * proxies, unix sockets). False: the address is over its limit; the refusal is counted. */
MUST_CHECK bool peer_count(struct worker *worker, const struct address *peer, bool *counted);
/* Returns true if the peer may ask the listener, which is one of decisions or of the rate limit
 * service: then it is a proxy, with the requests of many clients. */
bool peer_may_ask(const struct worker *worker, unsigned listener, const struct peer *peer);
/* Counts a TLS handshake for the address of its peer. Returns false if the address begins more than
 * size_limits.handshakes_per_ip. Exempt are trusted proxies, unix sockets, and those who may ask a
 * listener of decisions or of the rate limit service. */
MUST_CHECK bool peer_may_handshake(struct worker *worker, unsigned listener,
                                   const struct peer *peer);
/* Removes a connection that was counted. */
void peer_uncount(struct worker *worker, const struct address *peer);

#endif
