#include "policy/calendar.h"

#include "policy/civil.h"
#include "policy/zone.h"

enum { DAY_S = 86400, WEEK_S = 7 * DAY_S, MONDAY_S = -3 * DAY_S /* 1970 began on a Thursday */ };

static int64_t down_to(int64_t value, int64_t from, int64_t step)
{
    int64_t over = (value - from) % step;
    return value - (over < 0 ? over + step : over);
}

/* Months since year 0. */
static int64_t month_of(int64_t day)
{
    int64_t months =
        (day + 719528) * 4800 / 146097 - 1; /* sometimes one too small, never too large */
    while (civil_days((months + 1) / 12, (months + 1) % 12 + 1) <= day)
        months++;
    return months;
}

static int64_t month_start(int64_t months)
{
    return civil_days(months / 12, months % 12 + 1) * DAY_S;
}

/* The calendar unit that contains a wall clock time. Both in seconds of that clock. */
static struct window unit_of(enum calendar calendar, int64_t wall)
{
    int64_t start, months = month_of(down_to(wall, 0, DAY_S) / DAY_S);

    switch (calendar) {
    case CALENDAR_WEEK:
        start = down_to(wall, MONDAY_S, WEEK_S);
        return (struct window){start, start + WEEK_S};
    case CALENDAR_MONTH: return (struct window){month_start(months), month_start(months + 1)};
    case CALENDAR_YEAR:
        months -= months % 12;
        return (struct window){month_start(months), month_start(months + 12)};
    default: start = down_to(wall, 0, DAY_S); return (struct window){start, start + DAY_S};
    }
}

/* The first time at which the wall clock shows `wall` or more. */
static int64_t first_time(const struct zone *zone, int64_t wall)
{
    int64_t change, ahead = zone_offset(zone, wall - DAY_S, &change);

    while (wall - ahead >= change) {
        int64_t at = change;
        ahead = zone_offset(zone, at, &change);
        if (wall - ahead < at)
            return at;
    }
    return wall - ahead;
}

struct window calendar_window(const struct limit *limit, int64_t now_us)
{
    int64_t now = down_to(now_us, 0, 1000000) / 1000000, shift = limit->offset_us / 1000000, until;
    struct window unit =
        unit_of(limit->calendar, now + zone_offset(limit->zone, now, &until) - shift);
    int64_t from = first_time(limit->zone, unit.start_us + shift),
            to = first_time(limit->zone, unit.end_us + shift);

    while (now >= to) { /* the clock was set back across a start */
        unit = unit_of(limit->calendar, unit.end_us);
        from = to;
        to = first_time(limit->zone, unit.end_us + shift);
    }
    while (now < from) {
        unit = unit_of(limit->calendar, unit.start_us - 1);
        to = from;
        from = first_time(limit->zone, unit.start_us + shift);
    }
    return (struct window){from * 1000000, to * 1000000};
}
