/* rejection.h - caches the last rejection of each rule. The next rejection differs in few bytes, so
 * weir overwrites only those.
 *
 * Writing a new 429 costs 2,700 instructions more, 40 % of the total cost of a rejection. */
#ifndef WEIR_PROXY_REJECTION_H
#define WEIR_PROXY_REJECTION_H

#include "http/response.h"
#include "limit/numbers.h"

struct rejections;

/* Marked values in a rejection other than the numbers of its decision. */
enum { MARK_DATE = NUMBER_COUNT, MARK_REQUEST_ID };

/* Creates the cache for a policy's rules. It belongs to one generation and points to its
 * policy. NULL: no memory. */
struct rejections *rejections_new(unsigned rules);
void rejections_free(struct rejections *all);

/* What a rejection consists of, besides its rule. */
struct rejection_facts {
    unsigned rule; /* index in the policy */
    uint16_t status;
    const struct decision *decision;
    struct slice date, request_id;
};

/* Makes a rejection with the default document from the last one of its rule. Returns NULL if none
 * is cached with the same text. The image is valid until the next call of these functions. */
const struct response_image *rejection_patch(struct rejections *all,
                                             const struct rejection_facts *facts);

/* Returns where to store a rejection (struct response.image), or NULL if it is not to be cached.
 * rejection_keep() must follow, with the positions of the variable values in the response's lines
 * and in its document. */
struct response_image *rejection_image(struct rejections *all, const struct rejection_facts *facts);
void rejection_keep(struct rejections *all, unsigned rule, const struct marks *of_lines,
                    const struct marks *of_document);

#endif
