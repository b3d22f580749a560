/* ip_counts.h - counts per client address, over all workers: of connections, updated on accept and
 * close only (size_limits.connections_per_ip), and of requests (ip_shares.h). */
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

enum ip_counted { IP_COUNTED, IP_OVER_MAX, IP_TABLE_FULL };

/* The same for a group of addresses: an address without its port, masked by the caller. */
MUST_CHECK enum ip_counted ip_counts_add(struct ip_counts *counts, const struct ip *ip,
                                         unsigned max);
void ip_counts_remove(struct ip_counts *counts, const struct ip *ip);

#endif
