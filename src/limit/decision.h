/* decision.h - the decision about one request, and the response fields and body made from it. */
#ifndef WEIR_LIMIT_DECISION_H
#define WEIR_LIMIT_DECISION_H

#include "base/text.h"
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
    int64_t quota;        /* the limit's value for this client */
    int64_t capacity;     /* burst if the limit has one, else quota */
    int64_t granted; /* units of an admitted request; with best effort perhaps less than its cost */
    int64_t remaining;
    int64_t
        retry_after_us; /* -1: never admitted; 0: admitted; for a shadow limit as if it rejected */
    int64_t reset_us;
};

struct decision {
    enum verdict verdict;  /* of the request */
    unsigned result_count; /* limits that applied; 0: no rate-limit fields */
    int rejected_by; /* index in results of the rejecting limit (of several, the longest wait), or -1 */
    int64_t delay_us;  /* how long to hold an admitted request, from Redis' reply on */
    int64_t jitter_us; /* added to the wait that a rejected client is sent; see decision_spread() */
    struct limit_result results[LIMITS_PER_RULE_MAX];
};

/* The numbers that differ between rejections by the same limits. */
enum decision_number {
    NUMBER_REMAINING,
    NUMBER_USED,
    NUMBER_RESET,        /* seconds from now */
    NUMBER_RESET_AT,     /* Unix time in seconds */
    NUMBER_SF_REMAINING, /* capped to a structured field Integer (RFC 9651) */
    NUMBER_SF_RESET,
    NUMBER_WAIT, /* decision_retry_after() */
    NUMBER_COUNT
};

/* Positions of such numbers in a text, so that another decision's numbers can overwrite them. */
enum { MARKS_MAX = 56 };
struct marks {
    unsigned count;
    bool too_many; /* more than MARKS_MAX, or past 64 KiB */
    struct mark {
        uint16_t at;
        uint8_t size;   /* digits */
        uint8_t number; /* enum decision_number; from NUMBER_COUNT on the caller's own */
        uint8_t result; /* index of the limit's result */
    } mark[MARKS_MAX];
};

/* Records that the text from `at` to its end is such a number. `marks` may be NULL. */
void marks_add(struct marks *marks, const struct text *out, size_t at, unsigned number,
               unsigned result);
int64_t decision_number(const struct decision *decision, enum decision_number number,
                        unsigned result, uint64_t wall_us);

static inline bool decision_admits(const struct decision *d)
{
    return d->verdict == VERDICT_ALLOWED || d->verdict == VERDICT_UNLIMITED ||
           d->verdict == VERDICT_FAILED_OPEN;
}

/* Appends the rate-limit fields of the families in `headers` (HEADERS_*) as lines "Name: value
 * CRLF", and Retry-After for rejections that have one. `wall_us` (Unix time) is for the epoch
 * form. Appends nothing if no limit applied. */
void decision_fields_write(struct text *out, const struct decision *decision, unsigned headers,
                           uint64_t wall_us);
/* The same, and records the numbers in `marks` (may be NULL). */
void decision_fields_write_marked(struct text *out, const struct decision *decision,
                                  unsigned headers, uint64_t wall_us, struct marks *marks);

/* Retry-After in seconds, rounded up; -1: none. */
int64_t decision_retry_after(const struct decision *decision);

/* Sets the jitter of a rejected request: a random part, from 0 up to `share` (of SHARE_WHOLE) of
 * its wait. `random`: uniform random bits. */
void decision_spread(struct decision *decision, int64_t share, uint64_t random);

/* Appends the problem document of a rejection as application/problem+json (RFC 9457,
 * draft-ietf-httpapi-ratelimit-headers). */
void decision_problem_write(struct text *out, const struct decision *decision, unsigned status);
void decision_problem_write_marked(struct text *out, const struct decision *decision,
                                   unsigned status, struct marks *marks);

/* Returns true if two rejections have the same response text except for their numbers, given the
 * same `headers`. */
bool decision_reads_like(const struct decision *decision, const struct decision *other);

#endif
