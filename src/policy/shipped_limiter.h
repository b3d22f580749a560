/* shipped_limiter.h - the limiters in lua/, one table row each. To ship another one: its file in
 * lua/, a row here, its section in docs/limiters.md, its model in tests/lua. */
#ifndef WEIR_POLICY_SHIPPED_LIMITER_H
#define WEIR_POLICY_SHIPPED_LIMITER_H

#include "policy/limit.h"

/* How a limiter writes limit, period and burst at the end of its states. */
enum state_end {
    STATE_END_NONE,
    STATE_END_FIELDS, /* ":0:02:LIMIT:PERIOD:BURST" */
    STATE_END_DIGITS, /* one row of 13, 14 and 13 digits */
};

/* With STATE_END_DIGITS, numbers from this one on end a state in another form, which only the
 * script writes (lua/token_bucket.lua). */
#define STATE_DIGITS INT64_C(9999999999999)

/* Option of a shipped limiter. In a policy it is limits.NAME.OPTION, which has a row with its help
 * text in config/options_limits.c; with `nested`, it is limits.NAME.options.OPTION. */
struct limiter_option {
    const char *name;
    enum script_option_kind kind; /* OPTION_NUMBER or OPTION_DURATION */
    int64_t low, high;            /* durations in µs */
    int64_t fallback;             /* the default; 0, as a default or as written: nil */
    bool nested;
};

struct shipped_limiter {
    const char *name; /* the file lua/NAME.lua */
    /* The family: whether there is a burst, how refunds find their charge, and what counts while
     * Redis is away (limit/fallback.c). */
    enum limit_kind kind;
    bool leases;              /* a unit may be used later than it was charged */
    bool counts_large;        /* limits, bursts and costs up to LIMIT_MAX */
    bool aligns;              /* options align, offset and time_zone */
    enum state_end state_end; /* how its states end */
    bool keeps_charges;       /* its states contain each charge */
    bool tells_next;          /* returns the time until more units are available */
    struct limiter_option options[LIMIT_OPTIONS_MAX]; /* passed to the script in this order */
};

/* Returns the number of options. */
unsigned limiter_option_count(const struct shipped_limiter *limiter);

/* Returns the option with this name, or NULL. */
const struct limiter_option *limiter_option(const struct shipped_limiter *limiter,
                                            struct slice name);

/* Returns the row of a limiter, or NULL. */
const struct shipped_limiter *shipped_limiter(struct slice name);

/* Returns the limiter at `index`, or NULL after the last one. */
const struct shipped_limiter *shipped_limiter_at(unsigned index);

/* Returns true if the limit, its burst and its costs may be larger than SMALL_LIMIT_MAX. */
static inline bool limit_counts_large(const struct limit *limit)
{
    return limit->shipped && limit->shipped->counts_large;
}

/* Returns a client's quota as a number of this limit: at most what it counts to. */
static inline int64_t limit_bounded(const struct limit *limit, int64_t quota)
{
    return quota > SMALL_LIMIT_MAX && !limit_counts_large(limit) ? SMALL_LIMIT_MAX : quota;
}

/* Returns true if the limit's script returns the time until more units are available. */
static inline bool limit_tells_next(const struct limit *limit)
{
    return limit->shipped && limit->shipped->tells_next;
}

/* Returns true if the limit's script is shipped and reads this option of the limit. */
bool shipped_limiter_takes(const void *limit, const char *option);

/* Sets the members of the limit that repeat options of its shipped limiter for C: max_delay_us and
 * rest_us. Call it after the options or the period have changed. */
void limit_copy_options(struct limit *limit);

/* Writes all names to `out`. Returns true if `name` is one of them. */
struct script_names {
    char text[256];
};
bool script_names(struct slice name, struct script_names *out);

#endif
