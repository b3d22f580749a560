/* read_windows.c - period, align, offset and time_zone of a limit: its time windows. */
#include <stdlib.h>

#include "base/values.h"
#include "config/sections.h"
#include "policy/zone.h"

#define DAY_US INT64_C(86400000000)

/* Maximum length of each calendar window, as reported to clients, and the exclusive bound of
 * `offset`, so that it falls into every window. Ignores the extra hour at the end of daylight
 * saving time. */
static const struct calendar_unit {
    const char *name;
    int64_t longest_us, shortest_us;
} units[] = {
    [CALENDAR_DAY] = {"1d", DAY_US, DAY_US},
    [CALENDAR_WEEK] = {"week", 7 * DAY_US, 7 * DAY_US},
    [CALENDAR_MONTH] = {"month", 31 * DAY_US, 28 * DAY_US},
    [CALENDAR_YEAR] = {"year", 366 * DAY_US, 365 * DAY_US},
};

/* --- period --- */

static void read_period(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct limit *limit = field;

    for (unsigned i = CALENDAR_WEEK; i < COUNT_OF(units) && node->kind == NODE_SCALAR; i++)
        if (slice_equal(node->text, slice_of(units[i].name))) {
            limit->calendar = (enum calendar)i;
            limit->period_us = units[i].longest_us;
            return;
        }
    if (node->kind == NODE_SCALAR && node->text.n &&
        strchr("0123456789-+.", node->text.p[0]) == NULL)
        mistake(l, node,
                "\"%.*s\" is neither a duration such as 1s, 1m or 1d nor week, month or year",
                SLICE_ARG(node->text));
    else
        type_duration.read(l, option, node, &limit->period_us);
}

void limit_period_write(struct text *out, const struct limit *limit)
{
    if (limit->calendar)
        text_put(out, slice_of(units[limit->calendar].name));
    else
        duration_write(out, limit->period_us);
}

static void print_period(const struct printer *printer, const void *field)
{
    const struct limit *limit = field;

    if (limit->calendar)
        fprintf(printer->out, " %s\n", units[limit->calendar].name);
    else
        type_duration.print(printer, &limit->period_us);
}

const struct option_type type_period = {"duration, or week, month or year", read_period,
                                        print_period, false, 0};

/* --- offset --- */

static void read_offset(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    bool negative = node->kind == NODE_SCALAR && node->text.n > 1 && node->text.p[0] == '-' &&
                    strchr("0123456789", node->text.p[1]);
    struct node size = *node;

    if (negative)
        size.text = (struct slice){node->text.p + 1, node->text.n - 1};
    type_duration.read(l, option, &size, field);
    if (negative)
        *(int64_t *)field *= -1;
}

static void print_offset(const struct printer *printer, const void *field)
{
    int64_t us = *(const int64_t *)field;
    char bytes[32];
    struct text text = text_over(bytes, sizeof bytes);

    duration_write(&text, us < 0 ? -us : us);
    fprintf(printer->out, " %s%.*s\n", us < 0 ? "-" : "", SLICE_ARG(text_slice(&text)));
}

const struct option_type type_offset = {"duration", read_offset, print_offset, false,
                                        sizeof(int64_t)};

/* --- time_zone --- */

/* Returns the zone already read by an earlier limit, or NULL. */
static const struct zone *zone_known(const struct policy *policy, struct slice name)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (policy->limits[i].zone && slice_equal(slice_of(policy->limits[i].time_zone), name))
            return policy->limits[i].zone;
    return NULL;
}

static void read_time_zone(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct limit *limit = field;
    const char *why;

    (void)option;
    if (!expect_scalar(l, node, "a time zone such as Europe/Berlin"))
        return;
    if (!(limit->zone = zone_known(l->policy, node->text))) {
        struct zone *zone = arena_zeroed(l->arena, 1, sizeof *zone);
        if (!zone_read(l->arena, &l->scratch, node->text, zone, &why)) {
            mistake(l, node, "%s: %s", QUOTE(node->text), why);
            return;
        }
        limit->zone = zone;
    }
    limit->time_zone = keep_text(l, node);
}

const struct option_type type_time_zone = {"name of a time zone", read_time_zone, print_text, false,
                                           0};

/* --- combinations --- */

int64_t limit_shortest_window(const struct limit *limit)
{
    return limit->calendar ? units[limit->calendar].shortest_us : limit->period_us;
}

static void check_calendar(struct loading *l, const struct node *node, struct limit *limit)
{
    const struct node *align = node_find(node, "align"), *period = node_find(node, "period"),
                      *offset = node_find(node, "offset");
    const struct calendar_unit *unit = &units[limit->calendar];

    if (!limit_has_align(limit))
        mistake(l, period,
                "%s does not support calendar periods; write a duration, or use fixed_window",
                limit->script);
    else if (align && limit->align != ALIGN_CLOCK)
        mistake_of_key(l, align, "%s is a calendar period; remove align, or write align: clock",
                       QUOTE(period->text));
    limit->align = ALIGN_CLOCK;
    if (offset && llabs(limit->offset_us) >= unit->shortest_us)
        mistake(l, offset, "must be less than the shortest period, %d days",
                (int)(unit->shortest_us / DAY_US));
    if (offset && limit->offset_us % 1000000 != 0)
        mistake(l, offset, "must be in whole seconds for calendar periods");
}

void limit_finish_windows(struct loading *l, const struct node *node, struct limit *limit)
{
    const struct node *zone = node_find(node, "time_zone");

    if (!limit->script || !limit->period_us)
        return;
    if (zone && limit->period_us == DAY_US && limit->align == ALIGN_CLOCK)
        limit->calendar = CALENDAR_DAY;
    if (zone && !limit->calendar)
        mistake_of_key(l, zone,
                       "time_zone requires align: clock and period: 1d, week, month or year");
    else if (limit->calendar)
        check_calendar(l, node, limit);
    if (limit->calendar && !limit->time_zone)
        limit->time_zone = arena_text(l->arena, SLICE("UTC"));
    if (limit->calendar && !limit->zone)
        limit->zone = arena_zeroed(l->arena, 1, sizeof *limit->zone);
}
