/* reply.h - weir's own responses: rejections and errors, by default as problem details (RFC
 * 9457). */
#ifndef WEIR_PROXY_REPLY_H
#define WEIR_PROXY_REPLY_H

#include "proxy/exchange_state.h"
#include "service/call_memory.h"

/* Sends a response with x->record.status to the client, with the decision's rate-limit fields and
 * Retry-After. `why`: detail of the cause, or NULL. Returns as send_head() in downstream.h. */
enum downstream_sent reply_send(struct exchange *x, const char *why);

/* Sends a response with x->record.status and this content. */
enum downstream_sent reply_send_document(struct exchange *x, struct slice type,
                                         struct slice content);

/* Returns the body that the section `rejection` configures for the decision, in `memory`; empty:
 * none is configured, or no memory. */
struct slice reply_configured_body(const struct exchange *x, struct call_memory *memory);

#endif
