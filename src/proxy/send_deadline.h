/* send_deadline.h - the deadline of a client that does not take its response at once
 * (downstream->pending); send_rate.h has its rule. weir's own responses have 10 s in all. */
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
