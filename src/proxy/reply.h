/* reply.h - weir's own responses: rejections and errors, by default as problem details (RFC
 * 9457). */
#ifndef WEIR_PROXY_REPLY_H
#define WEIR_PROXY_REPLY_H

#include "proxy/exchange.h"

/* Sends a response with x->status to the client, with the decision's rate-limit fields and
 * Retry-After. x->close determines the Connection field. `why`: detail of the cause, or NULL. */
enum sent reply_send(struct exchange *x, const char *why);

#endif
