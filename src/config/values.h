/* values.h - durations and sizes as people write them. */
#ifndef WEIR_CONFIG_VALUES_H
#define WEIR_CONFIG_VALUES_H

#include "base/text.h"

enum value_result { VALUE_GOOD, VALUE_NO_NUMBER, VALUE_NO_UNIT, VALUE_TOO_LARGE };

/* "500us", "25ms", "1s", "1m", "1h", "1d"; "0" needs no unit. */
MUST_CHECK enum value_result duration_read(struct slice text, int64_t *us);
/* In the largest unit that divides it: 60000000 is "1m". */
void duration_write(struct text *out, int64_t us);
/* What was probably meant by a text that is none: "60 sec" is "60s". Nothing where that is not known. */
void duration_meant(struct slice text, struct text *out);

/* "512", "8k", "1m" (of 1024), "1g". */
MUST_CHECK enum value_result size_read(struct slice text, int64_t *bytes);
void size_write(struct text *out, int64_t bytes);
/* "1MB" is "1m". */
void size_meant(struct slice text, struct text *out);

/* Decimal digits, with "-" before them if need be. */
MUST_CHECK enum value_result number_read(struct slice text, int64_t *number);

/* "10%", "0.5%", in hundredths of a per cent: two places at most. */
MUST_CHECK enum value_result share_read(struct slice text, int64_t *share);
void share_write(struct text *out, int64_t share);

#endif
