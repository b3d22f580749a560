/* limit_reply.h - the driver's reply for one limit (lua/driver.lua). */
#ifndef WEIR_LIMIT_LIMIT_REPLY_H
#define WEIR_LIMIT_LIMIT_REPLY_H

#include "policy/policy.h"
#include "redis/reply.h"

/* Numbers per limit in the driver's reply. */
enum { LIMIT_REPLY_NUMBERS = 5 };

/* Larger numbers are invalid. Limiters return numbers below 2^53 (exact in Lua), and debts end at
 * 2^52 µs. The margin keeps sums of a few numbers in range. */
#define LIMIT_REPLY_LARGEST (INT64_C(1) << 61)

/* retry_after_us of a repeated request that dedup answers from memory */
enum { LIMIT_REPLY_REPEATS = 1 };

struct limit_reply {
    int64_t granted; /* units charged; 0: rejected */
    int64_t remaining;
    int64_t retry_after_us; /* -1: never admitted */
    int64_t reset_us;
    int64_t delay_us;    /* a queue admits the request after this time */
    const char *failure; /* the limit's own script failed with this message; NULL: it did not */
};

/* Reads the reply for `limit` from LIMIT_REPLY_NUMBERS elements. `failure` points into them.
 * Returns false if they are malformed. */
MUST_CHECK bool limit_reply_read(const struct redis_reply *elements, const struct limit *limit,
                                 struct limit_reply *reply);

/* Returns whether the element is a number in range. */
static inline bool limit_reply_is_number(const struct redis_reply *element)
{
    return element->type == RESP_INTEGER && element->integer <= LIMIT_REPLY_LARGEST &&
           element->integer >= -LIMIT_REPLY_LARGEST;
}

#endif
