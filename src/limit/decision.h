/* decision.h - what was decided about one request, and what the answer's fields say of it. */
#ifndef WEIR_LIMIT_DECISION_H
#define WEIR_LIMIT_DECISION_H

#include "base/text.h"
#include "policy/policy.h"

#define VERDICTS(X)                                                                                          \
    X(VERDICT_ALLOWED, "allowed")                                                                            \
    X(VERDICT_LIMITED, "limited")                                                                            \
    X(VERDICT_PROHIBITED, "prohibited")                                                                      \
    X(VERDICT_UNLIMITED, "unlimited")                                                                        \
    X(VERDICT_SHADOW, "shadow")               /* of a shadow limit: it would have rejected */                \
    X(VERDICT_FAILED_OPEN, "failed_open")     /* Redis away, on_failure: allow */                            \
    X(VERDICT_FAILED_CLOSED, "failed_closed") /* Redis away, on_failure: deny */                             \
    X(VERDICT_NOT_CHARGED, "not_charged")     /* only in counters: it allows what another limit rejects */

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
    bool shadow;          /* rejects nobody, and stands in no field */
    int64_t quota;        /* the limit as it holds for this client */
    int64_t capacity;     /* burst where there is one, else quota */
    int64_t remaining;
    int64_t retry_after_us; /* -1: never admitted; 0 where it admitted; of a shadow limit as if it rejected */
    int64_t reset_us;
};

struct decision {
    enum verdict verdict; /* of the request */
    unsigned
        result_count;  /* the limits that applied; 0: no rate-limit fields but for prohibited and unlimited */
    int rejected_by;   /* index in results of the limit that rejected (the longest wait of several), or -1 */
    int64_t delay_us;  /* an admitted request is held for so long, from when Redis has answered */
    int64_t jitter_us; /* what is added to the wait in what a rejected client reads; set by who answers */
    struct limit_result results[LIMITS_PER_RULE_MAX];
};

/* The numbers that differ between rejections by the same limits. */
enum decision_number {
    NUMBER_REMAINING,
    NUMBER_USED,
    NUMBER_RESET,        /* seconds from now */
    NUMBER_RESET_AT,     /* seconds since 1970 */
    NUMBER_SF_REMAINING, /* as a structured field's integer (RFC 9651), which is smaller */
    NUMBER_SF_RESET,
    NUMBER_WAIT, /* decision_retry_after() */
    NUMBER_COUNT
};

/* Where such numbers stand in a text, so that another decision's can be written over them. */
enum { MARKS_MAX = 56 };
struct marks {
    unsigned count;
    bool too_many; /* than MARKS_MAX, or behind 64 KiB */
    struct mark {
        uint16_t at;
        uint8_t size;   /* digits */
        uint8_t number; /* enum decision_number, or the caller's own from NUMBER_COUNT on */
        uint8_t result; /* of which limit */
    } mark[MARKS_MAX];
};

/* Notes that the text from `at` on is such a number. `marks`: NULL: nothing is noted. */
void marks_add(struct marks *marks, const struct text *out, size_t at, unsigned number, unsigned result);
int64_t decision_number(const struct decision *decision, enum decision_number number, unsigned result,
                        uint64_t wall_us);

static inline bool decision_admits(const struct decision *d)
{
    return d->verdict == VERDICT_ALLOWED || d->verdict == VERDICT_UNLIMITED ||
           d->verdict == VERDICT_FAILED_OPEN;
}

/* The rate-limit fields of this decision as whole lines "Name: value CRLF", of the families in `headers`
 * (HEADERS_*), with Retry-After on rejections that have one. `wall_us` is for the epoch form. Nothing for
 * requests that no limit applied to. */
void decision_fields_write(struct text *out, const struct decision *decision, unsigned headers,
                           uint64_t wall_us);
/* The same, with marks (or NULL). */
void decision_fields_write_marked(struct text *out, const struct decision *decision, unsigned headers,
                                  uint64_t wall_us, struct marks *marks);

/* Seconds for Retry-After, rounded up; -1 where there is none. */
int64_t decision_retry_after(const struct decision *decision);

/* Adds 0 to `share` (of SHARE_WHOLE) of the wait of a rejected request, evenly by the random bits. */
void decision_spread(struct decision *decision, int64_t share, uint64_t random);

/* The problem document of a rejection (draft-ietf-httpapi-ratelimit-headers and RFC 9457):
 * application/problem+json. */
void decision_problem_write(struct text *out, const struct decision *decision, unsigned status);
void decision_problem_write_marked(struct text *out, const struct decision *decision, unsigned status,
                                   struct marks *marks);

/* Do two rejections by a limit read alike but for their numbers, with the same `headers`? */
bool decision_reads_like(const struct decision *decision, const struct decision *other);

#endif
