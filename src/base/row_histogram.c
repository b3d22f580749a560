#include "base/row_histogram.h"

_Static_assert((int)ROW_HISTOGRAM_SUM < (int)COUNTER_TABLE_COLUMNS, "a row holds the histogram");

const uint64_t row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS] = {
    100,    1000,   5000,    10000,   25000,   50000,   100000,
    250000, 500000, 1000000, 2000000, 2500000, 5000000, 10000000};
