/* snapshot_parts.h - the parts of a snapshot, and what they share: counters with their rates, and
 * percentiles. */
#ifndef WEIR_ADMIN_SNAPSHOT_PARTS_H
#define WEIR_ADMIN_SNAPSHOT_PARTS_H

#include "admin/snapshot.h"
#include "base/json_writer.h"

/* The histograms that a snapshot reads. */
enum snapshot_latency {
    SNAPSHOT_REQUESTS,
    SNAPSHOT_UPSTREAM,
    SNAPSHOT_UPSTREAM_TOTAL,
    SNAPSHOT_REDIS,
    SNAPSHOT_CALLS,
    SNAPSHOT_LATENCIES
};

/* A snapshot while it is written. */
struct snapshot {
    struct json_writer json;
    const struct admin_view *view;
    struct snapshot_history *history;
    double interval_s; /* 0: no snapshot before */
};

/* --- snapshot_counts.c --- */

/* Stores the counter for the next snapshot. Returns its increase, or -1 if it was not stored. The
 * order of the calls must depend on the policy alone. */
int64_t snapshot_increase(struct snapshot_history *history, uint64_t total);
/* Writes "key":{"total":N,"per_second":R}. `more`: the result of snapshot_increase(). */
void snapshot_put_counter(struct snapshot *s, const char *key, uint64_t total, int64_t more);
/* Both. */
void snapshot_counter(struct snapshot *s, const char *key, uint64_t total);
/* Writes the percentiles of `buckets` counts, and of one more above the last bound. */
void snapshot_percentiles(struct snapshot *s, const char *key, const uint64_t *counts,
                          const uint64_t *bounds_us, unsigned buckets);
/* Writes the percentiles of the workers' histogram since the snapshot before. */
void snapshot_latency(struct snapshot *s, const char *key, enum snapshot_latency latency);
/* Takes note of the time; call when all counters are read. */
void snapshot_history_end(struct snapshot_history *history, uint64_t now_us);
/* Begins a snapshot. Returns the seconds since the one before; 0: none. */
double snapshot_history_begin(struct snapshot_history *history, uint64_t now_us);

/* --- snapshot_decisions.c: "rules", "priorities" and "limits" --- */
void snapshot_decisions(struct snapshot *s);

/* --- snapshot_servers.c: "servers" --- */
void snapshot_servers(struct snapshot *s);

#endif
