/* calendar.h - the calendar window of a point in time, for decisions without Redis. Same
 * definition as lua/calendar.lua, which is documented there. */
#ifndef WEIR_POLICY_CALENDAR_H
#define WEIR_POLICY_CALENDAR_H

#include "policy/policy.h"

struct window {
    int64_t start_us, end_us; /* Unix time; start is inside, end is not */
};

/* For a limit whose calendar is not CALENDAR_NONE. */
struct window calendar_window(const struct limit *limit, int64_t now_us);

#endif
