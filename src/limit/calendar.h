/* calendar.h - the window of the calendar that a moment lies in: what lua/calendar.lua says in Redis, for decisions
 * without it. The definition stands there. */
#ifndef WEIR_LIMIT_CALENDAR_H
#define WEIR_LIMIT_CALENDAR_H

#include "policy/policy.h"

struct window {
    int64_t start_us, end_us; /* since 1970; it holds start and not end */
};

/* Of a limit whose calendar is not CALENDAR_NONE. */
struct window calendar_window(const struct limit *limit, int64_t now_us);

#endif
