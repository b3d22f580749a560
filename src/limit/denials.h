/* denials.h - one worker's cache of denials: a request that Redis has denied cannot be admitted
 * before its wait has passed, unless units are given back.
 *
 * Exact: the wait is counted from before the request to Redis, so a cached denial ends slightly too
 * early and never too late. Refunds of this process end it. Every denial expires after at most
 * DENIAL_US, so that resets, raised limits, a flushed Redis and refunds of other processes take
 * effect.
 *
 * Bounded: a set of the table holds four denials; when it is full, the one that ends first is
 * evicted. Used by one worker; no lock. */
#ifndef WEIR_LIMIT_DENIALS_H
#define WEIR_LIMIT_DENIALS_H

#include "base/hash.h"
#include "policy/policy.h"

enum { DENIAL_US = 1000000, DENIAL_LIMITS_MAX = 4 };

/* A hash of everything that a decision depends on: keys, costs, numbers. 128 bits under a random
 * key, so that clients cannot cause collisions. */
struct denial_key {
    uint64_t a, b;
};

/* One denied request. */
struct denial {
    struct denial_key key;
    uint64_t requested_us, until_us; /* monotonic; until_us 0: free */
    unsigned count;                  /* limits */
    struct denial_limit {
        bool limited;
        int64_t remaining, retry_after_us, reset_us, next_us; /* at requested_us */
    } limits[DENIAL_LIMITS_MAX];
};

struct denials;

/* Returns NULL if out of memory. */
struct denials *denials_new(void);
void denials_free(struct denials *denials);

/* The key of a request. `keys`: the texts of all its state keys, concatenated. `numbers`: all
 * its numbers. */
struct denial_key denials_key(const struct denials *denials, struct slice keys,
                              struct slice numbers);

/* The denial in force for this request, or NULL. */
const struct denial *denials_find(const struct denials *denials, struct denial_key key,
                                  uint64_t now_us);

/* Invalidates all denials requested from Redis before now, in all workers of this process. For
 * resets. Any thread. */
void denials_forget_all(void);

/* The same for the denials by keys with the tag of `key`, or of a client as for key_write_tag(),
 * and by chance those by a few other keys. For refunds that Redis has answered. */
void denials_forget_key(struct slice key);
void denials_forget(struct slice client);

/* Returns true if denials_forget() concerns a denial by this key, sent to Redis at requested_us. */
bool denials_are_forgotten(struct slice key, uint64_t requested_us);
/* Returns false if denials_are_forgotten() is false for all keys. Cheap. */
bool denials_may_be_forgotten(uint64_t requested_us);

/* Returns false if no denial can be in force. Cheap. */
bool denials_any(const struct denials *denials, uint64_t now_us);

/* Stores a copy of a denial. Sets `denial->until_us` from the waits of its limits. */
void denials_remember(struct denials *denials, struct denial *denial);

#endif
