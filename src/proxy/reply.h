/* reply.h - weir's own responses: rejections and errors, by default as problem details (RFC
 * 9457). */
#ifndef WEIR_PROXY_REPLY_H
#define WEIR_PROXY_REPLY_H

#include "proxy/exchange_state.h"

/* Sends a response with x->record.status to the client, with the decision's rate-limit fields and
 * Retry-After. `why`: detail of the cause, or NULL. Returns as send_head() in downstream.h. */
enum downstream_sent reply_send(struct exchange *x, const char *why);

#endif
