#include "policy/pairs.h"

#include <ctype.h>
#include <string.h>

#include "http/chars.h"

static bool is_separator(const struct pairs *pairs, char c)
{
    return c == pairs->separators[0] || c == pairs->separators[1];
}

bool pairs_next(struct pairs *pairs, struct pair *pair)
{
    size_t n = 0;

    if (pairs->ended)
        return false;
    while (n < pairs->rest.n && !is_separator(pairs, pairs->rest.p[n]))
        n++;
    *pair = (struct pair){.text = {pairs->rest.p, n}, .before = pairs->before};
    pairs->ended = n == pairs->rest.n;
    pair->after = pairs->before = pairs->ended ? 0 : pairs->rest.p[n];
    pairs->rest =
        pairs->ended ? SLICE_NONE : (struct slice){pairs->rest.p + n + 1, pairs->rest.n - n - 1};

    const char *equals = n ? memchr(pair->text.p, '=', n) : NULL;
    pair->has_value = equals != NULL;
    pair->name = (struct slice){pair->text.p, equals ? (size_t)(equals - pair->text.p) : n};
    if (equals)
        pair->value = (struct slice){equals + 1, n - pair->name.n - 1};
    return true;
}

static int octal(char c)
{
    return c >= '0' && c <= '7' ? c - '0' : -1;
}

/* Returns the next byte, without its backslash, or PERCENT_END. */
static int unescaped(struct percent *percent)
{
    const char *p = percent->p;
    size_t left = (size_t)(percent->end - p);

    if (left == 0)
        return PERCENT_END;
    if (!percent->quoted || *p != '\\' || left == 1) {
        percent->p++;
        return (unsigned char)*p;
    }
    if (left >= 4 && octal(p[1]) >= 0 && octal(p[1]) <= 3 && octal(p[2]) >= 0 && octal(p[3]) >= 0) {
        percent->p += 4;
        return octal(p[1]) << 6 | octal(p[2]) << 3 | octal(p[3]);
    }
    percent->p += 2;
    return (unsigned char)p[1];
}

int percent_next(struct percent *percent)
{
    int c = unescaped(percent);

    if (c != '%')
        return c == '+' ? ' ' : c;
    struct percent ahead = *percent;
    char code[3] = {'%'};
    code[1] = (char)unescaped(&ahead);
    code[2] = (char)unescaped(&ahead);
    int octet = percent_code_at(code, code + sizeof code);
    if (octet < 0)
        return PERCENT_MALFORMED;
    *percent = ahead;
    return octet;
}

enum { UNICODE_CODE = 6 }; /* bytes of "%uXXXX" */

/* Returns the value of the "%uXXXX" at `p`; -1: there is none. */
static int unicode_code_at(const char *p, const char *end)
{
    int value = 0;

    if (end - p < UNICODE_CODE || (p[1] != 'u' && p[1] != 'U'))
        return -1;
    for (unsigned i = 2; i < UNICODE_CODE; i++) {
        if (!isxdigit((unsigned char)p[i]))
            return -1;
        value = value << 4 | (p[i] <= '9' ? p[i] - '0' : (p[i] & ~0x20) - 'A' + 10);
    }
    return value;
}

static char *put_utf8(char *to, int code)
{
    if (code >= 0x800)
        *to++ = (char)(0xe0 | code >> 12);
    if (code >= 0x80) {
        *to++ = (char)(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
        code = 0x80 | (code & 0x3f);
    }
    *to++ = (char)code;
    return to;
}

static struct slice decode(struct slice coded, bool plus, bool unicode, char *out)
{
    char *to = out;

    for (const char *p = coded.p, *end = p + coded.n; p < end;) {
        int octet = *p == '%' ? percent_code_at(p, end) : -1;
        int code = *p == '%' && unicode ? unicode_code_at(p, end) : -1;
        if (code >= 0)
            to = put_utf8(to, code);
        else
            *to++ = octet >= 0 ? (char)octet : plus && *p == '+' ? ' ' : *p;
        p += code >= 0 ? UNICODE_CODE : octet >= 0 ? 3 : 1;
    }
    return (struct slice){out, (size_t)(to - out)};
}

struct slice percent_decode(struct slice coded, bool plus, char *out)
{
    return decode(coded.n ? coded : SLICE(""), plus, false, out);
}

struct slice percent_decode_again(struct slice coded, char *out)
{
    return decode(coded, false, true, out);
}

bool percent_is_in(struct slice text)
{
    const char *p = text.p, *end = p + text.n;

    while (p < end && (p = memchr(p, '%', (size_t)(end - p)))) {
        if (percent_code_at(p, end) >= 0 || unicode_code_at(p, end) >= 0)
            return true;
        p++;
    }
    return false;
}

bool percent_is_malformed(struct slice text)
{
    const char *p = text.p, *end = p + text.n;

    while (p < end && (p = memchr(p, '%', (size_t)(end - p)))) {
        if (percent_code_at(p, end) < 0)
            return true;
        p++;
    }
    return false;
}

/* --- Names --- */

static int in_variable(int c)
{
    return c >= 0 && c < 128 && isalnum(c) ? ascii_lower((char)c) : '_';
}

/* Compares from the position on. Returns the first byte after the wanted name in `*after`. */
static enum name_match match_start(struct percent percent, struct slice wanted, int *after)
{
    bool equal = true;

    *after = percent_next(&percent);
    for (size_t i = 0; i < wanted.n; i++, *after = percent_next(&percent)) {
        if (*after == PERCENT_END || in_variable(*after) != in_variable((unsigned char)wanted.p[i]))
            return NAME_DIFFERS;
        equal &= *after == (unsigned char)wanted.p[i];
    }
    return equal && *after == PERCENT_END ? NAME_EQUAL : NAME_TWIN;
}

/* Returns true if `c` is the end of a name for some servers: of its variable, for an array, or of a
 * C string. */
static bool ends_name(int c, struct slice wanted)
{
    return c == PERCENT_END || c == 0 || (c == '[' && !memchr(wanted.p, '[', wanted.n));
}

enum name_match name_match(struct slice coded, struct slice wanted)
{
    struct percent percent = {coded.p, coded.p + coded.n, false}, next = percent;
    bool is_spaced = percent_next(&next) == ' ';
    int after;
    enum name_match match = match_start(percent, wanted, &after);

    if (match != NAME_DIFFERS && (is_spaced ? after == PERCENT_END : ends_name(after, wanted)))
        return match;
    if (!is_spaced)
        return NAME_DIFFERS;
    do
        percent = next;
    while (percent_next(&next) == ' ');
    match = match_start(percent, wanted, &after);
    return match != NAME_DIFFERS && ends_name(after, wanted) ? NAME_TWIN : NAME_DIFFERS;
}
