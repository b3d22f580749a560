/* limit.h - one entry of the section limits, and of the section priorities. */
#ifndef WEIR_POLICY_LIMIT_H
#define WEIR_POLICY_LIMIT_H

#include "base/position.h"
#include "base/text.h"
#include "policy/bounds.h"
#include "policy/limit_cost.h"
#include "policy/redis_settings.h"

enum limit_per {
    PER_CLIENT,
    PER_IP,
    PER_ROUTE,
    PER_METHOD,
    PER_HOST,
    PER_ALL,
    PER_HEADER, /* header:NAME; from here on with a value of the request */
    PER_JSON,   /* json:PATH */
    PER_VALUE   /* jwt, cookie, query, path */
};

struct limit_part {
    enum limit_per per;
    const char *written;          /* "client", "header:X-Team", "jwt:team" */
    const char *name;             /* what follows the colon, in `written`; NULL: nothing */
    const struct json_path *json; /* PER_JSON */
    unsigned value;               /* PER_VALUE: its position in policy->key_sources */
};

enum align { ALIGN_FIRST_REQUEST, ALIGN_CLOCK };

enum limit_kind {
    LIMIT_BUCKET, /* token_bucket, gcra, leaky_bucket */
    LIMIT_WINDOW,
    LIMIT_CUSTOM,
    LIMIT_CONCURRENCY /* requests in flight; units are returned when the request ends */
};

enum { LEASE_AUTO = -1, LEASE_MOST = 100000 };

/* Calendar windows, in local time of limit->zone. Weeks start on Monday (ISO 8601). */
enum calendar { CALENDAR_NONE, CALENDAR_DAY, CALENDAR_WEEK, CALENDAR_MONTH, CALENDAR_YEAR };

enum script_option_kind {
    OPTION_NONE, /* no value: nil */
    OPTION_NUMBER,
    OPTION_DURATION,
    OPTION_BOOL,
    OPTION_TEXT
};

/* Option of a limiter script, shipped or own. */
struct script_option {
    char *name; /* name in the policy, not passed to the script; NULL: none */
    enum script_option_kind kind;
    int64_t number; /* exact as a Lua double; durations in µs, booleans 0 or 1 */
    char *text;
};

struct zone;
struct shipped_limiter; /* policy/shipped_limiter.h */

/* Deduplication of repeated requests. */
struct dedup_settings {
    char *header;    /* header that identifies repeats; NULL: off */
    int64_t repeats; /* uncharged repeats per request before the next charge */
};

/* What limit/header_families.c writes once, for results with these numbers. */
enum { LIMIT_FIELD_PARTS = 4 };
struct limit_fields {
    int64_t quota, capacity;
    struct slice parts[LIMIT_FIELD_PARTS]; /* empty: not written */
};

struct limit {
    /* In policy->limits. A variant's index continues after them. The driver script counts from
     * index + 1. */
    unsigned index;
    unsigned base; /* index in policy->limits; of a variant, that of the limit it differs from */
    unsigned row;  /* counter row; set before workers receive the policy */
    char *name, *label;
    char *script;      /* name of a script in lua/, or a path */
    char *script_text; /* source text */
    enum limit_kind kind;
    const struct shipped_limiter *shipped; /* NULL: LIMIT_CUSTOM */
    int64_t limit, burst;
    int64_t period_us;
    enum align align;       /* of the windows of fixed_window */
    int64_t offset_us;      /* also negative; shorter than every window */
    enum calendar calendar; /* if set, period_us is the longest possible window */
    char *time_zone;        /* as written; NULL, like zone, with CALENDAR_NONE */
    const struct zone *zone;
    /* Passed to the script in this order: that of the limiter's row in policy/shipped_limiter.c;
     * LIMIT_CUSTOM: that of the policy. */
    struct script_option *options;
    unsigned option_count;
    struct position script_position; /* of the `script` value */
    /* Options that C reads, too; limit_copy_options() sets them. */
    int64_t max_delay_us; /* leaky_bucket: maximum delay instead of rejection; 0: never delay */
    int64_t rest_us;      /* lockout: from the last unit on; 0: the limiter has no rest */
    int64_t lease_us;     /* LIMIT_CONCURRENCY: lifetime of an unreturned unit */
    int64_t cost;         /* default cost per request; LIMIT_CONCURRENCY ignores the rule's cost */
    const struct limit_cost
        *own_cost;       /* `cost` is a map: the rule's cost does not apply; or NULL */
    int64_t lease_units; /* units per lease of a busy key; LEASE_AUTO; 0: no leases */
    bool in_descriptors; /* descriptors of rate_limit_service use it */
    unsigned rate_unit; /* enum rate_limit_unit of a rate_limit; 0: a limit of the section limits */
    bool best_effort;
    char *granted_header; /* request header with the granted units; NULL: none */
    int64_t near; /* share of the limit, in 1/SHARE_WHOLE; less than it left counts as near */
    bool headers; /* report in the response headers */
    struct limit_fields fields;
    /* Bit set of charged response statuses. NULL: each request is charged before forwarding. */
    uint64_t *counted;
    struct dedup_settings dedup;
    bool shadow;     /* count and report only, never reject */
    int64_t enforce; /* share of clients enforced, in 1/SHARE_WHOLE; 0: shadow limit */
    struct limit_part per[LIMIT_PER_MAX];
    unsigned per_count; /* at least 1; PER_CLIENT, if present, comes first */
    bool shared;        /* several clients share a count: `per` has neither client nor ip */
    enum on_failure on_failure;
    struct position position;
};

/* Returns true if a usage adjusts the limit's cost: it counts tokens, or money. */
static inline bool limit_is_of_usage(const struct limit *limit)
{
    return limit->own_cost && limit->own_cost->usage.kind != USAGE_KIND_NONE;
}

enum { STATUS_MIN = 100, STATUS_MAX = 599 };

/* Returns true if the set contains `status`. NULL contains all. */
static inline bool statuses_hold(const uint64_t *statuses, unsigned status)
{
    return !statuses || (status >= STATUS_MIN && status <= STATUS_MAX &&
                         (statuses[status / 64] >> status % 64 & 1));
}

/* Writes the period as in a policy: "1m", "month". */
struct text;
void limit_period_write(struct text *out, const struct limit *limit);

enum { PRIORITIES_MAX = 8 };

/* How much of the shared limits a priority may use. */
struct priority {
    char *name;
    int64_t share; /* of every shared limit, in 1/SHARE_WHOLE; falling from entry to entry */
    unsigned row;  /* counter row, as in struct limit */
    struct position position;
};

#endif
