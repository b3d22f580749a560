/* limit_reply.h - the driver's reply for one limit (lua/driver.lua). */
#ifndef WEIR_LIMIT_LIMIT_REPLY_H
#define WEIR_LIMIT_LIMIT_REPLY_H

#include "policy/policy.h"
#include "redis/redis_reply.h"

/* Numbers per limit in the driver's reply, of a unit granted at once in a plain run, and the most
 * in a packed reply. A limiter that returns the time until more units are available has one more
 * per limit. */
enum { LIMIT_REPLY_NUMBERS = 5, LIMIT_REPLY_PLAIN = 2, LIMIT_REPLY_PACKED = 4 };

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
    int64_t next_us;     /* until more units are available, 0 or more; see next_unit.h */
    int64_t delay_us;    /* a queue admits the request after this time */
    const char *failure; /* the limit's own script failed with this message; NULL: it did not */
};

/* Elements of the driver's reply that are not read yet. */
struct limit_replies {
    const struct redis_reply *next, *end;
};

/* Begins to read the driver's reply. `unpacked`: storage for the elements of a packed reply.
 * Returns false if the reply is malformed. */
MUST_CHECK bool limit_replies_begin(struct limit_replies *from, const struct redis_reply *reply,
                                    struct redis_reply unpacked[LIMIT_REPLY_PACKED]);

/* Reads the next limit's reply. `numbers`: of the client of the request. `plain`: its request was
 * in a plain run. `failure` points into the elements. Returns false if they are malformed. */
MUST_CHECK bool limit_reply_read(struct limit_replies *from, const struct limit *limit,
                                 const struct limit_numbers *numbers, bool plain,
                                 struct limit_reply *reply);

/* Returns whether the element is a number in range. */
static inline bool limit_reply_is_number(const struct redis_reply *element)
{
    return element->type == RESP_INTEGER && element->integer <= LIMIT_REPLY_LARGEST &&
           element->integer >= -LIMIT_REPLY_LARGEST;
}

#endif
