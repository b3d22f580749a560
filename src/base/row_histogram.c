#include "base/row_histogram.h"

_Static_assert((int)ROW_HISTOGRAM_SUM < (int)COUNTER_TABLE_COLUMNS, "a row holds the histogram");

/* Each is at most 3.4 times the one before: a percentile is interpolated within a bucket. */
const uint64_t row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS] = {
    100,    300,    1000,    3000,    10000,   30000,   100000,
    250000, 500000, 1000000, 2000000, 2500000, 5000000, 10000000};
