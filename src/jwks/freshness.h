/* freshness.h - how long a response is fresh: Cache-Control and Age (RFC 9111 sections 4.2, 5.1,
 * 5.2). */
#ifndef WEIR_JWKS_FRESHNESS_H
#define WEIR_JWKS_FRESHNESS_H

#include "base/slice.h"

enum { FRESHNESS_MAX_S = 1 << 30 }; /* larger numbers are this one */

struct freshness {
    bool limited;       /* the response says how long it is fresh */
    uint64_t max_age_s; /* the shortest, if it says several; 0: no-cache, no-store, or malformed */
    uint64_t age_s;
};

/* Takes a field line of the response; others than these two are ignored. `line` may end with
 * CRLF. */
void freshness_read(struct freshness *freshness, struct slice line);
/* Returns the seconds from the response on; only if it is limited. */
uint64_t freshness_seconds(const struct freshness *freshness);

#endif
