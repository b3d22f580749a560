/* rejection.h - caches the last rejection of each rule. The next rejection differs in few bytes, so
 * weir overwrites only those.
 *
 * Writing a new 429 costs 1,900 instructions, a quarter of the total cost of a rejection. */
#ifndef WEIR_PROXY_REJECTION_H
#define WEIR_PROXY_REJECTION_H

#include "proxy/exchange.h"

struct rejections;

/* Marked values in a rejection other than the numbers of its decision. */
enum { MARK_DATE = NUMBER_COUNT, MARK_REQUEST_ID };

/* Creates the cache for a policy's rules. It belongs to one generation and points to its
 * policy. NULL: no memory. */
struct rejections *rejections_new(unsigned rules);
void rejections_free(struct rejections *all);

/* Makes the response to `x`, a rejection with the default document, from the last rejection of
 * its rule. Empty: none is cached with the same form. Sets `*content` to the document's size in
 * bytes. The slice is valid until the next call of either function. */
struct slice rejection_patch(struct exchange *x, size_t *content);

/* Caches a response (header and document) with the positions of its variable values. Without
 * memory, or if the response does not fit, nothing is cached. */
void rejection_keep(struct exchange *x, struct slice head, struct slice document, const struct marks *of_head,
                    const struct marks *of_document);

#endif
