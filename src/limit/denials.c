#include "limit/denials.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"

enum { SETS = 1024, WAYS = 4 };

struct denials {
    struct hash_key hash;
    uint64_t last_until_us; /* of all remembered denials */
    struct denial table[SETS][WAYS];
};

/* Monotonic. A denial requested earlier may predate the reset of its client; this includes
 * replies still in transit at that time. */
static _Atomic uint64_t forgotten_us;

void denials_forget_all(void)
{
    atomic_store_explicit(&forgotten_us, clock_us(), memory_order_relaxed);
}

struct denials *denials_new(void)
{
    struct denials *d = calloc(1, sizeof *d);

    if (d)
        d->hash = hash_key_random();
    return d;
}

void denials_free(struct denials *d)
{
    free(d);
}

struct denial_key denials_key(const struct denials *d, struct slice keys, struct slice numbers)
{
    uint64_t hash[2];

    hash_slices_128(&d->hash, numbers, keys, hash);
    return (struct denial_key){hash[0], hash[1]};
}

bool denials_any(const struct denials *d, uint64_t now_us)
{
    return d->last_until_us > now_us;
}

bool denials_are_forgotten(uint64_t requested_us)
{
    return requested_us <= atomic_load_explicit(&forgotten_us, memory_order_relaxed);
}

const struct denial *denials_find(const struct denials *d, struct denial_key key, uint64_t now_us)
{
    const struct denial *set = d->table[key.a % SETS];

    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].key.a == key.a && set[i].key.b == key.b && set[i].until_us > now_us)
            return denials_are_forgotten(set[i].requested_us) ? NULL : &set[i];
    return NULL;
}

/* The longest wait, since all limits of a request must admit it. */
static uint64_t wait_us(const struct denial *denial)
{
    int64_t longest = 0;

    for (unsigned i = 0; i < denial->count; i++) {
        const struct denial_limit *limit = &denial->limits[i];
        if (limit->limited && limit->retry_after_us < 0)
            return DENIAL_US;
        if (limit->limited && limit->retry_after_us > longest)
            longest = limit->retry_after_us;
    }
    return longest < DENIAL_US ? (uint64_t)longest : DENIAL_US;
}

void denials_remember(struct denials *d, struct denial *denial)
{
    struct denial *set = d->table[denial->key.a % SETS], *position = set;

    denial->until_us = denial->requested_us + wait_us(denial);
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].key.a == denial->key.a && set[i].key.b == denial->key.b) {
            position = &set[i];
            break;
        }
        if (set[i].until_us < position->until_us)
            position = &set[i];
    }
    *position = *denial;
    if (denial->until_us > d->last_until_us)
        d->last_until_us = denial->until_us;
}
