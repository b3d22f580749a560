/* hold.h - requests that a queue holds until it is their turn: HOLD in the picture of exchange.c.
 *
 * The script has said when a request goes, in µs from its decision; that moment is counted from when its answer was here, which is
 * later, so that nobody goes too early. Held requests are bounded by the connections. */
#ifndef WEIR_PROXY_HOLD_H
#define WEIR_PROXY_HOLD_H

#include "proxy/exchange.h"

void holds_init(struct worker *worker);
void holds_clear(struct worker *worker);

/* exchange_release() will run after so long. False: no memory. */
MUST_CHECK bool hold_begin(struct exchange *x, uint64_t delay_us);

/* It is no longer held; called before its time it has left the queue. May be called when it is not held. */
void hold_end(struct exchange *x);

#endif
