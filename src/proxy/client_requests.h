/* client_requests.h - bounds the requests that one client address has under way
 * (size_limits.requests_per_client). */
#ifndef WEIR_PROXY_CLIENT_REQUESTS_H
#define WEIR_PROXY_CLIENT_REQUESTS_H

#include "proxy/exchange_state.h"

/* Counts the exchange for its client's address. Not counted are unix sockets, addresses on the
 * allow list, and trusted proxies that forward no address. Returns false if the address has
 * size_limits.requests_per_client requests under way; then the exchange is not counted. */
MUST_CHECK bool client_requests_enter(struct exchange *x, const struct identity *identity);
/* Returns whether requests of the client's address are counted. Sets `*group` to that address. */
MUST_CHECK bool client_requests_group(const struct exchange *x, const struct identity *identity,
                                      struct ip *group);
/* Call when the exchange has ended, counted or not. */
void client_requests_leave(struct exchange *x);

#endif
