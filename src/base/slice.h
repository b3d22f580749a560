/* slice.h - a pointer and a length. The bytes are not owned and not NUL-terminated. */
#ifndef WEIR_BASE_SLICE_H
#define WEIR_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

struct slice {
    const char *p;
    size_t n;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})
#define SLICE_NONE     ((struct slice){NULL, 0})
/* For printf: "%.*s", SLICE_ARG(s) */
#define SLICE_ARG(s) (int)(s).n, (s).p

static inline struct slice slice_of(const char *text)
{
    return (struct slice){text, text ? strlen(text) : 0};
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Returns an ASCII letter in lower case, any other byte unchanged. */
static inline char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool ascii_is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

/* Returns whether `s` contains only ASCII letters, digits and the characters of `others`. */
bool slice_is_alnum_or(struct slice s, const char *others);

/* Compares, ignoring ASCII case, as for field names and hosts (RFC 9110 section 5.1). */
bool slice_equal_nocase(struct slice a, struct slice b);

bool slice_starts_with(struct slice whole, struct slice start);
static inline bool slice_starts_with_nocase(struct slice whole, struct slice start)
{
    return whole.n >= start.n && slice_equal_nocase((struct slice){whole.p, start.n}, start);
}

/* Removes SP and HTAB from both ends (OWS of RFC 9110 section 5.6.3). */
static inline struct slice slice_trim_ows(struct slice s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* Returns whether `s` contains bytes below space, or DEL. */
bool slice_has_control_bytes(struct slice s);

/* Removes the next element from a comma-separated list (RFC 9110 section 5.6.1). The element is
 * trimmed; empty elements are skipped. Returns false at the end of the list. For lists of tokens
 * only: quoted strings are not parsed. */
bool slice_next_element(struct slice *rest, struct slice *element);

/* Removes the byte order mark that some editors put before UTF-8 text. */
struct slice slice_after_bom(struct slice text);

/* Parses all of `s` as decimal digits: no sign, at least one digit, at most `max`. On failure,
 * returns false and leaves `*value` unchanged. */
MUST_CHECK bool slice_to_u64(struct slice s, uint64_t max, uint64_t *value);

#endif
