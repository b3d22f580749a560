/* grant_body.h - what a PUT to /api/v1/clients/ID says: {"quota": 100, "for": "1h"}. */
#ifndef WEIR_ADMIN_GRANT_BODY_H
#define WEIR_ADMIN_GRANT_BODY_H

#include "base/macros.h"
#include "base/slice.h"

enum { GRANT_WHY_MAX = 160 };

/* Reads a JSON object (RFC 8259) with a quota (0 or more, -1, "unlimited", or null for none) and, unless it is none, a
 * time. A quota of none is GRANT_NONE. False: `why` says what was expected. */
MUST_CHECK bool grant_body_read(struct slice body, int64_t *quota, int64_t *us,
                                char why[static GRANT_WHY_MAX]);

#endif
