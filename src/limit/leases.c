#include "limit/leases.h"

#include <stdlib.h>

#include "base/memory.h"

enum {
    SETS = 256,
    WAYS = 4,
    RATE_US = 20000,  /* over which requests are counted */
    AHEAD_US = 50000, /* for how long units are taken */
    LEAST = 4,        /* requests that a lease must save */
    AUTO_PARTS = 20,  /* of what the limit holds a lease takes one at most */
};
#define LEVEL_MAX (INT64_C(1) << 61)

struct leases {
    struct hash_key hash;
    struct lease table[SETS][WAYS];
};

struct leases *leases_new(void)
{
    struct leases *leases = xcalloc(1, sizeof *leases);
    leases->hash = hash_key_random();
    return leases;
}

void leases_free(struct leases *leases)
{
    free(leases);
}

/* --- Who is busy -------------------------------------------------------------------------------------- */

static bool is_of(const struct lease *lease, const uint64_t key[2], const struct limit *limit,
                  const struct limit_numbers *numbers)
{
    return lease->limit == limit && lease->key[0] == key[0] && lease->key[1] == key[1] &&
           lease->numbers.limit == numbers->limit && lease->numbers.burst == numbers->burst;
}

static bool is_in_use(const struct lease *lease)
{
    return lease->asked || deadline_is_armed(&lease->deadline);
}

/* Its place in the set; where there is none, any other's that is not in use. NULL: all are. */
static struct lease *find(struct lease *set, const uint64_t key[2], const struct limit *limit,
                          const struct limit_numbers *numbers)
{
    struct lease *place = NULL;

    for (unsigned i = 0; i < WAYS; i++) {
        if (is_of(&set[i], key, limit, numbers))
            return &set[i];
        if (!is_in_use(&set[i]) && (!place || set[i].met_us < place->met_us))
            place = &set[i];
    }
    if (place)
        *place = (struct lease){.key = {key[0], key[1]}, .limit = limit, .numbers = *numbers};
    return place;
}

static void count(struct lease *lease, uint64_t now_us)
{
    uint64_t since_us = now_us - lease->counted_from_us;

    if (since_us >= RATE_US) {
        lease->met_before = since_us < 2 * RATE_US ? lease->met : 0;
        lease->met = 0;
        lease->counted_from_us = now_us;
    }
    lease->met++;
    lease->met_us = now_us;
}

struct lease *leases_meet(struct leases *leases, struct slice text, const struct limit *limit,
                          const struct limit_numbers *numbers, uint64_t now_us)
{
    uint64_t key[2];

    hash_slice_128(&leases->hash, text, key);
    struct lease *lease = find(leases->table[key[0] % SETS], key, limit, numbers);
    if (lease)
        count(lease, now_us);
    return lease;
}

/* --- How much ----------------------------------------------------------------------------------------- */

static bool is_bucket(const struct lease *lease)
{
    return lease->limit->kind == LIMIT_BUCKET;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* By the policy. Where nobody said how many, few enough that others do not miss them. */
static int64_t most_units(const struct lease *lease)
{
    int64_t holds =
        is_bucket(lease) ? least_of(lease->numbers.limit, lease->numbers.burst) : lease->numbers.limit;

    return lease->limit->lease_units == LEASE_AUTO ? holds / AUTO_PARTS : lease->limit->lease_units;
}

/* Of one unit. */
static int64_t scale(const struct lease *lease)
{
    return is_bucket(lease) ? lease->limit->period_us : 1;
}

int64_t lease_wants(const struct lease *lease, unsigned sharers)
{
    int64_t requests = lease->met > lease->met_before ? lease->met : lease->met_before;
    int64_t spent = requests * AHEAD_US / RATE_US, leaks = 0, units;

    if (lease->asked || lease->free >= scale(lease) || requests < LEAST)
        return 0;
    units = least_of(most_units(lease), lease->known_remaining / (2 * (int64_t)sharers));
    units = least_of(units, LEASE_MOST);
    if (is_bucket(lease))
        leaks = lease->numbers.limit * AHEAD_US / lease->limit->period_us;
    units = least_of(units, spent + leaks);
    /* A bucket's leak away meanwhile. */
    return (double)spent * (double)units / (double)(spent + leaks) >= LEAST ? units : 0;
}

/* --- Levels ------------------------------------------------------------------------------------------- */

/* What a bucket leaks in so long a time. More than a lease holds is as good as all. */
static int64_t leak(const struct lease *lease, uint64_t us)
{
    if (!is_bucket(lease))
        return 0;
    return us > (uint64_t)(LEVEL_MAX / (lease->numbers.limit + 1)) ? LEVEL_MAX
                                                                   : lease->numbers.limit * (int64_t)us;
}

static void leak_until(struct lease *lease, uint64_t now_us)
{
    int64_t leaked = now_us > lease->at_us ? leak(lease, now_us - lease->at_us) : 0;
    int64_t of_used = least_of(leaked, lease->used);

    lease->at_us = now_us > lease->at_us ? now_us : lease->at_us;
    lease->used -= of_used;
    lease->free -= least_of(leaked - of_used, lease->free);
    if (!is_bucket(lease) && now_us >= lease->until_us)
        lease->free = 0;
}

/* What was charged and spent at once is as old as the question, as is what was charged beside it. */
void lease_take(struct lease *lease, const struct lease_charge *charge, uint64_t now_us)
{
    int64_t leaked = leak(lease, now_us - charge->asked_us), units = charge->units * scale(lease);
    int64_t spent = is_bucket(lease) ? charge->spent * scale(lease) : 0, of_spent = least_of(leaked, spent);
    int64_t ends_us = charge->time_us + charge->reset_us;

    leak_until(lease, now_us);
    if (!is_bucket(lease) && lease->window_ends_us != ends_us) {
        lease->free = 0; /* of the window before */
        lease->window_ends_us = ends_us;
        lease->until_us = charge->asked_us + (uint64_t)charge->reset_us;
    }
    lease->used = least_of(LEVEL_MAX, lease->used + spent - of_spent);
    lease->free += units - least_of(leaked - of_spent, units);
    lease->units += charge->units;
    lease->charged_us = charge->asked_us;
    lease->remaining = charge->remaining;
    lease->reset_us = charge->reset_us;
}

bool lease_spend(struct lease *lease, uint64_t now_us)
{
    if (lease->free < scale(lease))
        return false;
    leak_until(lease, now_us);
    if (lease->free < scale(lease))
        return false;
    lease->free -= scale(lease);
    lease->units--;
    if (is_bucket(lease))
        lease->used = least_of(LEVEL_MAX, lease->used + scale(lease));
    return true;
}

int64_t lease_left(struct lease *lease, uint64_t then_us)
{
    leak_until(lease, then_us);
    return lease->free / scale(lease);
}

void lease_empty(struct lease *lease)
{
    lease->free = lease->used = lease->units = 0;
    lease->at_us = lease->until_us = 0;
    lease->window_ends_us = 0;
}
