/* recent.h - event counts over a sliding window, in constant memory.
 *
 * The window consists of RECENT_SLOTS slots. The oldest slot expires as a whole, so a sum covers
 * 90% to 100% of the window. */
#ifndef WEIR_BASE_RECENT_H
#define WEIR_BASE_RECENT_H

#include <stdint.h>

enum { RECENT_SLOTS = 10, RECENT_KINDS = 2 };

struct recent {
    uint64_t slot_us; /* length of a slot */
    uint64_t ends_us; /* end of the current slot, monotonic */
    unsigned current; /* index of the current slot */
    uint32_t sum[RECENT_KINDS];
    uint32_t slots[RECENT_SLOTS][RECENT_KINDS];
};

/* Starts empty. `window_us` is the window in microseconds, at least RECENT_SLOTS. */
void recent_init(struct recent *recent, uint64_t window_us);

/* Drops the slots that are outside the window at `now_us`. */
void recent_advance(struct recent *recent, uint64_t now_us);

/* Counts one event of `kind` (below RECENT_KINDS) at `now_us` (monotonic). */
static inline void recent_add(struct recent *recent, unsigned kind, uint64_t now_us)
{
    if (now_us >= recent->ends_us)
        recent_advance(recent, now_us);
    recent->sum[kind]++;
    recent->slots[recent->current][kind]++;
}

/* Returns the number of events of `kind` in the window that ends at `now_us`. */
static inline uint32_t recent_count(struct recent *recent, unsigned kind, uint64_t now_us)
{
    if (now_us >= recent->ends_us)
        recent_advance(recent, now_us);
    return recent->sum[kind];
}

#endif
