/* ip_rates.h - events per second of each client address, over all workers, with a maximum
 * (size_limits.handshakes_per_ip).
 *
 * A count-min sketch (Cormode and Muthukrishnan, 2005) of GCRA times: two rows of slots, of which
 * an address has one each by a keyed hash. An event is admitted if either slot admits it. So memory
 * is constant, and an address is refused wrongly only if others use up both of its slots: with a
 * thousand addresses over their maximum, one in a thousand. No lock. */
#ifndef WEIR_NET_IP_RATES_H
#define WEIR_NET_IP_RATES_H

#include "net/address.h"

struct ip_rates;

/* Returns NULL if out of memory. */
struct ip_rates *ip_rates_new(void);
void ip_rates_free(struct ip_rates *rates);

/* Counts an event of an address or group at `now_us`, a clock that never goes back. Returns false,
 * and counts nothing, if it has more than `per_second` (at least 1) a second. After a pause, it may
 * have twice as many. Any thread. */
MUST_CHECK bool ip_rates_admit(struct ip_rates *rates, const struct ip *ip, unsigned per_second,
                               uint64_t now_us);

#endif
