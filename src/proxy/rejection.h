/* rejection.h - caches the last rejection of each rule. The next rejection differs in few bytes, so
 * weir overwrites only those.
 *
 * Writing a new 429 costs 1,900 instructions, a quarter of the total cost of a rejection. */
#ifndef WEIR_PROXY_REJECTION_H
#define WEIR_PROXY_REJECTION_H

#include "decision/numbers.h"
#include "proxy/exchange.h"

struct rejections;

/* Marked values in a rejection other than the numbers of its decision. */
enum { MARK_DATE = NUMBER_COUNT, MARK_REQUEST_ID };

/* Creates the cache for a policy's rules. It belongs to one generation and points to its
 * policy. NULL: no memory. */
struct rejections *rejections_new(unsigned rules);
void rejections_free(struct rejections *all);

/* Makes the response to `x`, a rejection with the default document, from the last rejection of
 * its rule. Returns NULL if none is cached with the same text. The image is valid until the next
 * call of these functions. */
const struct response_image *rejection_patch(struct exchange *x);

/* Returns where to store the response to `x` (struct response.image), or NULL if it is not to be
 * cached. rejection_keep() must follow, with the positions of the variable values in the response's
 * lines and in its document. */
struct response_image *rejection_image(struct exchange *x);
void rejection_keep(struct exchange *x, const struct marks *of_lines,
                    const struct marks *of_document);

#endif
