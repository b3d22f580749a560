/* send_deadline.h - the deadline of a client that does not take its response at once.
 *
 * While weir holds unsent bytes (downstream->pending), the client has timeouts.send to take them.
 * A write renews that time only if the client took timeouts.send_min_rate since the last renewal.
 * Otherwise one octet per minute would keep a connection open without end.
 *
 * The kernel may report room for further writes late, because its send buffer is large. So after
 * half of the time, weir marks the number of bytes that the client has acknowledged. It checks the
 * growth after each further half, until the client has taken all bytes that weir holds. Surplus
 * bytes count for at most another timeouts.send, because the client's kernel acknowledges a slow
 * reader's bytes in bursts.
 *
 * weir's own responses have 10 s in all. */
#ifndef WEIR_PROXY_SEND_DEADLINE_H
#define WEIR_PROXY_SEND_DEADLINE_H

#include "proxy/exchange_state.h"

/* Called by exchange_watch() while the client does not take the response. `moved`: it took some of
 * it just now. */
void send_deadline_run(struct exchange *x, bool moved);
/* The deadline has passed. Returns false if the client is late; otherwise the deadline is armed
 * again. */
bool send_deadline_renew(struct exchange *x);

#endif
