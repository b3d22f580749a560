#include "base/slice.h"

#include "base/scan.h"

/* Lower-cases 8 bytes at once. A byte without its high bit is a capital letter if adding (0x80 -
 * 'A') carries into the high bit and adding (0x7f - 'Z') does not. */
static inline uint64_t lower_eight(const char *p)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t word, low;

    memcpy(&word, p, sizeof word);
    low = word & each * 0x7f;
    return word |
           (((low + each * (128 - 'A')) ^ (low + each * (127 - 'Z'))) & ~word & each * 0x80) >> 2;
}

bool slice_is_alnum_or(struct slice s, const char *others)
{
    for (size_t i = 0; i < s.n; i++)
        if (!ascii_is_alnum(s.p[i]) && !(s.p[i] && strchr(others, s.p[i])))
            return false;
    return true;
}

bool slice_equal_nocase(struct slice a, struct slice b)
{
    size_t i = 0;

    if (a.n != b.n)
        return false;
    if (a.n >= 8) {
        for (; i + 8 <= a.n; i += 8)
            if (lower_eight(a.p + i) != lower_eight(b.p + i))
                return false;
        return lower_eight(a.p + a.n - 8) == lower_eight(b.p + b.n - 8);
    }
    for (; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

bool slice_starts_with(struct slice whole, struct slice start)
{
    return whole.n >= start.n && (start.n == 0 || memcmp(whole.p, start.p, start.n) == 0);
}

bool slice_has_control_bytes(struct slice s)
{
    return s.n && scan_to_control(s.p, s.p + s.n) < s.p + s.n;
}

bool slice_next_element(struct slice *rest, struct slice *element)
{
    while (rest->n) {
        const char *comma = memchr(rest->p, ',', rest->n);
        size_t length = comma ? (size_t)(comma - rest->p) : rest->n;
        *element = slice_trim_ows((struct slice){rest->p, length});
        size_t taken = length + (comma ? 1 : 0);
        rest->p += taken;
        rest->n -= taken;
        if (element->n)
            return true;
    }
    return false;
}

bool slice_to_u64(struct slice s, uint64_t max, uint64_t *value)
{
    enum { SAFE_DIGITS = 19 }; /* one more digit may overflow */
    uint64_t sum = 0;
    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(s.p[i] - '0');
        if (i >= SAFE_DIGITS && (sum > UINT64_MAX / 10 || digit > UINT64_MAX - sum * 10))
            return false;
        sum = sum * 10 + digit;
    }
    if (sum > max)
        return false;
    *value = sum;
    return true;
}

struct slice slice_after_bom(struct slice text)
{
    bool marked = slice_starts_with(text, SLICE("\xef\xbb\xbf"));
    return marked ? (struct slice){text.p + 3, text.n - 3} : text;
}
