/* rejection.h - the last rejection of each rule, kept as it was sent: the next one differs in few bytes, which are written over it.
 *
 * Writing a 429 anew costs 1,900 instructions, a quarter of what a flood of rejections costs weir. */
#ifndef WEIR_PROXY_REJECTION_H
#define WEIR_PROXY_REJECTION_H

#include "proxy/exchange.h"

struct rejections;

/* What stands in a rejection besides the numbers of its decision. */
enum { MARK_DATE = NUMBER_COUNT, MARK_REQUEST_ID };

/* The rejections of a policy's rules; they belong to one generation and point to its policy. NULL: no memory. */
struct rejections *rejections_new(unsigned rules);
void rejections_free(struct rejections *all);

/* The answer to `x`, a rejection with its default document, made from the last one of its rule. Empty: there is none that reads alike.
 * `*content`: the document's size. Valid until the next call of either function. */
struct slice rejection_patch(struct exchange *x, size_t *content);

/* Keeps an answer that was written with marks, in two pieces. */
void rejection_keep(struct exchange *x, struct slice head, struct slice document, const struct marks *of_head,
                    const struct marks *of_document);

#endif
