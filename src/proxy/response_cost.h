/* response_cost.h - what a response states about the cost of its request: in its header, and in its
 * content, which is read while it is forwarded. Adjusts the charge as soon as the cost is known. */
#ifndef WEIR_PROXY_RESPONSE_COST_H
#define WEIR_PROXY_RESPONSE_COST_H

#include "http/framing.h"
#include "proxy/exchange_state.h"

/* Returns true if weir reads along in the content, so that it must not be spliced. */
static inline bool response_cost_reads(const struct exchange *x)
{
    return x->cost.usage != NULL;
}

/* The response has stated nothing: before the decision, or if it is not forwarded. */
void response_cost_expect(struct exchange *x);
/* The request did not happen: refunds the charge. */
void response_cost_refund(struct exchange *x);

/* The final response header of a rule with `adjusts` was read, before relay_response_head(). */
void response_cost_begin(struct exchange *x, const struct response_head *head,
                         const struct framing *framing);
/* This header was forwarded: adjusts the charge unless the content is going to tell the cost. */
void response_cost_forwarded(struct exchange *x);
/* A piece of content that weir reads along is being forwarded, after the header. The last one ends
 * the charge. */
void response_cost_read(struct exchange *x, const struct content_piece *piece);
/* The exchange ends: adjusts or keeps what is still charged. */
void response_cost_end(struct exchange *x);

#endif
