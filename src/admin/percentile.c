#include "admin/percentile.h"

double percentile_seconds(const uint64_t *counts, const uint64_t *bounds_us, unsigned buckets,
                          double share)
{
    uint64_t total = 0;
    double below = 0;

    for (unsigned i = 0; i <= buckets; i++)
        total += counts[i];
    if (!total)
        return -1;
    double rank = share * (double)total;
    for (unsigned i = 0; i < buckets; i++) {
        double count = (double)counts[i], low = i ? (double)bounds_us[i - 1] : 0;
        if (count > 0 && below + count >= rank)
            return (low + ((double)bounds_us[i] - low) * (rank - below) / count) / 1e6;
        below += count;
    }
    return (double)bounds_us[buckets - 1] / 1e6;
}
