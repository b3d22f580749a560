#include "base/histogram.h"

/* 1-2-5 steps in the range of decisions and local upstreams, coarser above. */
const uint64_t histogram_bounds_us[HISTOGRAM_BUCKETS] = {
    50,    100,   200,    300,    500,    1000,    2000,    3000,    5000,     10000,
    20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000, 10000000, 30000000};

void histogram_add(struct histogram *histogram, uint64_t value_us)
{
    unsigned i = 0;
    while (i < HISTOGRAM_BUCKETS && value_us > histogram_bounds_us[i])
        i++;
    counter_add(&histogram->bucket[i], 1);
    counter_add(&histogram->sum_us, value_us);
}
