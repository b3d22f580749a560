/* decision.h - the decision about one request.
 *
 * These files describe a decision and write what the client receives of it: the rate-limit fields
 * (header_families.h) and the body of a rejection (problem.h). limiter.h makes decisions.
 * In reading order: decision.h, numbers.h, header_families.h, problem.h. */
#ifndef WEIR_LIMIT_DECISION_H
#define WEIR_LIMIT_DECISION_H

#include "policy/policy.h"

#define VERDICTS(X)                                                                                \
    X(VERDICT_ALLOWED, "allowed")                                                                  \
    X(VERDICT_LIMITED, "limited")                                                                  \
    X(VERDICT_PROHIBITED, "prohibited")                                                            \
    X(VERDICT_UNLIMITED, "unlimited")                                                              \
    X(VERDICT_SHADOW, "shadow")               /* a shadow limit would have rejected */             \
    X(VERDICT_FAILED_OPEN, "failed_open")     /* Redis unavailable, on_failure: allow */           \
    X(VERDICT_FAILED_CLOSED, "failed_closed") /* Redis unavailable, on_failure: deny */            \
    X(VERDICT_NOT_CHARGED, "not_charged") /* counters only: this limit allows, another rejects */

enum verdict {
#define X(name, label) name,
    VERDICTS(X)
#undef X
        VERDICT_COUNT
};

extern const char *const verdict_label[VERDICT_COUNT];

struct limit_result {
    const struct limit *limit;
    enum verdict verdict; /* of this limit alone */
    bool local;           /* decided without Redis */
    bool shadow;          /* never rejects; appears in no response field */
    uint16_t place;       /* of the limit, in those of the rule or call */
    int64_t quota;        /* the limit's value for this client */
    int64_t capacity;     /* burst if the limit has one, else quota */
    int64_t granted; /* units of an admitted request; with best effort perhaps less than its cost */
    int64_t remaining;
    int64_t
        retry_after_us; /* -1: never admitted; 0: admitted; for a shadow limit as if it rejected */
    int64_t reset_us;   /* until nothing of the limit is used */
    int64_t next_us;    /* until more units are available; at most retry_after_us if it rejects */
};

struct decision {
    enum verdict verdict;  /* of the request */
    unsigned result_count; /* limits that applied; 0: no rate-limit fields */
    int rejected_by; /* index in results of the rejecting limit (of several, the longest wait), or -1 */
    int64_t delay_us;  /* how long to hold an admitted request, from Redis' reply on */
    int64_t jitter_us; /* added to the wait that a rejected client is sent; see decision_spread() */
    const struct priority *priority; /* of the request; NULL: the policy has none */
    struct limit_result results[LIMITS_PER_RULE_MAX];
};

/* Returns whether requests with this verdict are rejected. */
static inline bool verdict_rejects(enum verdict verdict)
{
    return verdict == VERDICT_LIMITED || verdict == VERDICT_PROHIBITED ||
           verdict == VERDICT_FAILED_CLOSED;
}

static inline bool decision_admits(const struct decision *d)
{
    return d->verdict == VERDICT_ALLOWED || d->verdict == VERDICT_UNLIMITED ||
           d->verdict == VERDICT_FAILED_OPEN;
}

/* Retry-After in seconds, rounded up; -1: none. */
int64_t decision_retry_after(const struct decision *decision);

/* Sets the jitter of a rejected request: a random part, from 0 up to `share` (of SHARE_WHOLE) of
 * its wait. `random`: uniform random bits. */
void decision_spread(struct decision *decision, int64_t share, uint64_t random);

/* Returns true if the limit appears in response fields. */
static inline bool limit_result_is_shown(const struct limit_result *result)
{
    return !result->shadow && result->limit->headers;
}

/* Returns true if two rejections have the same response text except for their numbers, given the
 * same `headers`. */
bool decision_reads_like(const struct decision *decision, const struct decision *other);

#endif
