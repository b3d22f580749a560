/* leases.h - units that a worker has leased for a busy key and spends without a call of Redis.
 *
 * Leases never admit more than the limit. Units of a window are spent before the window ends. In a
 * bucket, charged but unspent units leak away like the rest of its level. Otherwise they could be
 * spent when the bucket is full again, in addition to its capacity. So a lease keeps two levels,
 * which leak together at the limit's rate:
 *
 *   used    what is left of the units that this worker spent, as if the bucket held nothing else
 *   free    what may still be spent; it leaks while `used` is 0
 *
 * Let X be the bucket's level in Redis. For any number of workers, X - (sum of free) >= (largest
 * used) holds from charge to charge:
 * - Both sides grow by what is spent.
 * - What leaks from X leaks from the largest used or, where a worker's used is 0, from its free.
 *
 * Hence X >= (sum of free): what a lease holds is still in the bucket, and spending it later is no
 * more than X allowed. All times are rounded in favor of the limit: a charge counts from before the
 * request to Redis.
 *
 * A key gets a slot in the table after LEASE_LEAST requests within a short time. A small array of
 * counters detects this; for the many keys that are not busy it is the only cost.
 *
 * Bounded: a set of the table holds four keys. When it is full, the least recently used key is
 * evicted, but never one that is in use. Used by one worker; no lock. Pure: no clock, no Redis. */
#ifndef WEIR_LIMIT_LEASES_H
#define WEIR_LIMIT_LEASES_H

#include "base/deadline.h"
#include "base/hash.h"
#include "policy/policy.h"

enum {
    LEASE_US = 100000, /* how long units are kept after a charge */
    LEASE_LEAST = 4, /* requests that a lease must save; a key with so many per interval is busy */
    LEASE_AUTO_LIMIT = 1000, /* minimum limit for a lease with lease: auto */
    LEASE_AUTO_US = 100000,  /* interval over which auto counts requests */
    LEASE_AUTO_LEAST = 40,   /* minimum requests in each of the last two intervals */
    LEASE_AUTO_PARTS = 20,   /* auto leases at most 1/20 of the capacity, */
    LEASE_AUTO_LAST = 10, /* and nothing while less than 1/10 remains: there each reply is exact */
};

struct key_counter;

/* One key, with these numbers. Remaining units are those of the priority.
 *
 * A lease has no phases: it holds `units` or none, and a request for more is pending or not
 * (`requested`). Both change independently: units are spent, leak and return while a request is
 * pending. */
struct lease {
    uint64_t key[2];
    const struct limit *limit; /* NULL: a free slot */
    struct limit_numbers numbers;
    struct key_counter *counter; /* of its key */
    uint64_t met_us, counted_from_us, auto_from_us;
    unsigned met, met_before; /* requests in this interval of RATE_US and in the one before */
    unsigned auto_met, auto_before[2]; /* in this interval of LEASE_AUTO_US and in the two before */
    bool requested;                    /* a request for more units is pending */
    int64_t known_remaining;           /* the remaining units in Redis' last reply */

    /* Usage by others: the decrease of Redis' number between two replies, minus this worker's
     * charges. */
    uint64_t
        since_us; /* time of the first reply's request; its number; this worker's charges since */
    int64_t since_remaining, since_charged;
    int64_t others;     /* units between the last two replies that were at least RATE_US apart, */
    uint64_t others_us; /* and the time between them */

    uint64_t charged_us; /* monotonic, from before the request to Redis */
    uint64_t
        at_us; /* of the levels; bucket levels are units times the period, window levels are units */
    int64_t free, used;
    uint64_t until_us;                    /* of a window: not used from then on */
    int64_t window_ends_us;               /* the same by the Redis clock; identifies the window */
    int64_t remaining, reset_us, next_us; /* from Redis' reply to the charge */
    int64_t units;                        /* charged, and neither spent nor given back */
    struct limit_op *charge;              /* limiter's: used to give units back */
    struct limiter *limiter;              /* limiter's */
    struct deadline deadline;             /* limiter's: armed while the lease holds units */
};

/* Returns true if the policy allows a lease for a limit with these numbers. */
static inline bool lease_may_be(const struct limit *limit, const struct limit_numbers *numbers)
{
    return limit->lease_units > 0 ||
           (limit->lease_units == LEASE_AUTO && numbers->limit >= LEASE_AUTO_LIMIT);
}

struct leases;

/* Returns NULL if out of memory. */
struct leases *leases_new(void);
void leases_free(struct leases *leases);

/* Counts a request and returns the lease of its key. NULL: the key is not busy, or all slots are
 * in use. */
struct lease *leases_meet(struct leases *leases, struct slice key, const struct limit *limit,
                          const struct limit_numbers *numbers, uint64_t now_us);

/* Returns how many units to request in addition to what requests need now; 0: none. `sharers`:
 * the number of workers that may do the same. */
int64_t lease_wants(const struct lease *lease, unsigned sharers);

/* Records a reply of Redis for the key, with or without units: units granted to this worker, and
 * units remaining. */
void lease_note(struct lease *lease, int64_t granted, int64_t remaining, uint64_t requested_us);
/* An estimate of the remaining units: Redis' number plus the rest of the lease, less what others
 * use since then at their last rate. */
int64_t lease_remaining(const struct lease *lease, uint64_t now_us);

struct lease_charge {
    int64_t units;                        /* granted in addition to those that requests needed */
    int64_t spent;                        /* those that requests needed */
    int64_t remaining, reset_us, next_us; /* from Redis' reply */
    int64_t time_us;                      /* by the Redis clock */
    uint64_t requested_us;                /* monotonic, before the request to Redis */
};
void lease_take(struct lease *lease, const struct lease_charge *charge, uint64_t now_us);

/* Spends one unit. False: none is left. */
MUST_CHECK bool lease_spend(struct lease *lease, uint64_t now_us);
/* Undoes the last spent unit, which is refunded to the bucket: it no longer counts in `used`. */
void lease_unspend(struct lease *lease);
/* Returns the units left at then_us if none is spent until then. */
int64_t lease_left(struct lease *lease, uint64_t then_us);
/* Removes all units from the lease. */
void lease_empty(struct lease *lease);

#endif
