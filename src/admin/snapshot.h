/* snapshot.h - one event of /api/v1/events: the state of the process, with rates and percentiles of
 * the time since the snapshot before. */
#ifndef WEIR_ADMIN_SNAPSHOT_H
#define WEIR_ADMIN_SNAPSHOT_H

#include "admin/metrics.h"

enum {
    SNAPSHOT_RULES_MAX = 200,      /* in the policy's order; the rest is summed up in "decisions" */
    SNAPSHOT_RATE_LIMITS_MAX = 20, /* the busiest `rate_limit` of descriptors; /metrics has all */
    SNAPSHOT_SERVERS_MAX = 200,    /* likewise; the API status has all */
    SNAPSHOT_TOP = 20
};

/* The counts of the snapshot before. */
struct snapshot_history;

/* NULL: no memory. */
struct snapshot_history *snapshot_history_new(void);
void snapshot_history_free(struct snapshot_history *history);
/* Forgets the snapshot before: the next one has no rates. Call when the policy changes. */
void snapshot_history_clear(struct snapshot_history *history);

/* Writes one line of JSON, by json_writer_growing(). Rates are null in the first snapshot.
 * Percentiles are those of the histograms in /metrics (percentile_seconds()). */
void snapshot_write(struct text *out, const struct admin_view *view,
                    struct snapshot_history *history);

#endif
