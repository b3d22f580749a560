/* limiter_stats.h - the counters of one worker's limiters. */
#ifndef WEIR_LIMIT_LIMITER_STATS_H
#define WEIR_LIMIT_LIMITER_STATS_H

#include "base/clock.h"
#include "base/counter_table.h"
#include "base/metric.h"
#include "limit/decision.h"
#include "redis/failure.h"

/* Columns of by_limit after the verdicts: requests for which the limit's own script failed,
 * requests of such limits that timed out, admitted requests that left less than limit->near, and
 * units that requests have cost in a limit with a cost of its own. */
enum {
    SCRIPT_FAILED_COLUMN = VERDICT_COUNT,
    SCRIPT_LATE_COLUMN,
    NEAR_COLUMN,
    UNITS_COLUMN,
    LIMIT_COLUMNS
};
_Static_assert(LIMIT_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row has room for all");

/* clang-format off: a row per metric; see base/metric.h */
#define LIMITER_METRICS(ONE, EACH, TIMES)                                                          \
    EACH(redis_failures, REDIS_FAILURE_COUNT, 0, "cause", redis_failure_label,                     \
         "weir_redis_errors_total",                                                                \
         "Decisions made by on_failure because Redis did not decide, by cause.")                   \
    TIMES(redis_latency, "weir_redis_latency_seconds",                                             \
          "Time from the start of a decision to the reply of Redis.")                              \
    ONE(redis_calls, "counter", "weir_redis_calls_total",                                          \
        "Script calls sent to Redis; one call contains all decisions of an event loop iteration.") \
    ONE(redis_requests, "counter", "weir_redis_decisions_total",                                   \
        "Requests sent to Redis in script calls, also those of failed calls.")                     \
    ONE(remembered_denials, "counter", "weir_remembered_denials_total",                            \
        "Rejections from a remembered denial, without a call to Redis.")
/* clang-format on */

/* Counters of one worker's limiters. Written by that worker only; any thread may read (relaxed). */
struct limiter_stats {
    LIMITER_METRICS(METRIC_ONE, METRIC_EACH, METRIC_TIMES)
    counter_t clock_ahead_us, clock_noted_us;         /* see limiter_stats_clock_ahead() */
    counter_t lease_used, lease_returned, lease_lost; /* units; one decision uses one unit */
    counter_t lease_taken; /* units taken: used + returned + lost + currently held */
    struct counter_table
        by_limit; /* by limit->row and verdict; the caller has reserved the policy's rows */
};

/* Notes the times of Redis and of this machine, in Unix µs. */
static inline void limiter_stats_note_clock(struct limiter_stats *stats, int64_t redis_us,
                                            uint64_t here_us)
{
    atomic_store_explicit(&stats->clock_ahead_us, (uint64_t)redis_us - here_us,
                          memory_order_relaxed);
    atomic_store_explicit(&stats->clock_noted_us, clock_cached_us(), memory_order_relaxed);
}

/* Returns how far the clock of Redis was ahead of this machine's at the last reply, in µs; less
 * than 0: behind. 0: there was no reply within the last minute. */
enum { CLOCK_NOTED_US = 60 * 1000000 };
static inline int64_t limiter_stats_clock_ahead(const struct limiter_stats *stats)
{
    bool is_old = clock_us() > counter_read(&stats->clock_noted_us) + CLOCK_NOTED_US;
    return is_old ? 0 : (int64_t)counter_read(&stats->clock_ahead_us);
}

#endif
