/* ip_counts.h - number of connections per client address, over all workers
 * (size_limits.connections_per_ip). Updated on accept and close only. */
#ifndef WEIR_NET_IP_COUNTS_H
#define WEIR_NET_IP_COUNTS_H

#include "net/address.h"

struct ip_counts;

/* Creates a table for at least `entries_max` groups of addresses. The prefixes group
 * addresses, as for clients. Returns NULL if out of memory. */
struct ip_counts *ip_counts_new(unsigned entries_max, unsigned ipv4_prefix, unsigned ipv6_prefix);
void ip_counts_free(struct ip_counts *counts);

/* Counts a new connection of `peer`. Returns false if the group already has `max` connections (0:
 * unlimited) or the table is full. Unix sockets are not counted. Any thread. */
MUST_CHECK bool ip_counts_enter(struct ip_counts *counts, const struct address *peer, unsigned max);
void ip_counts_leave(struct ip_counts *counts, const struct address *peer);

#endif
