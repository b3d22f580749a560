/* decision_listener.h - requests on the decision listener: other proxies ask whether they may
 * forward a request. weir answers 200, or as it would reject the request, and forwards nothing. */
#ifndef WEIR_PROXY_DECISION_LISTENER_H
#define WEIR_PROXY_DECISION_LISTENER_H

#include "proxy/exchange_state.h"

/* Turns `head` into the request to decide on. Returns false if the peer may not ask, or if its
 * request does not name one; sets the cause and reason. */
MUST_CHECK bool decision_head(struct exchange *x, struct request_head *head, enum cause *cause,
                              const char **why);

#endif
