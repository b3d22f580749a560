#include "base/histogram.h"

/* Neighbours differ by a factor of 1.25 to 3, so that an interpolated percentile is off by no
 * more. */
const uint64_t histogram_bounds_us[HISTOGRAM_BUCKETS] = {
    50,      100,     200,     300,     500,     1000,    2000,     3000,
    5000,    7500,    10000,   15000,   20000,   30000,   50000,    75000,
    100000,  150000,  200000,  300000,  500000,  750000,  1000000,  1500000,
    2000000, 2500000, 3000000, 4000000, 5000000, 7500000, 10000000, 30000000};
