/* ip_counts.h - how many connections an address has, over all workers (size_limits.connections_per_ip).
 * Touched on accept and close only. */
#ifndef WEIR_NET_IP_COUNTS_H
#define WEIR_NET_IP_COUNTS_H

#include "net/address.h"

struct ip_counts;

/* Addresses are grouped by `ipv6_prefix` as clients are. Room for `entries_max` groups at a time and some more; NULL when
 * there is no memory. */
struct ip_counts *ip_counts_new(unsigned entries_max, unsigned ipv6_prefix);
void ip_counts_free(struct ip_counts *counts);

/* Counts one more connection of `peer` unless it has `max` already (0: any number), or the table is full. Unix sockets are
 * not counted. Any thread. */
MUST_CHECK bool ip_counts_enter(struct ip_counts *counts, const struct address *peer, unsigned max);
void ip_counts_leave(struct ip_counts *counts, const struct address *peer);

#endif
