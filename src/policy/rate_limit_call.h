/* rate_limit_call.h - a call of Envoy's rate limit service, as data: a domain and descriptors, each
 * a list of entries. service/ reads it from a message; limit/ decides it.
 *
 * Texts are slices of the message, valid as long as its memory. service/ has checked a call: it is
 * within the bounds below, all texts are UTF-8, domain and keys are not empty. */
#ifndef WEIR_POLICY_RATE_LIMIT_CALL_H
#define WEIR_POLICY_RATE_LIMIT_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { DESCRIPTORS_MAX = 64, DESCRIPTOR_ENTRIES_MAX = 32 };

/* Numbers of envoy.type.v3.RateLimitUnit. */
enum rate_limit_unit {
    UNIT_UNKNOWN,
    UNIT_SECOND,
    UNIT_MINUTE,
    UNIT_HOUR,
    UNIT_DAY,
    UNIT_MONTH,
    UNIT_YEAR,
    UNIT_WEEK,
    UNIT_COUNT
};

struct descriptor_entry {
    struct slice key, value; /* the value may be empty */
};

struct call_descriptor {
    const struct descriptor_entry *entries;
    unsigned entry_count; /* 1 to DESCRIPTOR_ENTRIES_MAX */
    bool has_hits;        /* `hits` replaces that of the call, also with 0 */
    uint64_t hits;
    bool refunds;      /* the hits are given back */
    bool has_limit;    /* overrides the limit of the policy */
    unsigned unit;     /* UNIT_SECOND to UNIT_WEEK */
    uint32_t per_unit; /* requests per unit */
};

struct rate_limit_call {
    struct slice domain;
    uint32_t hits; /* 0: not set */
    const struct call_descriptor *descriptors;
    unsigned count; /* 1 to DESCRIPTORS_MAX */
};

#endif
