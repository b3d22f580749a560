/* civil.h - days of the Gregorian calendar. */
#ifndef WEIR_POLICY_CIVIL_H
#define WEIR_POLICY_CIVIL_H

#include <stdint.h>

/* The days from 1970-01-01 to the first of a month; `month` counts from 1, and 13 is the next January. */
static inline int64_t civil_days(int64_t year, int64_t month)
{
    /* Years that begin in March, so that 29 February is a year's last day. */
    int64_t y = month > 2 ? year + (month - 3) / 12 : year - 1, m = (month + 9) % 12;
    int64_t leaps = y / 4 - y / 100 + y / 400; /* y is positive */
    return 365 * y + leaps + (153 * m + 2) / 5 - 719468;
}

#endif
