/* recent.h - counts events of a few kinds over a sliding window, in constant memory.
 *
 * The window is cut into RECENT_SLOTS slots. The oldest slot is dropped as a whole, so a sum covers between nine and
 * ten tenths of the window. */
#ifndef WEIR_BASE_RECENT_H
#define WEIR_BASE_RECENT_H

#include <stdint.h>

enum { RECENT_SLOTS = 10, RECENT_KINDS = 2 };

struct recent {
    uint64_t slot_us; /* length of a slot */
    uint64_t ends_us; /* end of the current slot, monotonic */
    unsigned current; /* slot */
    uint32_t sum[RECENT_KINDS];
    uint32_t slots[RECENT_SLOTS][RECENT_KINDS];
};

/* Empty, with a window of `window_us`, at least RECENT_SLOTS. */
void recent_init(struct recent *recent, uint64_t window_us);

/* Drops the slots that have left the window by `now_us`. */
void recent_advance(struct recent *recent, uint64_t now_us);

/* Counts one event of `kind` (below RECENT_KINDS) at `now_us` (monotonic). */
static inline void recent_add(struct recent *recent, unsigned kind, uint64_t now_us)
{
    if (now_us >= recent->ends_us)
        recent_advance(recent, now_us);
    recent->sum[kind]++;
    recent->slots[recent->current][kind]++;
}

/* Events of `kind` within the window that ends at `now_us`. */
static inline uint32_t recent_count(struct recent *recent, unsigned kind, uint64_t now_us)
{
    if (now_us >= recent->ends_us)
        recent_advance(recent, now_us);
    return recent->sum[kind];
}

#endif
