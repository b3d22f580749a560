/* reply.h - weir's own answers: rejections and errors, as problem documents (RFC 9457). */
#ifndef WEIR_PROXY_REPLY_H
#define WEIR_PROXY_REPLY_H

#include "proxy/exchange.h"

/* Sends the answer with x->status to the client: the rate-limit fields of its decision, Retry-After,
 * Connection as x->close says. `why`: more than the cause says, or NULL. */
enum sent reply_send(struct exchange *x, const char *why);

#endif
