/* exchange_watch.h - the deadlines of the client and of the server in RELAY and REPLY. */
#ifndef WEIR_PROXY_EXCHANGE_WATCH_H
#define WEIR_PROXY_EXCHANGE_WATCH_H

#include "proxy/exchange_state.h"

/* Sets the client's and the server's deadline; only this function sets them in RELAY and REPLY.
 * Called after each event after which the exchange waits. */
void exchange_watch(struct exchange *x, bool client_moved, bool link_moved);

#endif
