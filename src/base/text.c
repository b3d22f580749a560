#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

static const char hex_digit[] = "0123456789abcdef";

static const char two_digits[] = "00010203040506070809101112131415161718192021222324"
                                 "25262728293031323334353637383940414243444546474849"
                                 "50515253545556575859606162636465666768697071727374"
                                 "75767778798081828384858687888990919293949596979899";

#define E(exponent) ((uint64_t)1e##exponent)

/* 1233 / 4096 approximates log10(2) from below. */
static unsigned decimal_length(uint64_t value)
{
    static const uint64_t power[] = {0,     E(1),  E(2),  E(3),  E(4),  E(5),  E(6),
                                     E(7),  E(8),  E(9),  E(10), E(11), E(12), E(13),
                                     E(14), E(15), E(16), E(17), E(18), E(19)};
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1), n = bits * 1233 >> 12;
    return n + (value >= power[n]);
}

void text_u64(struct text *t, uint64_t value)
{
    unsigned n = decimal_length(value);

    if (!text_has_room(t, n))
        return;
    t->n += n;
    char *p = t->p + t->n;
    for (; value >= 100; value /= 100)
        memcpy(p -= 2, two_digits + value % 100 * 2, 2);
    if (value >= 10)
        memcpy(p - 2, two_digits + value * 2, 2);
    else
        p[-1] = (char)('0' + value);
}

/* Returns the end of the digits at `p`. */
static char *put_octet(char *p, unsigned char value)
{
    if (value < 10) {
        *p = (char)('0' + value);
        return p + 1;
    }
    if (value >= 100)
        *p++ = (char)('0' + value / 100);
    memcpy(p, two_digits + value % 100 * 2, 2);
    return p + 2;
}

void text_dotted(struct text *t, const unsigned char octets[4])
{
    char bytes[sizeof "255.255.255.255."], *p = bytes;

    for (unsigned i = 0; i < 4; i++) {
        p = put_octet(p, octets[i]);
        *p++ = '.';
    }
    text_bytes(t, bytes, (size_t)(p - bytes) - 1);
}

void text_i64(struct text *t, int64_t value)
{
    if (value < 0)
        text_char(t, '-');
    text_u64(t, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void text_hex(struct text *t, uint64_t value)
{
    char digits[16];
    size_t i = sizeof digits;
    do
        digits[--i] = hex_digit[value & 15];
    while (value >>= 4);
    text_bytes(t, digits + i, sizeof digits - i);
}

void text_hex_fixed(struct text *t, uint64_t value, unsigned digits)
{
    if (!text_has_room(t, digits))
        return;
    char *start = t->p + t->n;
    t->n += digits;
    for (char *p = start + digits; p > start; value >>= 8) {
        *--p = hex_digit[value & 15];
        *--p = hex_digit[value >> 4 & 15];
    }
}

void text_percent(struct text *t, unsigned char byte)
{
    static const char digits[] = "0123456789ABCDEF";

    text_bytes(t, (char[]){'%', digits[byte >> 4], digits[byte & 15]}, 3);
}

/* Returns the length of the UTF-8 sequence at the start of `s`, or 0 if it is not well-formed (RFC
 * 3629 section 4). */
static size_t utf8_length(struct slice s)
{
    const unsigned char *b = (const unsigned char *)s.p;
    size_t n = b[0] < 0x80                   ? 1
               : b[0] >= 0xc2 && b[0] < 0xe0 ? 2
               : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
               : b[0] >= 0xf0 && b[0] < 0xf5 ? 4
                                             : 0;
    if (n == 0 || n > s.n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f) ||
        (b[0] == 0xf0 && b[1] < 0x90) || (b[0] == 0xf4 && b[1] > 0x8f))
        return 0;
    return n;
}

/* U+0080 to U+009F are control characters (ISO/IEC 6429): U+009B begins a command like ESC [. */
static bool is_c1(struct slice utf8)
{
    return (unsigned char)utf8.p[0] == 0xc2 && (unsigned char)utf8.p[1] < 0xa0;
}

size_t text_printable(struct slice s)
{
    unsigned char c = (unsigned char)s.p[0];
    size_t n = utf8_length(s);
    return c < ' ' || c == 0x7f || (n == 2 && is_c1(s)) ? 0 : n;
}

bool text_is_utf8(struct slice s)
{
    while (s.n) {
        size_t n = utf8_length(s);
        if (n == 0)
            return false;
        s = (struct slice){s.p + n, s.n - n};
    }
    return true;
}

void text_clean(struct text *t, struct slice s)
{
    for (size_t n; s.n; s.p += n, s.n -= n) {
        n = text_printable(s);
        text_bytes(t, n ? s.p : "?", n ? n : 1);
        n += n == 0;
    }
}

static void json_escape(struct text *t, unsigned c)
{
    switch (c) {
    case '"': text_literal(t, "\\\""); break;
    case '\\': text_literal(t, "\\\\"); break;
    case '\n': text_literal(t, "\\n"); break;
    case '\r': text_literal(t, "\\r"); break;
    case '\t': text_literal(t, "\\t"); break;
    default: text_literal(t, "\\u"); text_hex_fixed(t, c, 4);
    }
}

static inline bool json_plain(char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* Returns the code of a character of `n` bytes if it is escaped, else 0. YAML breaks lines at
 * U+2028 and U+2029, and refuses U+FFFE and U+FFFF. */
static unsigned escaped_code(struct slice utf8, size_t n)
{
    const unsigned char *b = (const unsigned char *)utf8.p;

    if (n == 2)
        return is_c1(utf8) ? b[1] : 0;
    unsigned code = n == 3 ? (b[0] & 15U) << 12 | (b[1] & 63U) << 6 | (b[2] & 63U) : 0;
    return code == 0x2028 || code == 0x2029 || code >= 0xfffe ? code : 0;
}

int text_json_byte(struct slice s)
{
    if (s.n < TEXT_JSON_BYTE || memcmp(s.p, "\xef\xbf\xbd", 3) != 0)
        return -1;
    const char *high = memchr(hex_digit, s.p[3], 16), *low = memchr(hex_digit, s.p[4], 16);
    return high && low ? (int)((high - hex_digit) << 4 | (low - hex_digit)) : -1;
}

void text_json(struct text *t, struct slice s)
{
    while (s.n) {
        size_t plain = 0;
        while (plain < s.n && json_plain(s.p[plain]))
            plain++;
        text_bytes(t, s.p, plain);
        s.p += plain, s.n -= plain;
        if (s.n == 0)
            break;
        unsigned char c = (unsigned char)s.p[0];
        size_t taken = utf8_length(s);
        unsigned code = c < 0x80 ? c : escaped_code(s, taken);
        if (c < 0x80 || code)
            json_escape(t, code);
        else if (taken != 0 && text_json_byte(s) < 0)
            text_bytes(t, s.p, taken);
        else {
            text_literal(t, "\xef\xbf\xbd");
            text_hex_fixed(t, c, 2);
            taken = 1;
        }
        s.p += taken, s.n -= taken;
    }
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    if (t->failed)
        return;
    va_start(args, format);
    int n = vsnprintf(t->p + t->n, t->cap - t->n, format, args);
    va_end(args);
    if (n >= 0 && text_has_room(t, (size_t)n + 1)) /* vsnprintf also writes a NUL */
        t->n += (size_t)n;
    else
        t->failed = true;
}
