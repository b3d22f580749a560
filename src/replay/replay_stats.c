#include "replay/replay_stats.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { MINUTE_US = 60000000 };

void replay_stats_init(struct replay_stats *stats, unsigned limit_count)
{
    struct hash_key key = hash_key_random();

    *stats = (struct replay_stats){.limit_count = limit_count};
    stats->limits = xcalloc(limit_count + 1, sizeof *stats->limits);
    replay_clients_init(&stats->rejected_clients, key);
    for (unsigned i = 0; i < limit_count; i++) {
        replay_clients_init(&stats->limits[i].seen, key);
        replay_clients_init(&stats->limits[i].clients, key);
    }
}

void replay_stats_free(struct replay_stats *stats)
{
    for (unsigned i = 0; i < stats->limit_count; i++) {
        replay_clients_free(&stats->limits[i].seen);
        replay_clients_free(&stats->limits[i].clients);
    }
    replay_clients_free(&stats->rejected_clients);
    free(stats->limits);
}

static void write_example(struct replay_example *example, const struct replay_request *request)
{
    example->time_us = request->time_us;
    example->file = request->file;
    example->line = request->line;
    snprintf(example->client, sizeof example->client, "%.*s", SLICE_ARG(request->client));
    snprintf(example->request, sizeof example->request, "%.*s %.*s", SLICE_ARG(request->method),
             SLICE_ARG(request->target));
}

void replay_stats_refuse(struct replay_stats *stats, const struct replay_request *request,
                         const char *why)
{
    stats->requests++;
    if (stats->refused++)
        return;
    write_example(&stats->first_refused, request);
    stats->refused_why = why;
}

static void count_rejected(struct replay_stats *stats, const struct replay_request *request)
{
    stats->rejected++;
    replay_clients_add(&stats->rejected_clients, request->client);
}

void replay_stats_block(struct replay_stats *stats, const struct replay_request *request)
{
    stats->requests++;
    stats->blocked++;
    count_rejected(stats, request);
}

static void count_minute(struct limit_stats *limit, int64_t time_us)
{
    int64_t minute = time_us / MINUTE_US;

    if (minute != limit->minute) {
        limit->minute = minute;
        limit->in_minute = 0;
    }
    if (++limit->in_minute > limit->worst_count) {
        limit->worst_count = limit->in_minute;
        limit->worst_minute = minute;
    }
}

/* Returns true if the limit is enforced for some clients only. */
static bool limit_enforces_share(const struct limit *limit)
{
    return !limit->shadow && limit->enforce > 0;
}

static void count_replayed(struct replay_stats *stats, const struct replay_request *request,
                           const struct decision *decision, const struct limit_result *result)
{
    struct limit_stats *limit = &stats->limits[result->limit->base];
    bool rejects = result->verdict == VERDICT_LIMITED || result->verdict == VERDICT_SHADOW;

    limit->applied++;
    replay_clients_add(&limit->seen, request->client);
    limit->delayed += !rejects && decision->delay_us > 0 && result->limit->max_delay_us > 0;
    if (!rejects)
        return;
    if (result->verdict == VERDICT_SHADOW && limit_enforces_share(result->limit)) {
        limit->spared++;
        return;
    }
    if (limit->rejected++ == 0)
        write_example(&limit->first, request);
    replay_clients_add(&limit->clients, request->client);
    count_minute(limit, request->time_us);
}

void replay_stats_decide(struct replay_stats *stats, const struct replay_request *request,
                         const struct decision *decision)
{
    stats->requests++;
    if (decision_admits(decision)) {
        stats->admitted++;
        stats->unlimited += decision->result_count == 0 || decision->verdict == VERDICT_UNLIMITED;
    } else {
        stats->blocked += decision->verdict == VERDICT_PROHIBITED;
        count_rejected(stats, request);
    }
    if (decision->verdict == VERDICT_FAILED_OPEN || decision->verdict == VERDICT_FAILED_CLOSED)
        stats->failed++;
    for (unsigned i = 0; i < decision->result_count; i++)
        if (decision->verdict != VERDICT_PROHIBITED && decision->verdict != VERDICT_UNLIMITED)
            count_replayed(stats, request, decision, &decision->results[i]);
}
