#include "base/values.h"

#include <inttypes.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t worth;
};

/* Largest first, for writing. */
static const struct unit duration_units[] = {{"d", 86400000000}, {"h", 3600000000}, {"m", 60000000},
                                             {"s", 1000000},     {"ms", 1000},      {"us", 1}};
static const struct unit size_units[] = {{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"", 1}};

static const struct unit *unit_named(const struct unit *units, size_t count, struct slice name)
{
    for (size_t i = 0; i < count; i++)
        if (slice_equal(name, slice_of(units[i].name)))
            return &units[i];
    return NULL;
}

static enum value_result read_units(struct slice text, const struct unit *units, size_t count,
                                    int64_t *value)
{
    size_t digits = 0;
    uint64_t number;

    while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
        digits++;
    const struct unit *unit =
        unit_named(units, count, (struct slice){text.p + digits, text.n - digits});
    if (digits == 0 || (!unit && digits < text.n))
        return VALUE_NO_NUMBER;
    if (!slice_to_u64((struct slice){text.p, digits}, INT64_MAX, &number))
        return VALUE_TOO_LARGE;
    if (!unit && number != 0)
        return VALUE_NO_UNIT;
    int64_t worth = unit ? unit->worth : 1;
    if ((int64_t)number > INT64_MAX / worth)
        return VALUE_TOO_LARGE;
    *value = (int64_t)number * worth;
    return VALUE_GOOD;
}

static void write_units(struct text *out, const struct unit *unit, int64_t value)
{
    while (value % unit->worth != 0)
        unit++;
    text_i64(out, value / unit->worth);
    text_put(out, slice_of(unit->name));
}

/* Common spellings of units, matched in any case. */
struct other_unit {
    const char *word, *name;
};

static const struct other_unit other_durations[] = {
    {"us", "us"}, {"usec", "us"}, {"ms", "ms"},    {"msec", "ms"},   {"s", "s"},
    {"sec", "s"}, {"secs", "s"},  {"second", "s"}, {"seconds", "s"}, {"m", "m"},
    {"min", "m"}, {"mins", "m"},  {"minute", "m"}, {"minutes", "m"}, {"h", "h"},
    {"hr", "h"},  {"hrs", "h"},   {"hour", "h"},   {"hours", "h"},   {"d", "d"},
    {"day", "d"}, {"days", "d"}};
static const struct other_unit other_sizes[] = {
    {"b", ""},   {"k", "k"},   {"kb", "k"}, {"kib", "k"}, {"m", "m"},
    {"mb", "m"}, {"mib", "m"}, {"g", "g"},  {"gb", "g"},  {"gib", "g"}};

static void write_meant(struct slice text, const struct other_unit *units, size_t count,
                        struct text *out)
{
    size_t digits = 0, begin;

    while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
        digits++;
    for (begin = digits; begin < text.n && text.p[begin] == ' ';)
        begin++;
    struct slice word = {text.p + begin, text.n - begin};
    for (size_t i = 0; digits && i < count; i++)
        if (strlen(units[i].word) == word.n && strncasecmp(units[i].word, word.p, word.n) == 0) {
            text_put(out, (struct slice){text.p, digits});
            text_put(out, slice_of(units[i].name));
            return;
        }
}

void duration_meant(struct slice text, struct text *out)
{
    write_meant(text, other_durations, COUNT_OF(other_durations), out);
}

void size_meant(struct slice text, struct text *out)
{
    write_meant(text, other_sizes, COUNT_OF(other_sizes), out);
}

enum value_result duration_read(struct slice text, int64_t *us)
{
    return read_units(text, duration_units, COUNT_OF(duration_units), us);
}

void duration_write(struct text *out, int64_t us)
{
    if (us == 0)
        text_literal(out, "0s");
    else
        write_units(out, duration_units, us);
}

enum value_result size_read(struct slice text, int64_t *bytes)
{
    return read_units(text, size_units, COUNT_OF(size_units), bytes);
}

void size_write(struct text *out, int64_t bytes)
{
    if (bytes == 0)
        text_char(out, '0');
    else
        write_units(out, size_units, bytes);
}

enum value_result number_read(struct slice text, int64_t *number)
{
    bool negative = text.n && text.p[0] == '-';
    struct slice digits = {text.p + negative, text.n - negative};
    uint64_t value;

    for (size_t i = 0; i < digits.n; i++)
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return VALUE_NO_NUMBER;
    if (digits.n == 0)
        return VALUE_NO_NUMBER;
    if (!slice_to_u64(digits, INT64_MAX, &value))
        return VALUE_TOO_LARGE;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return VALUE_GOOD;
}

enum value_result decimal_read(struct slice text, unsigned places, int64_t max, int64_t *number)
{
    const char *dot = text.n ? memchr(text.p, '.', text.n) : NULL;
    size_t decimals = dot ? text.n - (size_t)(dot - text.p) - 1 : 0;
    int64_t value = 0;

    if (text.n == 0 || dot == text.p || (dot && decimals == 0) || decimals > places)
        return VALUE_NO_NUMBER;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p + i == dot)
            continue;
        if (text.p[i] < '0' || text.p[i] > '9')
            return VALUE_NO_NUMBER;
        if (value <= max)
            value = value * 10 + text.p[i] - '0';
    }
    for (; decimals < places && value <= max; decimals++)
        value *= 10;
    if (value > max)
        return VALUE_TOO_LARGE;
    *number = value;
    return VALUE_GOOD;
}

enum value_result share_read(struct slice text, int64_t *share)
{
    enum { SHARE_MAX = 100000099 }; /* 1000000.99% */

    if (text.n < 2 || text.p[text.n - 1] != '%')
        return VALUE_NO_NUMBER;
    return decimal_read((struct slice){text.p, text.n - 1}, 2, SHARE_MAX, share);
}

void share_write(struct text *out, int64_t share)
{
    text_i64(out, share / 100);
    if (share % 100) {
        text_char(out, '.');
        text_char(out, (char)('0' + share % 100 / 10));
        if (share % 10)
            text_char(out, (char)('0' + share % 10));
    }
    text_char(out, '%');
}

void wait_write(struct text *out, int64_t us)
{
    int64_t s = us / 1000000 + (us % 1000000 != 0);

    if (us <= 0)
        text_char(out, '-');
    else if (s < 120)
        text_printf(out, "%.1f s", (double)us / 1e6);
    else if (s < 7200)
        text_printf(out, "%" PRId64 "m %02" PRId64 "s", s / 60, s % 60);
    else
        text_printf(out, "%" PRId64 "h %02" PRId64 "m", s / 3600, s % 3600 / 60);
}
