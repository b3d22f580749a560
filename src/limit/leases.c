#include "limit/leases.h"

#include <stdlib.h>

enum {
    SETS = 256,
    WAYS = 4,
    RATE_US = 20000,  /* interval over which requests are counted */
    AHEAD_US = 50000, /* units are taken for this time ahead */
    COUNTERS = 1024,
    WARM = 16, /* a key stays busy for so many intervals */
};
_Static_assert((WARM - 1) * RATE_US > LEASE_US, "a key stays busy until its lease ends");
#define LEVEL_MAX (INT64_C(1) << 62)
_Static_assert(LEVEL_MAX / PERIOD_MAX_US > LEASE_MOST, "a level is more than a lease holds");

/* Shared by all keys with the same hash. A collision costs one more lookup. */
struct key_counter {
    uint32_t stretch;      /* the last interval with a request */
    uint32_t busy_stretch; /* the last interval that was busy, or in which a lease was charged */
    uint32_t met;
    uint64_t warm_from_us; /* busy since then; replies to earlier requests were not noted */
};

struct leases {
    struct hash_key hash;
    struct key_counter counters[COUNTERS];
    struct lease table[SETS][WAYS];
};

struct leases *leases_new(void)
{
    struct leases *leases = calloc(1, sizeof *leases);

    if (leases)
        leases->hash = hash_key_random();
    return leases;
}

void leases_free(struct leases *leases)
{
    free(leases);
}

/* --- Which keys are busy ---------------------------------------------------------------------- */

static uint64_t stir(uint64_t sum, const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
}

/* A cheap hash, since every request computes it. Collisions that a client forces only cost a
 * lookup. */
static unsigned counter_of(struct slice key)
{
    const char *last = key.p + key.n - 8;
    uint64_t sum = key.n;

    if (key.n < 8)
        return 0;
    for (const char *p = key.p; p < last; p += 8)
        sum = stir(sum, p);
    return (unsigned)(stir(sum, last) >> 32) % COUNTERS;
}

static uint32_t stretch_of(uint64_t now_us)
{
    return WARM + (uint32_t)(now_us / RATE_US); /* a free counter's interval is long past */
}

/* The busy interval is later than `stretch` if a charge was later than the cached time. */
static bool is_warm(const struct key_counter *counter, uint32_t stretch)
{
    return stretch <= counter->busy_stretch || stretch - counter->busy_stretch < WARM;
}

static void keep_warm(struct key_counter *counter, uint64_t now_us)
{
    uint32_t stretch = stretch_of(now_us);

    if (!is_warm(counter, stretch))
        counter->warm_from_us = now_us;
    counter->busy_stretch = stretch;
}

/* Counts a request of the key. Returns its counter, or NULL if the key is not busy. */
static struct key_counter *warm_counter(struct leases *leases, struct slice key, uint64_t now_us)
{
    struct key_counter *counter = &leases->counters[counter_of(key)];
    uint32_t stretch = stretch_of(now_us);

    if (counter->stretch != stretch) {
        counter->stretch = stretch;
        counter->met = 0;
    }
    if (++counter->met >= LEASE_LEAST)
        keep_warm(counter, now_us);
    return is_warm(counter, stretch) ? counter : NULL;
}

static bool is_of(const struct lease *lease, const uint64_t key[2], const struct limit *limit,
                  const struct limit_numbers *numbers)
{
    return lease->limit == limit && lease->key[0] == key[0] && lease->key[1] == key[1] &&
           lease->numbers.limit == numbers->limit && lease->numbers.burst == numbers->burst &&
           lease->numbers.share == numbers->share;
}

/* The same key with other numbers, of any priority. A bucket leaks by the latest numbers, so units
 * leased under the earlier ones may have leaked away. */
static bool is_of_other_numbers(const struct lease *lease, const uint64_t key[2],
                                const struct limit *limit, const struct limit_numbers *numbers)
{
    uint64_t shares = (uint64_t)lease->numbers.share ^ (uint64_t)numbers->share;

    return lease->free && lease->limit->base == limit->base && limit->kind == LIMIT_BUCKET &&
           lease->key[0] == key[0] && lease->key[1] == (key[1] ^ shares) &&
           (lease->limit != limit || lease->numbers.limit != numbers->limit ||
            lease->numbers.burst != numbers->burst);
}

static bool is_in_use(const struct lease *lease)
{
    return lease->requested || deadline_is_armed(&lease->deadline);
}

/* Returns the key's slot in the set, or reuses the least recently used slot that is not in use.
 * NULL: all are in use. A new slot starts with the requests that the counter has counted. */
static struct lease *lease_slot(struct lease *set, const uint64_t key[2], const struct limit *limit,
                                const struct limit_numbers *numbers, uint64_t now_us)
{
    struct lease *own = NULL, *position = NULL;

    for (unsigned i = 0; i < WAYS; i++) {
        if (is_of(&set[i], key, limit, numbers))
            own = &set[i];
        if (is_of_other_numbers(&set[i], key, limit, numbers))
            set[i].free = set[i].used = 0;
        if (!is_in_use(&set[i]) && (!position || set[i].met_us < position->met_us))
            position = &set[i];
    }
    if (own)
        return own;
    if (position)
        *position = (struct lease){.key = {key[0], key[1]},
                                   .limit = limit,
                                   .numbers = *numbers,
                                   .met = LEASE_LEAST - 1,
                                   .counted_from_us = now_us};
    return position;
}

static void count_for_auto(struct lease *lease, uint64_t now_us)
{
    uint64_t since_us = now_us - lease->auto_from_us;

    if (since_us >= LEASE_AUTO_US) {
        bool next = since_us < 2 * LEASE_AUTO_US;
        lease->auto_before[1] = next ? lease->auto_before[0] : 0;
        lease->auto_before[0] = next ? lease->auto_met : 0;
        lease->auto_met = 0;
        lease->auto_from_us = now_us;
    }
    lease->auto_met++;
}

static void count_request(struct lease *lease, uint64_t now_us)
{
    uint64_t since_us = now_us - lease->counted_from_us;

    if (since_us >= RATE_US) {
        lease->met_before = since_us < 2 * RATE_US ? lease->met : 0;
        lease->met = 0;
        lease->counted_from_us = now_us;
    }
    lease->met++;
    lease->met_us = now_us;
    count_for_auto(lease, now_us);
}

static __attribute__((noinline)) struct lease *
look_closer(struct leases *leases, struct slice text, const struct limit *limit,
            const struct limit_numbers *numbers, uint64_t now_us, struct key_counter *counter)
{
    uint64_t key[2];

    hash_slice_128(&leases->hash, text, key);
    key[1] ^= (uint64_t)numbers->share; /* each priority has its own lease */
    struct lease *lease = lease_slot(leases->table[key[0] % SETS], key, limit, numbers, now_us);
    if (!lease)
        return NULL;
    if (lease->since_us < counter->warm_from_us) /* or requests not noted count as use by others */
        lease->since_us = 0;
    lease->counter = counter;
    count_request(lease, now_us);
    return lease;
}

struct lease *leases_meet(struct leases *leases, struct slice key, const struct limit *limit,
                          const struct limit_numbers *numbers, uint64_t now_us)
{
    struct key_counter *counter = warm_counter(leases, key, now_us);

    return counter ? look_closer(leases, key, limit, numbers, now_us, counter) : NULL;
}

/* --- How many units --------------------------------------------------------------------------- */

static bool is_bucket(const struct lease *lease)
{
    return lease->limit->kind == LIMIT_BUCKET;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The maximum number of units: from the policy, or automatic. An automatic lease is small enough
 * that others do not miss its units. It is given only to keys that stay busy, and not when few
 * units remain. */
static int64_t most_units(const struct lease *lease)
{
    int64_t holds = is_bucket(lease) ? least_of(lease->numbers.limit, lease->numbers.burst)
                                     : lease->numbers.limit;

    holds -= share_reserve(holds, lease->numbers.share);
    if (lease->limit->lease_units != LEASE_AUTO)
        return lease->limit->lease_units;
    bool lasts =
        lease->auto_before[0] >= LEASE_AUTO_LEAST && lease->auto_before[1] >= LEASE_AUTO_LEAST;
    return lasts && lease->known_remaining >= holds / LEASE_AUTO_LAST ? holds / LEASE_AUTO_PARTS
                                                                      : 0;
}

/* Level units per unit of the limit. */
static int64_t scale(const struct lease *lease)
{
    return is_bucket(lease) ? lease->limit->period_us : 1;
}

int64_t lease_wants(const struct lease *lease, unsigned sharers)
{
    int64_t requests = lease->met > lease->met_before ? lease->met : lease->met_before;
    int64_t spent = requests * AHEAD_US / RATE_US, leaks = 0, units;

    if (lease->requested || lease->free >= scale(lease) || requests < LEASE_LEAST)
        return 0;
    units = least_of(most_units(lease), lease->known_remaining / (2 * (int64_t)sharers));
    units = least_of(units, LEASE_MOST);
    if (is_bucket(lease))
        leaks = (int64_t)((__int128)lease->numbers.limit * AHEAD_US / lease->limit->period_us);
    units = least_of(units, spent + leaks);
    /* Part of a bucket's units leaks away before it is spent. */
    return (double)spent * (double)units / (double)(spent + leaks) >= (double)LEASE_LEAST ? units
                                                                                          : 0;
}

/* --- Levels ----------------------------------------------------------------------------------- */

/* The amount that a bucket leaks in this time. Capped at LEVEL_MAX, which is more than a lease
 * holds. */
static int64_t leak(const struct lease *lease, uint64_t us)
{
    if (!is_bucket(lease))
        return 0;
    return us > (uint64_t)(LEVEL_MAX / (lease->numbers.limit + 1))
               ? LEVEL_MAX
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

/* The units spent at once and the leased units both count from the time of the request. */
void lease_take(struct lease *lease, const struct lease_charge *charge, uint64_t now_us)
{
    int64_t leaked = leak(lease, now_us - charge->requested_us),
            units = charge->units * scale(lease);
    int64_t spent = is_bucket(lease) ? charge->spent * scale(lease) : 0,
            of_spent = least_of(leaked, spent);
    int64_t ends_us = charge->time_us + charge->reset_us;

    keep_warm(lease->counter, now_us); /* or its requests do not spend the units */
    leak_until(lease, now_us);
    if (!is_bucket(lease) && lease->window_ends_us != ends_us) {
        lease->free = 0; /* of the previous window */
        lease->window_ends_us = ends_us;
        lease->until_us = charge->requested_us + (uint64_t)charge->reset_us;
    }
    lease->used = least_of(LEVEL_MAX, lease->used + spent - of_spent);
    lease->free += units - least_of(leaked - of_spent, units);
    lease->units += charge->units;
    lease->charged_us = charge->requested_us;
    lease->remaining = charge->remaining;
    lease->reset_us = charge->reset_us;
    lease->next_us = charge->next_us;
}

void lease_note(struct lease *lease, int64_t granted, int64_t remaining, uint64_t requested_us)
{
    uint64_t us = requested_us - lease->since_us;

    lease->known_remaining = granted > 0 ? remaining : 0;
    lease->since_charged += granted;
    if (us < RATE_US)
        return;
    int64_t gone = lease->since_remaining - lease->since_charged - remaining;
    bool soon = lease->since_us && us <= LEASE_AUTO_US * 2;
    lease->others = soon && gone > 0 ? gone : 0;
    lease->others_us = us;
    lease->since_us = requested_us;
    lease->since_remaining = remaining;
    lease->since_charged = 0;
}

int64_t lease_remaining(const struct lease *lease, uint64_t now_us)
{
    int64_t remaining = lease->remaining;

    if (lease->others) {
        double used =
            (double)lease->others * (double)(now_us - lease->charged_us) / (double)lease->others_us;
        remaining = used < (double)remaining ? remaining - (int64_t)used : 0;
    }
    return remaining + lease->units;
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

void lease_unspend(struct lease *lease)
{
    lease->used -= least_of(lease->used, scale(lease));
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
