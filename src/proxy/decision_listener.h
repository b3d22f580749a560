/* decision_listener.h - requests on the decision listener: other proxies ask whether they may
 * forward a request. weir answers 200, or as it would reject the request, and forwards nothing. */
#ifndef WEIR_PROXY_DECISION_LISTENER_H
#define WEIR_PROXY_DECISION_LISTENER_H

#include "proxy/exchange.h"

/* Returns the head of the request to decide on, valid during the call of exchange_begin(). Returns
 * NULL if the peer may not ask, or if the request does not name it; sets the cause and reason. */
struct request_head *decision_head(struct exchange *x, struct request_head *asked,
                                   enum cause *cause, const char **why);

#endif
