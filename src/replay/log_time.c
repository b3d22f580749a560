/* log_time.c - the two time formats of access logs. */
#include "policy/civil.h"
#include "replay/log_line.h"

enum { MINUTE_S = 60, HOUR_S = 3600, DAY_S = 86400 };

/* Reads exactly `digits` digits. */
static bool take_number(struct slice *rest, unsigned digits, int *value)
{
    uint64_t number;

    if (rest->n < digits || !slice_to_u64((struct slice){rest->p, digits}, 9999, &number))
        return false;
    *value = (int)number;
    *rest = (struct slice){rest->p + digits, rest->n - digits};
    return true;
}

static bool take_char(struct slice *rest, char c)
{
    if (rest->n == 0 || *rest->p != c)
        return false;
    *rest = (struct slice){rest->p + 1, rest->n - 1};
    return true;
}

static bool take_month(struct slice *rest, int *month)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (int i = 0; i < 12 && rest->n >= 3; i++)
        if (memcmp(rest->p, names + 3 * i, 3) == 0) {
            *month = i + 1;
            *rest = (struct slice){rest->p + 3, rest->n - 3};
            return true;
        }
    return false;
}

/* "+0200", "-07:00" or "Z"; `offset` in seconds east of UTC. */
static bool take_zone(struct slice *rest, int *offset)
{
    bool west = rest->n && *rest->p == '-';
    int hours, minutes;

    *offset = 0;
    if (take_char(rest, 'Z'))
        return true;
    if (!take_char(rest, '-') && !take_char(rest, '+'))
        return false;
    if (!take_number(rest, 2, &hours))
        return false;
    (void)take_char(rest, ':');
    if (!take_number(rest, 2, &minutes) || hours > 23 || minutes > 59)
        return false;
    *offset = (west ? -1 : 1) * (hours * HOUR_S + minutes * MINUTE_S);
    return true;
}

struct log_date {
    int year, month, day, hour, minute, second;
};

static bool take_clock(struct slice *rest, struct log_date *c)
{
    return take_number(rest, 2, &c->hour) && take_char(rest, ':') &&
           take_number(rest, 2, &c->minute) && take_char(rest, ':') &&
           take_number(rest, 2, &c->second);
}

static bool is_valid(const struct log_date *c)
{
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return c->year >= 1970 && c->month >= 1 && c->month <= 12 && c->day >= 1 &&
           c->day <= days[c->month - 1] && c->hour <= 23 && c->minute <= 59 && c->second <= 60;
}

static int64_t unix_us(const struct log_date *c, int offset_s)
{
    return ((civil_days(c->year, c->month) + c->day - 1) * DAY_S + c->hour * HOUR_S +
            c->minute * MINUTE_S + c->second - offset_s) *
           1000000;
}

/* "10/Oct/2000:13:55:36 -0700" */
static bool parse_common(struct slice rest, int64_t *time_us)
{
    struct log_date c;
    int offset;

    if (!(take_number(&rest, 2, &c.day) && take_char(&rest, '/') && take_month(&rest, &c.month) &&
          take_char(&rest, '/') && take_number(&rest, 4, &c.year) && take_char(&rest, ':') &&
          take_clock(&rest, &c) && take_char(&rest, ' ') && take_zone(&rest, &offset) &&
          rest.n == 0))
        return false;
    *time_us = unix_us(&c, offset);
    return is_valid(&c);
}

/* The digits of a fraction of a second, in microseconds; digits after the sixth are ignored. */
static int take_fraction(struct slice *rest)
{
    int us = 0, unit = 100000;

    if (!take_char(rest, '.'))
        return 0;
    for (int digit; take_number(rest, 1, &digit); unit /= 10)
        us += digit * unit;
    return us;
}

/* "2000-10-10T20:55:36.123Z" (RFC 3339) */
static bool parse_rfc3339(struct slice rest, int64_t *time_us)
{
    struct log_date c;
    int offset, us;

    if (!(take_number(&rest, 4, &c.year) && take_char(&rest, '-') &&
          take_number(&rest, 2, &c.month) && take_char(&rest, '-') &&
          take_number(&rest, 2, &c.day) && (take_char(&rest, 'T') || take_char(&rest, ' ')) &&
          take_clock(&rest, &c)))
        return false;
    us = take_fraction(&rest);
    if (!take_zone(&rest, &offset) || rest.n)
        return false;
    *time_us = unix_us(&c, offset) + us;
    return is_valid(&c);
}

bool log_time_parse(struct slice text, int64_t *time_us)
{
    return text.n > 2 && text.p[2] == '/' ? parse_common(text, time_us)
                                          : parse_rfc3339(text, time_us);
}
