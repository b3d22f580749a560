/* values.h - parses and formats durations, sizes, numbers and shares. */
#ifndef WEIR_BASE_VALUES_H
#define WEIR_BASE_VALUES_H

#include "base/text.h"

enum value_result { VALUE_GOOD, VALUE_NO_NUMBER, VALUE_NO_UNIT, VALUE_TOO_LARGE };

/* Reads "500us", "25ms", "1s", "1m", "1h" or "1d"; "0" needs no unit. */
MUST_CHECK enum value_result duration_read(struct slice text, int64_t *us);
/* Writes the duration in the largest unit that divides it: 60000000 is "1m". */
void duration_write(struct text *out, int64_t us);
/* Writes a wait for people: "12.3 s" up to two minutes, then hours, minutes and seconds; "-" if
 * there is none. */
void wait_write(struct text *out, int64_t us);
/* Suggests a correction for an invalid duration: "60s" for "60 sec". Otherwise writes nothing. */
void duration_meant(struct slice text, struct text *out);

/* Reads "512", "8k", "1m" or "1g" (powers of 1024). */
MUST_CHECK enum value_result size_read(struct slice text, int64_t *bytes);
void size_write(struct text *out, int64_t bytes);
/* Suggests a correction for an invalid size: "1m" for "1MB". */
void size_meant(struct slice text, struct text *out);

/* Reads decimal digits with an optional "-". */
MUST_CHECK enum value_result number_read(struct slice text, int64_t *number);

/* Reads a number without sign, with at most `places` decimals, in units of the last one: "1.5" with
 * 3 places is 1500. The result is at most `max`, which is below INT64_MAX / 10. */
MUST_CHECK enum value_result decimal_read(struct slice text, unsigned places, int64_t max,
                                          int64_t *number);

/* Reads "10%" or "0.5%" in units of 0.01%; at most two decimal places. */
MUST_CHECK enum value_result share_read(struct slice text, int64_t *share);
void share_write(struct text *out, int64_t share);

#endif
