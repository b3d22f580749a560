#include "replay/replay_search.h"

#include <stdlib.h>

#include "base/memory.h"
#include "replay/replay_policy.h"

static const double wanted_share = 0.1; /* percent */
static const double precision = 1.03;   /* of the largest to the smallest possible value */
enum { STEP = 4 };

struct search_limit {
    int64_t written;   /* value in the policy */
    int64_t next;      /* value to try; 0: the search is over */
    int64_t too_small; /* largest value tried that rejects more; 0: none */
    int64_t enough;    /* smallest value tried that does not; 0: none */
    double share;      /* rejected with `enough`, in percent */
};

/* The next value between the bounds, or beyond them while one is unknown. */
static int64_t next_value(const struct search_limit *s)
{
    int64_t most = s->written > SMALL_LIMIT_MAX ? LIMIT_MAX : SMALL_LIMIT_MAX;

    if (!s->enough)
        return s->too_small >= most ? 0 : s->too_small * STEP < most ? s->too_small * STEP : most;
    if (s->enough == 1 || s->enough - s->too_small <= 1 ||
        (s->too_small && (double)s->enough / (double)s->too_small < precision))
        return 0;
    if (!s->too_small)
        return s->enough / STEP ? s->enough / STEP : 1;
    return s->too_small + (s->enough - s->too_small) / 2;
}

void replay_search_init(struct replay_search *search, const struct policy *policy,
                        const struct replay_stats *stats)
{
    search->count = policy->limit_count;
    search->limits = xcalloc(search->count + 1, sizeof *search->limits);
    for (unsigned i = 0; i < search->count; i++) {
        search->limits[i].written = policy->limits[i].limit;
        search->limits[i].next = stats->limits[i].applied ? policy->limits[i].limit : 0;
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
        int64_t value = s->next ? s->next : s->enough ? s->enough : s->written;
        replay_policy_try(policy, i, (double)value / (double)s->written);
    }
}

void replay_search_learn(struct replay_search *search, const struct replay_stats *stats)
{
    for (unsigned i = 0; i < search->count; i++) {
        struct search_limit *s = &search->limits[i];
        const struct limit_stats *tried = &stats->limits[i];
        if (!s->next)
            continue;
        double share =
            tried->applied ? 100.0 * (double)tried->rejected / (double)tried->applied : 0;
        if (share > wanted_share) {
            s->too_small = s->next;
        } else {
            s->enough = s->next;
            s->share = share;
        }
        s->next = next_value(s);
    }
}

struct limit_suggestion *replay_search_result(const struct replay_search *search)
{
    struct limit_suggestion *suggestions = xcalloc(search->count + 1, sizeof *suggestions);

    for (unsigned i = 0; i < search->count; i++)
        suggestions[i] = (struct limit_suggestion){.limit = search->limits[i].enough,
                                                   .share = search->limits[i].share};
    return suggestions;
}
