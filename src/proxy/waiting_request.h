/* waiting_request.h - the copy of a request that waits before its decision: KEYS, QUOTA and
 * CONTENT. */
#ifndef WEIR_PROXY_WAITING_REQUEST_H
#define WEIR_PROXY_WAITING_REQUEST_H

#include "proxy/exchange_state.h"

/* Copies the incoming request of the worker, and the exchange's path. Replaces the copy that the
 * exchange has, which may be what the incoming request points to. Counts the copy in
 * size_limits.memory. Returns false if there is no memory; then nothing has changed. */
MUST_CHECK bool waiting_request_keep(struct exchange *x);

/* Makes the copy the worker's incoming request. It is used until waiting_request_free(). */
void waiting_request_restore(struct exchange *x);

/* Returns the memory of the exchange's copy (none: 0), in bytes. */
size_t waiting_request_memory(const struct exchange *x);

/* Frees the copy, which is there: exchange.waiting. */
void waiting_request_free(struct exchange *x);

#endif
