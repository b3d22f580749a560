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
 * A key gets a place when it was asked for LEASE_LEAST times within a few moments, which a small array of counters knows: for the
 * many that are not busy that is all it costs.
 *
 * Bounded: a set of the table is full at four, then the key that was met longest ago goes, but none that holds units. One
 * worker's own; no lock. Pure: no clock, no Redis. */
#ifndef WEIR_LIMIT_LEASES_H
#define WEIR_LIMIT_LEASES_H

#include "base/deadline.h"
#include "base/hash.h"
#include "policy/policy.h"

enum {
    LEASE_US = 100000,       /* how long units are kept after a charge */
    LEASE_LEAST = 4,         /* requests that a lease must save; in so many a stretch a key is busy */
    LEASE_AUTO_LIMIT = 1000, /* a limit from which on auto means a lease */
    LEASE_AUTO_US = 100000,  /* and a key that was asked for */
    LEASE_AUTO_LEAST = 40,   /* so many times in each of the last two stretches of so long */
    LEASE_AUTO_PARTS = 20,   /* of what the limit holds it takes one at most, */
    LEASE_AUTO_LAST = 10,    /* and none of the last of so many: there each answer is exact */
};

/* One key, with these numbers. */
struct lease {
    uint64_t key[2];
    const struct limit *limit; /* NULL: a free place */
    struct limit_numbers numbers;
    uint64_t met_us, counted_from_us, auto_from_us;
    unsigned met, met_before;          /* requests, in this stretch of RATE_US and in the one before */
    unsigned auto_met, auto_before[2]; /* in this stretch of LEASE_AUTO_US and in the two before */
    bool asked;                        /* for more units; not answered yet */
    int64_t known_remaining;           /* what Redis said last */

    /* What others use: between two answers Redis' number falls by more than this worker was charged. */
    uint64_t since_us; /* when the first was asked for; what it said; what this worker was charged since */
    int64_t since_remaining, since_charged;
    int64_t others;     /* units between the last two that were some time apart, */
    uint64_t others_us; /* and that time */

    uint64_t charged_us; /* monotonic, from before Redis was asked */
    uint64_t at_us;      /* of the levels; in units times the period for a bucket, else in units */
    int64_t free, used;
    uint64_t until_us;           /* of a window: not used from then on */
    int64_t window_ends_us;      /* the same by the clock of Redis, which tells one window from the next */
    int64_t remaining, reset_us; /* as Redis said when it charged */
    int64_t units;               /* that were charged, and neither spent nor given back */
    struct limit_op *charge;     /* limiter's: what is to be given back by */
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

/* The lease of a key that a request has just come for; counts the request. NULL: it is not busy, or all its places are
 * in use. */
struct lease *leases_meet(struct leases *leases, struct slice key, const struct limit *limit,
                          const struct limit_numbers *numbers, uint64_t now_us);

/* How many units it should ask for beside what requests need now; 0: none. `sharers`: the workers that may do
 * the same. */
int64_t lease_wants(const struct lease *lease, unsigned sharers);

/* What Redis said of the key, whether or not it was asked for units: granted to this worker, and left then. */
void lease_note(struct lease *lease, int64_t granted, int64_t remaining, uint64_t asked_us);
/* What remains, as far as that is known: what Redis said and what is left of the lease, less what others will have used since if they
 * go on as before. */
int64_t lease_remaining(const struct lease *lease, uint64_t now_us);

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
/* What was spent last did not happen, and the bucket is given it back: nothing may leak on its account any more. */
void lease_unspend(struct lease *lease);
/* What is left if nothing is spent until then. */
int64_t lease_left(struct lease *lease, uint64_t then_us);
/* It holds nothing any more. */
void lease_empty(struct lease *lease);

#endif
