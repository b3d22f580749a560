#include <stdlib.h>

#include "admin/snapshot_parts.h"

/* Counters are stored in the order in which a snapshot reads them, which depends on the policy
 * alone. */
struct snapshot_history {
    uint64_t at_us; /* of the snapshot before; 0: none */
    uint64_t *counts;
    size_t room, used, read;
    uint64_t latencies[SNAPSHOT_LATENCIES][HISTOGRAM_BUCKETS + 1];
};

struct snapshot_history *snapshot_history_new(void)
{
    return calloc(1, sizeof(struct snapshot_history));
}

void snapshot_history_free(struct snapshot_history *history)
{
    if (!history)
        return;
    free(history->counts);
    free(history);
}

void snapshot_history_clear(struct snapshot_history *history)
{
    history->at_us = 0;
    history->used = 0;
}

double snapshot_history_begin(struct snapshot_history *history, uint64_t now_us)
{
    history->read = 0;
    return history->at_us ? (double)(now_us - history->at_us) / 1e6 : 0;
}

void snapshot_history_end(struct snapshot_history *history, uint64_t now_us)
{
    history->used = history->read < history->room ? history->read : history->room;
    history->at_us = now_us;
}

/* --- Counters and rates ----------------------------------------------------------------------- */

int64_t snapshot_increase(struct snapshot_history *history, uint64_t total)
{
    size_t i = history->read++;
    int64_t more = i < history->used ? (int64_t)(total - history->counts[i]) : -1;

    if (i == history->room) {
        size_t room = history->room ? 2 * history->room : 256;
        uint64_t *counts = realloc(history->counts, room * sizeof *counts);
        if (!counts)
            return -1;
        history->counts = counts;
        history->room = room;
    }
    history->counts[i] = total;
    return more;
}

void snapshot_put_counter(struct snapshot *s, const char *key, uint64_t total, int64_t more)
{
    json_begin(&s->json, key, '{');
    json_put_u64(&s->json, "total", total);
    if (more < 0 || s->interval_s <= 0)
        json_put_null(&s->json, "per_second");
    else
        json_put_number(&s->json, "per_second", (double)more / s->interval_s);
    json_end(&s->json, '}');
}

void snapshot_counter(struct snapshot *s, const char *key, uint64_t total)
{
    snapshot_put_counter(s, key, total, snapshot_increase(s->history, total));
}

/* --- Percentiles ------------------------------------------------------------------------------ */

static void put_percentile(struct snapshot *s, const char *key, double seconds)
{
    if (seconds < 0)
        json_put_null(&s->json, key);
    else
        json_put_number(&s->json, key, seconds);
}

void snapshot_percentiles(struct snapshot *s, const char *key, const uint64_t *counts,
                          const uint64_t *bounds_us, unsigned buckets)
{
    uint64_t total = 0;

    for (unsigned i = 0; i <= buckets; i++)
        total += counts[i];
    json_begin(&s->json, key, '{');
    put_percentile(s, "p50_seconds", percentile_seconds(counts, bounds_us, buckets, 0.5));
    put_percentile(s, "p99_seconds", percentile_seconds(counts, bounds_us, buckets, 0.99));
    json_put_u64(&s->json, "count", total);
    json_end(&s->json, '}');
}

static const struct histogram *histogram_of(const struct worker *worker,
                                            enum snapshot_latency latency)
{
    switch (latency) {
    case SNAPSHOT_REQUESTS: return &worker_stats(worker)->request_duration;
    case SNAPSHOT_UPSTREAM: return &worker_stats(worker)->upstream_latency;
    case SNAPSHOT_UPSTREAM_TOTAL: return &worker_stats(worker)->upstream_total;
    case SNAPSHOT_REDIS: return &worker_limiter_stats(worker)->redis_latency;
    default: return &worker_stats(worker)->service_duration;
    }
}

void snapshot_latency(struct snapshot *s, const char *key, enum snapshot_latency latency)
{
    uint64_t *before = s->history->latencies[latency], counts[HISTOGRAM_BUCKETS + 1],
             now[HISTOGRAM_BUCKETS + 1] = {0};

    for (unsigned w = 0; w < s->view->worker_count; w++)
        histogram_add_to(histogram_of(s->view->workers[w], latency), now);
    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++) {
        counts[i] = s->interval_s > 0 ? now[i] - before[i] : 0;
        before[i] = now[i];
    }
    snapshot_percentiles(s, key, counts, histogram_bounds_us, HISTOGRAM_BUCKETS);
}
