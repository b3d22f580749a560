/* top_keys.h - the most frequent keys of the last minute, in bounded memory.
 *
 * Space-Saving: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements
 * in Data Streams", 2005. A summary holds m counters. A key without a counter takes over the
 * smallest one and keeps its count as possible error. So:
 *
 *     count - error <= true count <= count,   and the smallest counter is at most total / m.
 *
 * Two changes keep an addition short and the counts recent:
 * - A slice (TOP_SLICE_US of time) has TOP_SETS independent summaries of TOP_WAYS counters. A keyed
 *   hash assigns a key to one of them, where the bound holds for the keys of that summary.
 * - TOP_SLICES slices in a ring cover the last minute and the current slice.
 *
 * One thread adds; any thread may read at the same time: each counter has a version that is odd
 * while its key changes (a seqlock). */
#ifndef WEIR_BASE_TOP_KEYS_H
#define WEIR_BASE_TOP_KEYS_H

#include <stdint.h>

#include "base/macros.h"
#include "base/slice.h"

enum { TOP_WAYS = 8, TOP_SETS = 32, TOP_SLICES = 7, TOP_SLICE_US = 10000000 };
enum { TOP_KEY_MAX = 272 }; /* bytes */

struct top_keys;

/* NULL: no memory. About 0.5 MiB, of which only the used parts become resident. */
struct top_keys *top_keys_new(void);
void top_keys_free(struct top_keys *top);

/* Adds `amount` to the key of at most TOP_KEY_MAX bytes. `now_us`: monotonic; a time before the
 * current slice counts in the current one. Owner's thread only. */
void top_keys_add(struct top_keys *top, uint64_t now_us, struct slice key, uint64_t amount);

/* A key with bounds of its count: at_least <= true count <= at_most. */
struct top_entry {
    uint64_t at_least, at_most;
    size_t size;
    char key[TOP_KEY_MAX];
};

/* Merges `count` tables of the same process. Writes the keys with the largest at_least, at most
 * `n`, largest first, and returns their number. `*seconds` is the time that the counts cover.
 * Callable from any thread. 0 if out of memory. */
MUST_CHECK unsigned top_keys_read(struct top_keys *const *tops, unsigned count, uint64_t now_us,
                                  struct top_entry *entries, unsigned n, double *seconds);

#endif
