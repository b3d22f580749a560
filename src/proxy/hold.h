/* hold.h - requests that wait in a queue: phase HOLD in exchange.c.
 *
 * The limiter script returns a delay in µs from its decision. weir counts it from the arrival of
 * the decision, which is later, so no request leaves early. Each connection holds at most one
 * request. */
#ifndef WEIR_PROXY_HOLD_H
#define WEIR_PROXY_HOLD_H

#include "proxy/exchange.h"

void holds_init(struct worker *worker);
void holds_clear(struct worker *worker);

/* Enters HOLD; exchange_release() runs after `delay_us` microseconds. False: no memory. */
MUST_CHECK bool hold_begin(struct exchange *x, uint64_t delay_us);

/* Called by exchange_enter() when HOLD ends. Before the delay has passed, sets x->left_queue. */
void hold_end(struct exchange *x);

#endif
