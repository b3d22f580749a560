/* row_histogram.h - a coarse histogram in one row of a counter table: few buckets, since there is
 * one histogram for each name. One writer, any number of readers. */
#ifndef WEIR_BASE_ROW_HISTOGRAM_H
#define WEIR_BASE_ROW_HISTOGRAM_H

#include "base/counter_table.h"

/* Columns of a row: a bucket for each bound, one for values above the last, and the sum. */
enum { ROW_HISTOGRAM_BUCKETS = 14, ROW_HISTOGRAM_SUM = ROW_HISTOGRAM_BUCKETS + 1 };

/* Upper bounds in microseconds. */
extern const uint64_t row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS];

static inline void row_histogram_add(counter_t *row, uint64_t value_us)
{
    unsigned i = bucket_of(row_histogram_bounds_us, ROW_HISTOGRAM_BUCKETS, value_us);

    counter_add(&row[i], 1);
    counter_add(&row[ROW_HISTOGRAM_SUM], value_us);
}

#endif
