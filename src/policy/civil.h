/* civil.h - day numbers of the Gregorian calendar. */
#ifndef WEIR_POLICY_CIVIL_H
#define WEIR_POLICY_CIVIL_H

#include <stdint.h>

/* Returns the days from 1970-01-01 to the first day of a month (1 to 12; 13: next January). */
static inline int64_t civil_days(int64_t year, int64_t month)
{
    /* Count years from March, so that 29 February is the last day of a year. */
    int64_t y = month > 2 ? year + (month - 3) / 12 : year - 1, m = (month + 9) % 12;
    int64_t leaps = y / 4 - y / 100 + y / 400; /* y is positive */
    return 365 * y + leaps + (153 * m + 2) / 5 - 719468;
}

#endif
