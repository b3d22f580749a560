/* numbers.h - numbers of a decision in a text, with their positions.
 *
 * Rejections by the same limits differ only in these numbers. A response that was written once is
 * therefore reused for other requests by overwriting them (proxy/rejection.c). */
#ifndef WEIR_LIMIT_NUMBERS_H
#define WEIR_LIMIT_NUMBERS_H

#include "base/text.h"
#include "limit/decision.h"

/* The numbers that differ between rejections by the same limits. */
enum decision_number {
    NUMBER_REMAINING,
    NUMBER_USED,
    NUMBER_RESET,        /* seconds from now */
    NUMBER_RESET_AT,     /* Unix time in seconds */
    NUMBER_SF_REMAINING, /* capped to a structured field Integer (RFC 9651) */
    NUMBER_SF_NEXT,      /* seconds until more units are available */
    NUMBER_WAIT,         /* decision_retry_after() */
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
/* `result`: that of the limit, in decision->results. */
int64_t decision_number(const struct decision *decision, enum decision_number number,
                        const struct limit_result *result, uint64_t wall_us);

/* Appends the number, and records its position in `marks` (may be NULL). */
void decision_put_number(struct text *out, const struct decision *decision,
                         enum decision_number number, const struct limit_result *result,
                         uint64_t wall_us, struct marks *marks);

/* Converts microseconds to seconds, rounded up; 0 for negative values. */
static inline int64_t seconds_up(int64_t us)
{
    return us <= 0 ? 0 : (us - 1) / 1000000 + 1;
}

/* The largest Integer of structured fields (RFC 9651 section 3.3.1). */
#define SF_INTEGER_MAX INT64_C(999999999999999)

#endif
