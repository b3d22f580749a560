#include "admin/recent_counts.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    COPY_EVERY_US = 5000000,
    USUAL_RESPONSES = 100 /* so many responses show what is usual for a server */
};

struct server_counts {
    bool left_out; /* the policy did not have the server */
    uint64_t all, failed;
    uint64_t first[ROW_HISTOGRAM_BUCKETS + 1];
};

struct copy {
    struct metric_requests requests;
    uint64_t decisions, late;
    uint64_t redis[HISTOGRAM_BUCKETS + 1];
    uint64_t lost_lines;
    unsigned server_count;
    struct server_counts *servers; /* by row; later rows began at 0 */
};

struct recent_counts {
    uint64_t copied_us; /* when `newer` was made */
    struct copy older, newer;
};

/* --- The counters now ------------------------------------------------------------------------- */

static void read_redis(const struct admin_view *view, struct copy *copy)
{
    for (unsigned w = 0; w < view->worker_count; w++) {
        const struct limiter_stats *stats = worker_limiter_stats(view->workers[w]);
        copy->decisions += counter_read(&stats->redis_requests);
        copy->late += counter_read(&stats->redis_failures[REDIS_FAILURE_TIMEOUT]);
        histogram_add_to(&stats->redis_latency, copy->redis);
    }
}

static struct server_counts count_server(const struct admin_view *view, unsigned row)
{
    struct server_counts counts = {0};

    for (unsigned i = 0; i < SERVER_CLASSES; i++)
        counts.all += metric_row_sum(view, TABLE_SERVERS, row, SERVER_RESPONSES + i);
    counts.failed =
        metric_row_sum(view, TABLE_SERVERS, row, SERVER_RESPONSES + SERVER_CLASSES - 1); /* 5xx */
    for (unsigned i = 0; i < SERVER_ERROR_COUNT; i++) {
        uint64_t n = metric_row_sum(view, TABLE_SERVERS, row, SERVER_ERROR_FIRST + i);
        counts.all += n;
        counts.failed += n;
    }
    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        counts.first[i] = metric_row_sum(view, TABLE_SERVER_FIRST, row, i);
    return counts;
}

/* Without memory, the copy has no servers: nothing is reported of them until the next one. */
static void copy_counts(const struct admin_view *view, struct copy *copy)
{
    *copy = (struct copy){.requests = metric_requests(view), .lost_lines = log_dropped()};
    read_redis(view, copy);
    copy->servers = calloc(view->names[NAMES_SERVERS].count + 1, sizeof *copy->servers);
    if (!copy->servers)
        return;
    copy->server_count = view->names[NAMES_SERVERS].count;
    for (unsigned row = 0; row < copy->server_count; row++)
        if (metric_row_is_shown(view, NAMES_SERVERS, row))
            copy->servers[row] = count_server(view, row);
        else
            copy->servers[row].left_out = true;
}

/* --- The copies ------------------------------------------------------------------------------- */

struct recent_counts *recent_counts_new(const struct admin_view *view)
{
    struct recent_counts *recent = calloc(1, sizeof *recent);

    if (!recent)
        return NULL;
    recent->copied_us = clock_us();
    copy_counts(view, &recent->older);
    copy_counts(view, &recent->newer);
    return recent;
}

void recent_counts_free(struct recent_counts *recent)
{
    if (!recent)
        return;
    free(recent->older.servers);
    free(recent->newer.servers);
    free(recent);
}

void recent_counts_update(struct recent_counts *recent, const struct admin_view *view)
{
    uint64_t now_us = clock_us();

    if (now_us - recent->copied_us < COPY_EVERY_US)
        return;
    free(recent->older.servers);
    recent->older = recent->newer;
    copy_counts(view, &recent->newer);
    recent->copied_us = now_us;
}

/* --- The differences -------------------------------------------------------------------------- */

static double usual_seconds(const struct server_counts *before)
{
    uint64_t responses = 0;

    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        responses += before->first[i];
    return responses < USUAL_RESPONSES ? 0
                                       : percentile_seconds(before->first, row_histogram_bounds_us,
                                                            ROW_HISTOGRAM_BUCKETS, 0.5);
}

struct recent_server recent_of_server(const struct recent_counts *recent,
                                      const struct admin_view *view, unsigned row)
{
    const struct copy *older = &recent->older;
    struct server_counts now = count_server(view, row), before = {.left_out = false};

    if (!older->servers || (row < older->server_count && older->servers[row].left_out))
        return (struct recent_server){0, 0, -1, 0};
    if (row < older->server_count)
        before = older->servers[row];
    for (unsigned i = 0; i <= ROW_HISTOGRAM_BUCKETS; i++)
        now.first[i] -= before.first[i];
    return (struct recent_server){
        .all = now.all - before.all,
        .failed = now.failed - before.failed,
        .first_seconds =
            percentile_seconds(now.first, row_histogram_bounds_us, ROW_HISTOGRAM_BUCKETS, 0.5),
        .usual_seconds = usual_seconds(&before)};
}

struct metric_requests recent_requests(const struct recent_counts *recent,
                                       const struct admin_view *view)
{
    struct metric_requests now = metric_requests(view), before = recent->older.requests;
    return (struct metric_requests){now.all - before.all, now.rejected - before.rejected};
}

struct recent_decisions recent_decisions(const struct recent_counts *recent,
                                         const struct admin_view *view)
{
    const struct copy *older = &recent->older;
    struct copy now = {.decisions = 0};

    read_redis(view, &now);
    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++)
        now.redis[i] -= older->redis[i];
    return (struct recent_decisions){.all = now.decisions - older->decisions,
                                     .late = now.late - older->late,
                                     .worst_seconds = percentile_seconds(
                                         now.redis, histogram_bounds_us, HISTOGRAM_BUCKETS, 0.99)};
}

uint64_t recent_lost_lines(const struct recent_counts *recent)
{
    return log_dropped() - recent->older.lost_lines;
}
