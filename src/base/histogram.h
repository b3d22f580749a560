/* histogram.h - counters and histograms with one writer and any number of readers.
 *
 * The owning thread adds without a locked instruction. Readers see complete values, which may be
 * slightly out of date. */
#ifndef WEIR_BASE_HISTOGRAM_H
#define WEIR_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t counter_t; /* a typedef: an array needs a name for an atomic type */

static inline void counter_add(counter_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

static inline void counter_subtract(counter_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) - amount,
                          memory_order_relaxed);
}

static inline uint64_t counter_read(const counter_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Upper bounds in microseconds. One more bucket counts values above the last bound. */
enum { HISTOGRAM_BUCKETS = 32 };
extern const uint64_t histogram_bounds_us[HISTOGRAM_BUCKETS];

struct histogram {
    counter_t bucket[HISTOGRAM_BUCKETS + 1]; /* not cumulative */
    counter_t sum_us;
};

/* Returns the index of the first bound that `value` does not exceed, or `count`. */
static inline unsigned bucket_of(const uint64_t *bounds, unsigned count, uint64_t value)
{
    unsigned i = 0;

    while (i + 4 <= count && value > bounds[i + 3])
        i += 4;
    while (i < count && value > bounds[i])
        i++;
    return i;
}

static inline void histogram_add(struct histogram *histogram, uint64_t value_us)
{
    unsigned i = bucket_of(histogram_bounds_us, HISTOGRAM_BUCKETS, value_us);

    counter_add(&histogram->bucket[i], 1);
    counter_add(&histogram->sum_us, value_us);
}

/* Adds the counts of the buckets to `counts`, as any thread may. */
static inline void histogram_add_to(const struct histogram *histogram,
                                    uint64_t counts[static HISTOGRAM_BUCKETS + 1])
{
    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++)
        counts[i] += counter_read(&histogram->bucket[i]);
}

#endif
