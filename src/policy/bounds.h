/* bounds.h - bounds and units of a policy. */
#ifndef WEIR_POLICY_BOUNDS_H
#define WEIR_POLICY_BOUNDS_H

#include <stdint.h>

/* Largest limit, burst, quota and cost of the limiters that count large numbers
 * (limit_counts_large()): the most that structured fields hold (RFC 9651 section 3.3.1). */
#define LIMIT_MAX INT64_C(999999999999999)
/* Of other limiters. The window logs count modulo 2^40, which is larger. */
#define SMALL_LIMIT_MAX       INT64_C(1000000000)
#define SMALL_COST_MAX        INT64_C(1000000)
#define SMALL_STATED_COST_MAX INT64_C(1000000000) /* reported by a response */

#define PERIOD_MIN_US INT64_C(1000)
#define PERIOD_MAX_US (INT64_C(366) * 86400 * 1000000)

enum { SHARE_WHOLE = 10000 }; /* unit of shares: 0.01% */

enum {
    LIMITS_MAX = 256,        /* per policy */
    VARIANTS_MAX = 256,      /* periods of plans and clients that differ from their limits' */
    LIMITS_PER_RULE_MAX = 8, /* per request */
    LIMIT_OPTIONS_MAX = 8,   /* options passed to a script */
    LIMIT_PER_MAX = 4,       /* dimensions in `per` */
    RULES_MAX = 1024,
    RULE_NAME_MAX = 256, /* bytes; also the limit for path patterns */
    CLIENT_ID_MAX = 256, /* bytes; client id from a header */
};

#endif
