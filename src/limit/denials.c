#include "limit/denials.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "limit/key.h"

enum { SETS = 1024, WAYS = 4, REFUND_SLOTS = 1024 };

struct denials {
    struct hash_key hash;
    uint64_t last_until_us; /* of all remembered denials */
    struct denial table[SETS][WAYS];
};

/* Monotonic. A denial requested earlier may predate the reset of its client; this includes
 * replies still in transit at that time. */
static _Atomic uint64_t all_forgotten_us;
/* The last refunds of clients by a hash of their tags, and of all clients. */
static _Atomic uint64_t refunded_us[REFUND_SLOTS], last_refunded_us;

void denials_forget_all(void)
{
    atomic_store_explicit(&all_forgotten_us, clock_us(), memory_order_relaxed);
}

/* --- Refunds ---------------------------------------------------------------------------------- */

/* A client that shares the slot of another one asks Redis more often, no more. */
static _Atomic uint64_t *slot_of_tag(struct slice tag)
{
    static const struct hash_key any;

    return &refunded_us[hash_slice(&any, tag) % REFUND_SLOTS];
}

/* Never sets it back: another thread may have noted a later time. */
static void raise_time(_Atomic uint64_t *time_us, uint64_t now_us)
{
    uint64_t before = atomic_load_explicit(time_us, memory_order_relaxed);

    while (before < now_us && !atomic_compare_exchange_weak(time_us, &before, now_us))
        ;
}

/* Empty if the key has no tag. */
static struct slice tag_of(struct slice key)
{
    const char *tag = memchr(key.p, '{', key.n);
    const char *end = tag ? memchr(tag, '}', (size_t)(key.p + key.n - tag)) : NULL;

    return end ? (struct slice){tag, (size_t)(end + 1 - tag)} : key;
}

void denials_forget_key(struct slice key)
{
    uint64_t now_us = clock_us();

    raise_time(slot_of_tag(tag_of(key)), now_us);
    raise_time(&last_refunded_us, now_us);
}

void denials_forget(struct slice client)
{
    char bytes[KEY_TAG_MAX];
    struct text tag = text_over(bytes, sizeof bytes);

    key_write_tag(&tag, client);
    denials_forget_key(text_slice(&tag));
}

bool denials_may_be_forgotten(uint64_t requested_us)
{
    return requested_us <= atomic_load_explicit(&last_refunded_us, memory_order_acquire);
}

bool denials_are_forgotten(struct slice key, uint64_t requested_us)
{
    return requested_us <= atomic_load_explicit(slot_of_tag(tag_of(key)), memory_order_relaxed);
}

/* --- The table -------------------------------------------------------------------------------- */

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

const struct denial *denials_find(const struct denials *d, struct denial_key key, uint64_t now_us)
{
    const struct denial *set = d->table[key.a % SETS];

    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].key.a == key.a && set[i].key.b == key.b && set[i].until_us > now_us)
            return set[i].requested_us <=
                           atomic_load_explicit(&all_forgotten_us, memory_order_relaxed)
                       ? NULL
                       : &set[i];
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
