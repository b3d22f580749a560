/* shipped_limiter.c - see shipped_limiter.h. */
#include "policy/shipped_limiter.h"

static const struct shipped_limiter limiters[] = {
    {.name = "token_bucket", .kind = LIMIT_BUCKET, .leases = true, .state_end = STATE_END_DIGITS},
    {.name = "leaky_bucket",
     .kind = LIMIT_BUCKET,
     .leases = true,
     .state_end = STATE_END_FIELDS,
     .option = "max_delay"},
    {.name = "gcra", .kind = LIMIT_BUCKET, .leases = true, .state_end = STATE_END_FIELDS},
    {.name = "fixed_window", .kind = LIMIT_WINDOW, .leases = true, .aligns = true},
    {.name = "rolling_window", .kind = LIMIT_WINDOW, .option = "buckets", .tells_next = true},
    {.name = "sliding_window_log", .kind = LIMIT_WINDOW, .keeps_charges = true, .tells_next = true},
    {.name = "sliding_window_counter", .kind = LIMIT_WINDOW, .tells_next = true},
    {.name = "lockout", .kind = LIMIT_WINDOW, .rest = "rest"},
    {.name = "concurrency", .kind = LIMIT_CONCURRENCY},
};

const struct shipped_limiter *shipped_limiter_at(unsigned index)
{
    return index < sizeof limiters / sizeof limiters[0] ? &limiters[index] : NULL;
}

const struct shipped_limiter *shipped_limiter(struct slice name)
{
    const struct shipped_limiter *limiter;

    for (unsigned i = 0; (limiter = shipped_limiter_at(i)); i++)
        if (slice_equal(name, slice_of(limiter->name)))
            return limiter;
    return NULL;
}

bool shipped_limiter_takes(const struct limit *limit, const char *option)
{
    return limit->shipped && limit->shipped->option && strcmp(limit->shipped->option, option) == 0;
}

bool script_names(struct slice name, struct script_names *out)
{
    struct text t = text_over(out->text, sizeof out->text - 1);
    const struct shipped_limiter *limiter;

    for (unsigned i = 0; (limiter = shipped_limiter_at(i)); i++) {
        text_put(&t, i ? SLICE(", ") : SLICE_NONE);
        text_put(&t, slice_of(limiter->name));
    }
    out->text[t.n] = 0;
    return shipped_limiter(name) != NULL;
}
