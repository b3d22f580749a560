#include "limit/grants.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/values.h"

/* Open addressing. The number of slots is a power of two; at most half of them are used. */
struct grants {
    atomic_uint references;
    struct hash_key hash;
    size_t mask;
    uint64_t last_us; /* latest end of all grants */
    struct grant *slots;
    char *names;
};

/* The current table and its version. Workers read only the version until it changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct grants *in_force;
static _Atomic unsigned version;
static _Atomic unsigned noted;

/* --- A table ---------------------------------------------------------------------------------- */

static void drop(struct grants *grants)
{
    if (!grants || atomic_fetch_sub(&grants->references, 1) != 1)
        return;
    free(grants->slots);
    free(grants->names);
    free(grants);
}

/* Returns the client's slot, or the free slot for it. */
static struct grant *grant_slot(const struct grants *grants, struct slice client)
{
    size_t slot = hash_slice(&grants->hash, client) & grants->mask;

    while (grants->slots[slot].client.n && !slice_equal(grants->slots[slot].client, client))
        slot = (slot + 1) & grants->mask;
    return &grants->slots[slot];
}

static bool allocate_slots(struct grants *grants, const struct grant *all, unsigned count)
{
    size_t slots = 8, bytes = 1;

    while (slots < 2 * (size_t)count)
        slots *= 2;
    for (unsigned i = 0; i < count; i++)
        bytes += all[i].client.n;
    grants->mask = slots - 1;
    grants->slots = calloc(slots, sizeof *grants->slots);
    grants->names = malloc(bytes);
    return grants->slots && grants->names;
}

struct grants *grants_new(const struct grant *all, unsigned count)
{
    struct grants *grants = calloc(1, sizeof *grants);

    if (!grants)
        return NULL;
    atomic_init(&grants->references, 1);
    grants->hash = hash_key_random();
    if (!allocate_slots(grants, all, count)) {
        drop(grants);
        return NULL;
    }
    char *name = grants->names;
    for (unsigned i = 0; i < count; i++) {
        memcpy(name, all[i].client.p, all[i].client.n);
        struct slice client = {name, all[i].client.n};
        *grant_slot(grants, client) = (struct grant){client, all[i].quota, all[i].until_us};
        if (all[i].until_us > grants->last_us)
            grants->last_us = all[i].until_us;
        name += client.n;
    }
    return grants;
}

/* --- The current table ------------------------------------------------------------------------ */

void grants_publish(struct grants *grants)
{
    pthread_mutex_lock(&lock);
    struct grants *before = in_force;
    in_force = grants;
    atomic_fetch_add(&version, 1);
    pthread_mutex_unlock(&lock);
    drop(before);
}

/* Copies the active grants of other clients to `all`, which has room for GRANTS_MAX. */
static unsigned others(const struct grants *grants, struct slice client, struct grant *all)
{
    uint64_t now_us = clock_us();
    unsigned count = 0;

    for (size_t i = 0; grants && i <= grants->mask && count + 1 < GRANTS_MAX; i++)
        if (grants->slots[i].until_us > now_us && !slice_equal(grants->slots[i].client, client))
            all[count++] = grants->slots[i];
    return count;
}

bool grants_note(const struct grant *one)
{
    struct grant *all = malloc(GRANTS_MAX * sizeof *all);

    if (!all)
        return false;
    pthread_mutex_lock(&lock); /* the names stay until grants_new() has copied them */
    unsigned count = others(in_force, one->client, all);
    if (one->quota != GRANT_NONE)
        all[count++] = *one;
    struct grants *made = count ? grants_new(all, count) : NULL;
    pthread_mutex_unlock(&lock);
    free(all);
    if (count && !made)
        return false;
    atomic_fetch_add(&noted, 1);
    grants_publish(made);
    return true;
}

unsigned grants_noted(void)
{
    return atomic_load(&noted);
}

unsigned grants_active(void)
{
    uint64_t now_us = clock_us();
    unsigned active = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; in_force && i <= in_force->mask; i++)
        active += in_force->slots[i].until_us > now_us;
    pthread_mutex_unlock(&lock);
    return active;
}

static void take_hold(struct grants_hold *hold)
{
    pthread_mutex_lock(&lock);
    struct grants *before = hold->grants;
    hold->grants = in_force;
    hold->version = atomic_load(&version);
    if (in_force)
        atomic_fetch_add(&in_force->references, 1);
    pthread_mutex_unlock(&lock);
    drop(before);
}

void grants_let_go(struct grants_hold *hold)
{
    drop(hold->grants);
    *hold = (struct grants_hold){0};
}

bool grants_find_text(struct grants_hold *hold, struct slice client, struct grant *grant)
{
    if (atomic_load_explicit(&version, memory_order_acquire) != hold->version)
        take_hold(hold);
    if (!hold->grants)
        return false;
    uint64_t now_us = clock_us();
    if (hold->grants->last_us <= now_us)
        return false;
    *grant = *grant_slot(hold->grants, client);
    return grant->until_us > now_us; /* 0 in a free slot */
}

bool grant_quota_read(struct slice text, int64_t *quota)
{
    if (slice_equal(text, SLICE("none")))
        *quota = GRANT_NONE;
    else if (slice_equal(text, SLICE("unlimited")))
        *quota = GRANT_UNLIMITED;
    else
        return number_read(text, quota) == VALUE_GOOD && *quota >= GRANT_UNLIMITED &&
               *quota <= LIMIT_MAX;
    return true;
}

bool grant_time_read(struct slice text, int64_t *us)
{
    return duration_read(text, us) == VALUE_GOOD && *us >= GRANT_MIN_US && *us <= GRANT_MAX_US;
}

struct client_limits grant_client_limits(int64_t quota)
{
    return (struct client_limits){.quota = quota == 0                 ? QUOTA_PROHIBITED
                                           : quota == GRANT_UNLIMITED ? QUOTA_UNLIMITED
                                                                      : QUOTA_AS_WRITTEN,
                                  .each = quota > 0 ? quota : 0};
}
