/* bounds.h - bounds and units of a policy. */
#ifndef WEIR_POLICY_BOUNDS_H
#define WEIR_POLICY_BOUNDS_H

#include <stdint.h>

/* Largest limit, burst and quota; the window logs count modulo 2^40, which is larger. */
#define LIMIT_MAX 1000000000

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
    LIMIT_COST_MAX = 1000000,
    COST_STATED_MAX = 1000000000, /* cost reported by a response */
};

#endif
