/* added_usage.h - `cost.include_usage: add`: weir asks the server for the usage of a stream, and
 * removes the event with it from the response (content/stream_usage.h). */
#ifndef WEIR_PROXY_ADDED_USAGE_H
#define WEIR_PROXY_ADDED_USAGE_H

#include "content/stream_usage.h"
#include "http/framing.h"
#include "proxy/exchange_state.h"

/* Reads whole content. STREAM_USAGE_UNASKED: weir may ask at `*offset`. */
enum stream_usage added_usage_read(const struct fields *fields, struct slice content,
                                   size_t *offset);

/* In LIMIT, after the costs were read, for a rule with adds_usage: asks in the content that
 * CONTENT has read, and adjusts its length. Requests that weir does not read with certainty are
 * left as they are. Returns false if the response may be a stream that does not state its usage. */
MUST_CHECK bool added_usage_add(struct exchange *x);

/* The response's header was read: its event is removed if weir has asked for it. */
void added_usage_begin(struct exchange *x, const struct response_head *head,
                       const struct framing *framing);

/* Returns the piece that is sent in place of `piece`, and counts it instead; `*room` holds its
 * bytes, and is to be returned to the pool afterwards. False: no memory. */
MUST_CHECK bool added_usage_remove(struct exchange *x, const struct content_piece *piece,
                                   struct content_piece *sent, struct iobuf **room);

static inline bool added_usage_removes(const struct exchange *x)
{
    return x->cost.filter != NULL;
}

/* The exchange has ended. */
void added_usage_end(struct exchange *x);

#endif
