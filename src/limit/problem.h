/* problem.h - the body of a rejection: a problem document (RFC 9457). */
#ifndef WEIR_LIMIT_PROBLEM_H
#define WEIR_LIMIT_PROBLEM_H

#include "limit/numbers.h"

/* Appends the document as application/problem+json, with the members of
 * draft-ietf-httpapi-ratelimit-headers. Records the numbers in `marks` (may be NULL). */
void decision_problem_write(struct text *out, const struct decision *decision, unsigned status,
                            struct marks *marks);

#endif
