/* percentile.h - percentiles of histograms, as histogram_quantile() of Prometheus has them:
 * interpolated linearly in the bucket that holds them, and at most the last bound. */
#ifndef WEIR_ADMIN_PERCENTILE_H
#define WEIR_ADMIN_PERCENTILE_H

#include <stdint.h>

/* Returns the duration in seconds below which the share of the durations lies; -1: there are none.
 * `counts` has one count per bound, and one more above the last. */
double percentile_seconds(const uint64_t *counts, const uint64_t *bounds_us, unsigned buckets,
                          double share);

#endif
