/* dialect.h - rejections as the APIs of language models write them, for the libraries of their
 * clients. */
#ifndef WEIR_LIMIT_DIALECT_H
#define WEIR_LIMIT_DIALECT_H

#include "limit/decision.h"

/* Appends the body of a rejection as application/json. `dialect` is not DIALECT_PROBLEM. */
void dialect_body_write(struct text *out, const struct decision *decision,
                        enum rejection_dialect dialect);
/* Appends the lines retry-after-ms and x-should-retry. */
void dialect_fields_write(struct text *out, const struct decision *decision);

#endif
