/* drain.h - `cost.on_disconnect: drain`: the response to a client that has left is read to its end,
 * to learn what it costs. The exchange goes on with a downstream that takes everything. */
#ifndef WEIR_PROXY_DRAIN_H
#define WEIR_PROXY_DRAIN_H

#include "proxy/exchange_state.h"

enum { DRAINS_MAX = 64 }; /* at the same time, in the process */

extern const struct downstream_ops drain_ops;

static inline bool exchange_drains(const struct exchange *x)
{
    return x->downstream->ops == &drain_ops;
}

/* The client of an exchange has left. Returns true if the response is read on: for
 * response_timeout. The old downstream has ended then. */
MUST_CHECK bool drain_begin(struct exchange *x);

/* The charge is final: status and bytes are what the client has received, for logs and metrics. */
void drain_forget_response(struct exchange *x);

/* Ends all drains of the worker. */
void drains_cut(struct worker *w);

#endif
