/* fallback.h - limits counted in this process while Redis is down (`on_failure: local`).
 *
 * One table for all workers: a client gets this process's whole share, whichever worker handles it.
 * Locks are striped and held for a few hundred nanoseconds. They are taken while Redis is down, and
 * at any time for concurrency limits with on_failure: local.
 *
 * Buckets use GCRA, windows a fixed window. Bounded: when a stripe is full, its least recently
 * used entry is evicted. */
#ifndef WEIR_LIMIT_FALLBACK_H
#define WEIR_LIMIT_FALLBACK_H

#include "limit/decision.h"

struct fallback;

struct fallback *fallback_new(unsigned entries_max);
void fallback_free(struct fallback *fallback);

/* One limit of one request: its key, its cost, and its result. The caller sets the result's
 * limit, quota and capacity. `best_effort`: takes what is left if that is less than the cost.
 * `asks`: rejects as otherwise, but charges nothing. `debt`: if it rejects, it is charged all the
 * same, beyond the limit. `fits_whole`: the whole limit could admit the cost. If the
 * result's capacity is one instance's part and too small for it, the request is told to wait, not
 * that it is never admitted. */
struct fallback_request {
    struct slice key;
    int64_t cost;
    struct limit_result *result;
    bool best_effort, asks, debt, fits_whole;
    int64_t reserve; /* of the capacity, left to higher priorities; the result includes it */
    bool quota;      /* the limits of its descriptor reject only if those of all with `quota` do */
    bool passes;     /* with `quota`: another descriptor passes, so this one never rejects */
    unsigned descriptor; /* in ascending order */
};

/* Charges every limit or, if one rejects, none, as in Redis, at the current wall-clock time.
 * Returns true if admitted; false also without memory for more than LIMITS_PER_RULE_MAX limits,
 * which are then as the caller has set them. Any thread. */
bool fallback_decide(struct fallback *fallback, struct fallback_request *requests, unsigned count);

/* Gives back the granted units of a result that fallback_decide() has set at `since_us` (clock_us)
 * or later, for the key of a bucket or window. Returns false, and does nothing, if they no longer
 * count: the window has ended, or the bucket may have been full since. Any thread. */
bool fallback_refund(struct fallback *fallback, const struct limit_result *result, struct slice key,
                     uint64_t since_us);

/* Adds units in flight of a key, whether Redis or the fallback admitted them; less than 0: they
 * have ended. Any thread. */
void fallback_add_in_flight(struct fallback *fallback, struct slice key, int64_t units);

#endif
