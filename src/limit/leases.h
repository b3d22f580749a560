/* leases.h - units that a worker has been granted for a busy key and spends by itself.
 *
 * Never above the limit. That of a window: its units are spent before the window ends. Of a bucket a unit that is charged
 * and not spent leaks away like all that is in it, else it could be spent when the bucket is full again, beside all that
 * the bucket then holds. So a lease keeps two levels, which leak together at the limit's rate:
 *
 *   used    what is left of what this worker spent, as if the bucket held nothing else
 *   free    what may still be spent; it leaks while `used` is 0
 *
 * Let X be the bucket's level in Redis. For any number of workers X - (all free) >= (the largest used) holds from charge to charge:
 * both sides grow by what is spent; what leaks from X leaks from the largest used, or where some used is 0 from its free. Hence
 * X >= (all free), whatever a lease holds is still in the bucket, and spending it later is no more than X allowed. All times
 * are rounded to the side of the limit: a charge counts from before Redis was asked.
 *
 * Bounded: a set of the table is full at four, then the key that was met longest ago goes, but none that holds units. One
 * worker's own; no lock. Pure: no clock, no Redis. */
#ifndef WEIR_LIMIT_LEASES_H
#define WEIR_LIMIT_LEASES_H

#include "base/deadline.h"
#include "base/hash.h"
#include "policy/policy.h"

enum {
    LEASE_US = 100000,        /* how long units are kept after a charge */
    LEASE_AUTO_LIMIT = 10000, /* a limit from which on auto means a lease */
};

/* One key, with these numbers. */
struct lease {
    uint64_t key[2];
    const struct limit *limit; /* NULL: a free place */
    struct limit_numbers numbers;
    uint64_t met_us, counted_from_us;
    unsigned met, met_before; /* requests, in this stretch of RATE_US and in the one before */
    bool asked;               /* for more units; not answered yet */
    int64_t known_remaining;  /* what Redis said last */

    uint64_t charged_us; /* monotonic, from before Redis was asked */
    uint64_t at_us;      /* of the levels; in units times the period for a bucket, else in units */
    int64_t free, used;
    uint64_t until_us;           /* of a window: not used from then on */
    int64_t window_ends_us;      /* the same by the clock of Redis, which tells one window from the next */
    int64_t remaining, reset_us; /* as Redis said when it charged */
    int64_t units;               /* that were charged, and neither spent nor given back */
    struct limit_op *receipt;    /* limiter's: what is to be given back by */
    struct limiter *limiter;     /* limiter's */
    struct deadline deadline;    /* limiter's: armed while it holds units */
};

/* Is a lease of so much allowed at all? */
static inline bool lease_may_be(const struct limit *limit, const struct limit_numbers *numbers)
{
    return limit->lease_units > 0 || (limit->lease_units == LEASE_AUTO && numbers->limit >= LEASE_AUTO_LIMIT);
}

struct leases;

/* Ends the process when there is no memory: a worker's limiter is made at start or on reload. */
struct leases *leases_new(void);
void leases_free(struct leases *leases);

/* The lease of a key that a request has just come for; counts the request. NULL: all its places are in use. */
struct lease *leases_meet(struct leases *leases, struct slice key, const struct limit *limit,
                          const struct limit_numbers *numbers, uint64_t now_us);

/* How many units it should ask for beside what requests need now; 0: none. `sharers`: the workers that may do
 * the same. */
int64_t lease_wants(const struct lease *lease, unsigned sharers);

struct lease_charge {
    int64_t units;               /* granted beside those that requests needed */
    int64_t spent;               /* those that requests needed */
    int64_t remaining, reset_us; /* as Redis said */
    int64_t time_us;             /* by the clock of Redis */
    uint64_t asked_us;           /* monotonic, before Redis was asked */
};
void lease_take(struct lease *lease, const struct lease_charge *charge, uint64_t now_us);

/* Spends one unit. False: there is none. */
MUST_CHECK bool lease_spend(struct lease *lease, uint64_t now_us);
/* What is left if nothing is spent until then. */
int64_t lease_left(struct lease *lease, uint64_t then_us);
/* It holds nothing any more. */
void lease_empty(struct lease *lease);

#endif
