/* ip_shares.h - number of requests under way per client address, over all workers, with an exact
 * maximum (size_limits.requests_per_client).
 *
 * Each worker counts in a table of its own. A worker may admit its share of the maximum for an
 * address, an eighth of it divided by the number of workers, without a look at the other workers.
 * Requests beyond the share are counted in one table of the process. So the usual request writes
 * no memory that another worker writes. The sum over all workers never exceeds the maximum. An
 * address whose requests reach one worker alone may have at least seven eighths of it. */
#ifndef WEIR_NET_IP_SHARES_H
#define WEIR_NET_IP_SHARES_H

#include "net/ip_counts.h"

struct ip_shares;

/* Creates one worker's table. `common`: the table of the process, which must outlive this one;
 * unused with one worker. Returns NULL if out of memory. */
struct ip_shares *ip_shares_new(struct ip_counts *common, unsigned workers);
void ip_shares_free(struct ip_shares *shares);

/* Counts a request of an address or group. Returns false if it has `max` (at least 1) under way.
 * Sets `*entry` for ip_shares_leave(); 0: the table of 4,096 addresses is full, and the request is
 * not counted. */
MUST_CHECK bool ip_shares_enter(struct ip_shares *shares, const struct ip *ip, unsigned max,
                                uint32_t *entry);
/* Call when the request has ended. `entry` is not 0. */
void ip_shares_leave(struct ip_shares *shares, uint32_t entry);

#endif
