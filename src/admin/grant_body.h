/* grant_body.h - parses the body of a PUT to /api/v1/clients/ID: {"quota": 100, "for": "1h"}. */
#ifndef WEIR_ADMIN_GRANT_BODY_H
#define WEIR_ADMIN_GRANT_BODY_H

#include "base/macros.h"
#include "base/slice.h"

enum { GRANT_WHY_MAX = 160 };

/* Parses a JSON object (RFC 8259) with a quota (0 or more, -1, "unlimited", or null for none)
 * and, unless the quota is none, a duration. *quota is GRANT_NONE for none. False: `why`
 * describes what was expected. */
MUST_CHECK bool grant_body_read(struct slice body, int64_t *quota, int64_t *us,
                                char why[static GRANT_WHY_MAX]);

#endif
