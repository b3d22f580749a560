#include "replay/replay_search.h"

#include <stdlib.h>

#include "base/memory.h"
#include "replay/replay_policy.h"

static const double left_out = 0.01;  /* the largest share of clients that a value may limit */
static const double precision = 1.03; /* of the largest to the smallest possible value */
enum { STEP = 4, MEDIANS = 10 /* more requests than so many medians: left out */ };

struct search_limit {
    struct limit_numbers written; /* in the policy */
    bool has_burst;
    int64_t next;                  /* value to try; 0: the search is over */
    int64_t too_small;             /* largest value tried that limits a client; 0: none */
    int64_t enough;                /* smallest value tried that does not; 0: none */
    uint64_t most;                 /* clients with more requests are left out */
    struct limit_suggestion found; /* with `enough` */
};

/* The next value between the bounds, or beyond them while one is unknown. */
static int64_t next_value(const struct search_limit *s)
{
    int64_t most = s->written.limit > SMALL_LIMIT_MAX ? LIMIT_MAX : SMALL_LIMIT_MAX;

    if (!s->enough)
        return s->too_small >= most ? 0 : s->too_small * STEP < most ? s->too_small * STEP : most;
    if (s->enough == 1 || s->enough - s->too_small <= 1 ||
        (s->too_small && (double)s->enough / (double)s->too_small < precision))
        return 0;
    if (!s->too_small)
        return s->enough / STEP ? s->enough / STEP : 1;
    return s->too_small + (s->enough - s->too_small) / 2;
}

static int descending(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one < other) - (one > other);
}

/* Returns the number of requests from which on a client is left out: see replay_search.h. */
static uint64_t most_requests(const struct replay_clients *seen)
{
    uint64_t *counts = xcalloc(seen->used + 1, sizeof *counts);
    size_t used = 0, out = (size_t)((double)seen->used * left_out);

    for (size_t i = 0; i < seen->capacity; i++)
        if (seen->slots[i].count)
            counts[used++] = seen->slots[i].count;
    qsort(counts, used, sizeof *counts, descending);
    uint64_t by_median = used ? counts[used / 2] * MEDIANS : 0;
    uint64_t by_share = used ? counts[out < used ? out : used - 1] : 0;
    free(counts);
    return by_median > by_share ? by_median : by_share;
}

/* Returns whether the limit rejects a client that is not left out. Rejections of clients that the
 * table has no room for count. */
static bool limits_a_client(const struct limit_stats *tried, uint64_t most)
{
    const struct replay_clients *rejected = &tried->clients;

    for (size_t i = 0; i < rejected->capacity; i++) {
        const struct client_count *one = &rejected->slots[i];
        if (one->count && replay_clients_count(&tried->seen, one->hash) <= most)
            return true;
    }
    return rejected->beyond > 0;
}

void replay_search_init(struct replay_search *search, const struct policy *policy,
                        const struct replay_stats *stats)
{
    search->count = policy->limit_count;
    search->limits = xcalloc(search->count + 1, sizeof *search->limits);
    for (unsigned i = 0; i < search->count; i++) {
        search->limits[i].written = limit_numbers_of(&policy->limits[i]);
        search->limits[i].has_burst = policy->limits[i].kind == LIMIT_BUCKET;
        search->limits[i].next = stats->limits[i].applied ? policy->limits[i].limit : 0;
        search->limits[i].most = most_requests(&stats->limits[i].seen);
    }
}

void replay_search_free(struct replay_search *search)
{
    free(search->limits);
}

bool replay_search_continues(const struct replay_search *search)
{
    for (unsigned i = 0; i < search->count; i++)
        if (search->limits[i].next)
            return true;
    return false;
}

void replay_search_apply(const struct replay_search *search, struct policy *policy)
{
    for (unsigned i = 0; i < search->count; i++) {
        const struct search_limit *s = &search->limits[i];
        int64_t value = s->next ? s->next : s->enough ? s->enough : s->written.limit;
        replay_policy_try(policy, i, (double)value / (double)s->written.limit);
    }
}

/* Returns the burst that was tried with the value. */
static int64_t tried_burst(const struct search_limit *s)
{
    struct limit_numbers numbers = s->written;

    if (!s->has_burst)
        return 0;
    limit_numbers_scale(&numbers, (double)s->next / (double)numbers.limit);
    return numbers.burst;
}

/* Notes what the value does, for the report. */
static void note_result(struct search_limit *s, const struct limit_stats *tried)
{
    const struct client_count *top[SUGGESTED_CLIENTS_MAX];
    double applied = tried->applied ? (double)tried->applied : 1;

    s->found = (struct limit_suggestion){.limit = s->next,
                                         .burst = tried_burst(s),
                                         .share = 100.0 * (double)tried->rejected / applied,
                                         .limited = tried->clients.used,
                                         .clients = tried->seen.used};
    s->found.named = replay_clients_top(&tried->clients, top, SUGGESTED_CLIENTS_MAX);
    for (unsigned i = 0; i < s->found.named; i++)
        memcpy(s->found.names[i], top[i]->name, strlen(top[i]->name) + 1);
}

void replay_search_learn(struct replay_search *search, const struct replay_stats *stats)
{
    for (unsigned i = 0; i < search->count; i++) {
        struct search_limit *s = &search->limits[i];
        if (!s->next)
            continue;
        if (limits_a_client(&stats->limits[i], s->most)) {
            s->too_small = s->next;
        } else {
            s->enough = s->next;
            note_result(s, &stats->limits[i]);
        }
        s->next = next_value(s);
    }
}

struct limit_suggestion *replay_search_result(const struct replay_search *search)
{
    struct limit_suggestion *suggestions = xcalloc(search->count + 1, sizeof *suggestions);

    for (unsigned i = 0; i < search->count; i++)
        suggestions[i] = search->limits[i].found;
    return suggestions;
}
