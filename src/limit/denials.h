/* denials.h - what a worker knows by itself: a request that Redis has just denied cannot be admitted before
 * its wait is over.
 *
 * Exact: time only passes as it did for Redis, counted from before Redis was asked, so a denial ends here a
 * little too early and never too late. A denial is forgotten after DENIAL_US in any case, so that resets,
 * raised limits and a flushed Redis show. Bounded: a set of the table is full at four, then the denial that
 * ends first goes. One worker's own; no lock. */
#ifndef WEIR_LIMIT_DENIALS_H
#define WEIR_LIMIT_DENIALS_H

#include "base/hash.h"
#include "policy/policy.h"

enum { DENIAL_US = 1000000, DENIAL_LIMITS_MAX = 4 };

/* Stands for all that a decision depends on: keys, costs, numbers. 128 bits under a random key: nobody can
 * make two requests meet. */
struct denial_key {
    uint64_t a, b;
};

/* One denied request. */
struct denial {
    struct denial_key key;
    uint64_t asked_us, until_us; /* monotonic; until 0: free */
    unsigned count;              /* limits */
    struct denial_limit {
        bool limited;
        int64_t remaining, retry_after_us, reset_us; /* at asked_us */
    } limits[DENIAL_LIMITS_MAX];
};

struct denials;

/* Ends the process when there is no memory: a worker's limiter is made at start or on reload. */
struct denials *denials_new(void);
void denials_free(struct denials *denials);

/* The key of a request: `keys` are the texts of all its state keys one behind the other, `numbers` all its
 * numbers. */
struct denial_key denials_key(const struct denials *denials, struct slice keys, struct slice numbers);

/* The denial that still holds for this request, or NULL. */
const struct denial *denials_find(const struct denials *denials, struct denial_key key, uint64_t now_us);

/* From any thread: no denial that was asked of Redis before now is found any more, in no worker of this
 * process. For resets. */
void denials_forget_all(void);

/* Is what was asked of Redis then from before denials_forget_all()? */
bool denials_are_forgotten(uint64_t asked_us);

/* Is there any to find? Cheap. */
bool denials_any(const struct denials *denials, uint64_t now_us);

/* Remembers a denial; `denial->until_us` is set here from the waits of its limits. */
void denials_remember(struct denials *denials, struct denial *denial);

#endif
