/* zone.c - reads TZif files (RFC 9636).
 *
 * A file contains a list of changes, and a rule for the time after the last of them, such as
 * "CET-1CEST,M3.5.0,M10.5.0/3" (POSIX TZ). The last listed change differs between systems, so both
 * are combined into one list. */
#include "policy/zone.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/text.h"
#include "policy/civil.h"

enum {
    HEADER_SIZE = 44,
    ZONE_FILE_MAX = 256 << 10,
    CHANGES_MAX = 4 * (ZONE_LAST_YEAR - ZONE_FIRST_YEAR) + 64,
    OFFSET_MAX = 86399,
    HOUR = 3600,
    DAY = 86400,
};

static const char not_tzif[] = "its file is not a time zone file of version 2 or newer";
static const char too_many[] = "its changes are too many, or out of order";

/* --- list --- */

static int64_t year_start(int year)
{
    return civil_days(year, 1) * DAY;
}

/* Adds a change unless it has no effect. Returns false if the list is full or not in time order. */
static bool add_change(struct zone *zone, int64_t at, int64_t offset)
{
    int64_t before = zone->count ? zone->changes[zone->count - 1].offset : zone->first;

    if (zone->count && at < zone->changes[zone->count - 1].at)
        return false;
    if (at < year_start(ZONE_FIRST_YEAR)) {
        zone->first = offset;
        return true;
    }
    /* for example with daylight saving time all year */
    if (zone->count && zone->changes[zone->count - 1].at == at) {
        zone->count--;
        return add_change(zone, at, offset);
    }
    if (offset == before || at >= year_start(ZONE_LAST_YEAR))
        return true;
    if (zone->count == CHANGES_MAX)
        return false;
    zone->changes[zone->count++] = (struct zone_change){at, offset};
    return true;
}

int64_t zone_offset(const struct zone *zone, int64_t at, int64_t *until)
{
    /* changes before `low` are past, those from `high` are future */
    unsigned low = 0, high = zone->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (zone->changes[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    *until = low < zone->count ? zone->changes[low].at : INT64_MAX;
    return low ? zone->changes[low - 1].offset : zone->first;
}

/* --- rule after the last listed change --- */

struct day_rule {
    char kind; /* M: month, week, weekday; J: day 1 to 365 without 29 February; 0: day 0 to 365 */
    int month, week, day;
    int64_t time; /* seconds after midnight, local time before the change */
};

struct rule_text {
    const char *p;
    bool bad;
};

static bool skip_char(struct rule_text *t, char c)
{
    if (*t->p != c)
        return false;
    t->p++;
    return true;
}

static int take_number(struct rule_text *t, int low, int high)
{
    int value = 0, digits = 0;

    for (; *t->p >= '0' && *t->p <= '9' && digits < 4; digits++)
        value = value * 10 + (*t->p++ - '0');
    t->bad |= digits == 0 || value < low || value > high;
    return value;
}

/* Reads [+-]hh[:mm[:ss]] and returns seconds. */
static int64_t take_time(struct rule_text *t)
{
    bool negative = *t->p == '-';
    if (!skip_char(t, '-'))
        (void)skip_char(t, '+');
    int64_t s = take_number(t, 0, 167) * (int64_t)HOUR;
    if (skip_char(t, ':'))
        s += take_number(t, 0, 59) * 60;
    if (skip_char(t, ':'))
        s += take_number(t, 0, 59);
    return negative ? -s : s;
}

static void skip_name(struct rule_text *t)
{
    const char *start = t->p;

    if (skip_char(t, '<')) {
        t->p += strcspn(t->p, ">");
        t->bad |= !skip_char(t, '>');
        return;
    }
    while ((*t->p >= 'A' && *t->p <= 'Z') || (*t->p >= 'a' && *t->p <= 'z'))
        t->p++;
    t->bad |= t->p == start;
}

static struct day_rule take_day_rule(struct rule_text *t)
{
    struct day_rule rule = {.kind = '0', .time = 2 * HOUR};

    t->bad |= !skip_char(t, ',');
    if (skip_char(t, 'M')) {
        rule.kind = 'M';
        rule.month = take_number(t, 1, 12);
        t->bad |= !skip_char(t, '.');
        rule.week = take_number(t, 1, 5);
        t->bad |= !skip_char(t, '.');
        rule.day = take_number(t, 0, 6);
    } else if (skip_char(t, 'J')) {
        rule.kind = 'J';
        rule.day = take_number(t, 1, 365);
    } else
        rule.day = take_number(t, 0, 365);
    if (skip_char(t, '/'))
        rule.time = take_time(t);
    return rule;
}

/* Returns the time of the rule in that year, in seconds of local time. */
static int64_t wall_time(const struct day_rule *rule, int year)
{
    int64_t first = civil_days(year, 1), day = first + rule->day;

    if (rule->kind == 'J') {
        bool leap = civil_days(year, 3) - first == 60;
        day = first + rule->day - 1 + (leap && rule->day >= 60);
    } else if (rule->kind == 'M') {
        int64_t start = civil_days(year, rule->month), next = civil_days(year, rule->month + 1);
        int64_t weekday = (start % 7 + 7 + 4) % 7; /* 1970 began on a Thursday */
        day = start + (rule->day - weekday + 7) % 7 + (int64_t)(rule->week - 1) * 7;
        if (day >= next)
            day -= 7;
    }
    return day * DAY + rule->time;
}

static bool add_years(struct zone *zone, int64_t after, int64_t standard, int64_t summer,
                      const struct day_rule *begins, const struct day_rule *ends)
{
    for (int year = ZONE_FIRST_YEAR - 1; year < ZONE_LAST_YEAR; year++) {
        struct zone_change two[2] = {{wall_time(begins, year) - standard, summer},
                                     {wall_time(ends, year) - summer, standard}};
        unsigned first = two[0].at > two[1].at;
        for (unsigned i = 0; i < 2; i++) {
            const struct zone_change *change = &two[first ^ i];
            if (change->at > after && !add_change(zone, change->at, change->offset))
                return false;
        }
    }
    return true;
}

/* Adds the rule's changes later than `after`, the last listed change. An empty rule adds none. */
static bool add_rule(struct zone *zone, int64_t after, const char *rule, const char **why)
{
    struct rule_text t = {rule, false};

    if (!*rule)
        return true;
    skip_name(&t);
    int64_t standard = -take_time(&t), summer = standard + HOUR;
    if (t.bad || !*t.p) {
        *why = not_tzif;
        return !t.bad && add_change(zone, after < 0 ? 0 : after, standard);
    }
    skip_name(&t);
    if (*t.p != ',')
        summer = -take_time(&t);
    struct day_rule begins = take_day_rule(&t), ends = take_day_rule(&t);
    *why = t.bad || *t.p ? not_tzif : too_many;
    return !t.bad && !*t.p && add_years(zone, after, standard, summer, &begins, &ends);
}

/* --- file --- */

struct header {
    uint32_t utc, standard, leaps, times, types, letters;
};

static uint32_t big32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static int64_t big64(const char *p)
{
    return (int64_t)((uint64_t)big32(p) << 32 | big32(p + 4));
}

static bool take_header(struct slice *bytes, struct header *h)
{
    const char *p = bytes->p;

    if (bytes->n < HEADER_SIZE || memcmp(p, "TZif", 4) != 0 || p[4] < '2')
        return false;
    *h = (struct header){big32(p + 20), big32(p + 24), big32(p + 28),
                         big32(p + 32), big32(p + 36), big32(p + 40)};
    bytes->p += HEADER_SIZE;
    bytes->n -= HEADER_SIZE;
    return h->times < ZONE_FILE_MAX && h->types < 256 && h->types > 0 && h->leaps < ZONE_FILE_MAX &&
           h->letters < ZONE_FILE_MAX && h->utc < 256 && h->standard < 256;
}

/* Returns the bytes of the block after a header, with times of `width` bytes. */
static size_t block_size(const struct header *h, size_t width)
{
    return h->times * (width + 1) + h->types * (size_t)6 + h->letters + h->leaps * (width + 4) +
           h->standard + h->utc;
}

static bool skip_bytes(struct slice *bytes, size_t n)
{
    if (bytes->n < n)
        return false;
    bytes->p += n;
    bytes->n -= n;
    return true;
}

/* Adds the changes listed in the file; `*last` is the time of the last. */
static bool add_listed(struct zone *zone, const char *block, const struct header *h, int64_t *last,
                       const char **why)
{
    const char *types = block + h->times * (size_t)9;

    *last = INT64_MIN;
    *why = not_tzif;
    zone->first = (int32_t)big32(types); /* type 0 applies before the first change */
    for (uint32_t i = 0; i < h->times; i++) {
        int64_t at = big64(block + i * (size_t)8);
        unsigned type = (unsigned char)block[h->times * (size_t)8 + i];
        if (type >= h->types || at <= *last)
            return false;
        int64_t offset = (int32_t)big32(types + type * (size_t)6);
        if (offset < -OFFSET_MAX || offset > OFFSET_MAX)
            return false;
        if (!add_change(zone, at, offset)) {
            *why = too_many;
            return false;
        }
        *last = at;
    }
    return true;
}

static bool read_tzif(struct arena *scratch, struct zone *zone, struct slice bytes,
                      const char **why)
{
    struct header h;
    int64_t last;

    *why = not_tzif;
    if (!take_header(&bytes, &h) || !skip_bytes(&bytes, block_size(&h, 4)) ||
        !take_header(&bytes, &h))
        return false;
    if (h.leaps) {
        *why = "it counts leap seconds, which Unix time does not";
        return false;
    }
    const char *block = bytes.p;
    if (!skip_bytes(&bytes, block_size(&h, 8)) || bytes.n < 2 || bytes.p[0] != '\n' ||
        bytes.p[bytes.n - 1] != '\n')
        return false;
    struct slice rule = {bytes.p + 1, bytes.n - 2};
    return !memchr(rule.p, 0, rule.n) && add_listed(zone, block, &h, &last, why) &&
           add_rule(zone, last, arena_text(scratch, rule), why);
}

/* Accepts a zone name that cannot lead out of the database directory. */
static bool is_name(struct slice name)
{
    if (name.n == 0 || name.n > ZONE_NAME_MAX || name.p[0] == '/' || name.p[name.n - 1] == '/')
        return false;
    return slice_is_alnum_or(name, "_+-/") && !memmem(name.p, name.n, "//", 2);
}

static const char *database(void)
{
    const char *directory = getenv("TZDIR");
    return directory && *directory ? directory : "/usr/share/zoneinfo";
}

static bool read_database(struct arena *scratch, struct slice name, struct slice *bytes,
                          const char **why)
{
    const char *directory = database();
    size_t room = strlen(directory) + name.n + 16;
    char *path = arena_zeroed(scratch, room, 1);

    snprintf(path, room, "%s/%.*s", directory, SLICE_ARG(name));
    if (file_read(scratch, path, ZONE_FILE_MAX, bytes, why))
        return true;
    *why = "the system's database has no such time zone; expected a name such as Europe/Berlin";
    snprintf(path, room, "%s/Europe/Paris", directory);
    if (!file_read(scratch, path, ZONE_FILE_MAX, bytes, &(const char *){NULL}))
        *why = "there is no time zone database; install the Debian package tzdata";
    return false;
}

bool zone_read(struct arena *arena, struct arena *scratch, struct slice name, struct zone *zone,
               const char **why)
{
    struct slice bytes;

    *zone = (struct zone){0};
    if (slice_equal(name, SLICE("UTC")))
        return true;
    if (!is_name(name)) {
        *why = "expected a name such as Europe/Berlin";
        return false;
    }
    if (!read_database(scratch, name, &bytes, why))
        return false;
    zone->changes = arena_zeroed(arena, CHANGES_MAX, sizeof *zone->changes);
    return read_tzif(scratch, zone, bytes, why);
}
