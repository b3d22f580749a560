/* shipped_limiter.c - see shipped_limiter.h. */
#include "policy/shipped_limiter.h"

static const struct shipped_limiter limiters[] = {
    {.name = "token_bucket",
     .kind = LIMIT_BUCKET,
     .leases = true,
     .counts_large = true,
     .state_end = STATE_END_DIGITS},
    {.name = "leaky_bucket",
     .kind = LIMIT_BUCKET,
     .leases = true,
     .counts_large = true,
     .state_end = STATE_END_FIELDS,
     .options = {{.name = "max_delay", .kind = OPTION_DURATION, .high = PERIOD_MAX_US}}},
    {.name = "gcra",
     .kind = LIMIT_BUCKET,
     .leases = true,
     .counts_large = true,
     .state_end = STATE_END_FIELDS},
    {.name = "fixed_window",
     .kind = LIMIT_WINDOW,
     .leases = true,
     .counts_large = true,
     .aligns = true},
    {.name = "rolling_window",
     .kind = LIMIT_WINDOW,
     .tells_next = true,
     .options =
         {{.name = "buckets", .kind = OPTION_NUMBER, .low = 2, .high = 100, .fallback = 10}}},
    {.name = "sliding_window_log", .kind = LIMIT_WINDOW, .keeps_charges = true, .tells_next = true},
    {.name = "sliding_window_counter", .kind = LIMIT_WINDOW, .tells_next = true},
    {.name = "lockout",
     .kind = LIMIT_WINDOW,
     .options = {{.name = "rest",
                  .kind = OPTION_DURATION,
                  .low = PERIOD_MIN_US,
                  .high = PERIOD_MAX_US,
                  .nested = true}}},
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

unsigned limiter_option_count(const struct shipped_limiter *limiter)
{
    unsigned count = 0;

    while (count < LIMIT_OPTIONS_MAX && limiter->options[count].name)
        count++;
    return count;
}

const struct limiter_option *limiter_option(const struct shipped_limiter *limiter,
                                            struct slice name)
{
    for (unsigned i = 0; i < limiter_option_count(limiter); i++)
        if (slice_equal(name, slice_of(limiter->options[i].name)))
            return &limiter->options[i];
    return NULL;
}

bool shipped_limiter_takes(const void *limit, const char *option)
{
    const struct shipped_limiter *shipped = ((const struct limit *)limit)->shipped;
    return shipped && limiter_option(shipped, slice_of(option));
}

/* Returns the value of an option; `fallback` if the limiter does not have it, or it has none. */
static int64_t option_value(const struct limit *limit, const char *name, int64_t fallback)
{
    for (unsigned i = 0; limit->shipped && i < limit->option_count; i++)
        if (strcmp(limit->options[i].name, name) == 0 && limit->options[i].kind != OPTION_NONE)
            return limit->options[i].number;
    return fallback;
}

void limit_copy_options(struct limit *limit)
{
    bool rests = shipped_limiter_takes(limit, "rest");

    limit->max_delay_us = option_value(limit, "max_delay", 0);
    limit->rest_us = option_value(limit, "rest", rests ? limit->period_us : 0);
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
