/* problem.h - the body of a rejection: a problem document (RFC 9457). */
#ifndef WEIR_LIMIT_PROBLEM_H
#define WEIR_LIMIT_PROBLEM_H

#include "limit/numbers.h"

/* Appends the document as application/problem+json, with the members of
 * draft-ietf-httpapi-ratelimit-headers. Records the numbers in `marks` (may be NULL). */
void decision_problem_write(struct text *out, const struct decision *decision, unsigned status,
                            struct marks *marks);

/* dialect.c: rejections as the APIs of language models write them, for the libraries of their
 * clients. */

/* Appends the body of a rejection as application/json. `dialect` is not DIALECT_PROBLEM. */
void dialect_body_write(struct text *out, const struct decision *decision,
                        enum rejection_dialect dialect);
/* Appends the lines retry-after-ms and x-should-retry. */
void dialect_fields_write(struct text *out, const struct decision *decision);

#endif
