/* text.h - a bounded text buffer. Text that does not fit is not written and sets `failed`.
 *
 * Used for message heads, log lines and keys: no allocation, no printf on the hot path. Check
 * `failed` once after writing. The bytes are text.p[0 .. text.n). */
#ifndef WEIR_BASE_TEXT_H
#define WEIR_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/slice.h"

struct text {
    char *p;     /* memory of the caller */
    size_t n;    /* bytes written so far */
    size_t cap;  /* capacity in bytes; set to `n` once a write did not fit */
    bool failed; /* a write did not fit; nothing was written since */
};

static inline struct text text_over(char *bytes, size_t cap)
{
    return (struct text){bytes, 0, cap, false};
}

static inline struct slice text_slice(const struct text *t)
{
    return (struct slice){t->p, t->n};
}

/* Returns false if there is no room for `n` more bytes; all later writes then fail too. */
static inline bool text_has_room(struct text *t, size_t n)
{
    if (n <= t->cap - t->n)
        return true;
    t->failed = true;
    t->cap = t->n;
    return false;
}

static inline void text_bytes(struct text *t, const char *p, size_t n)
{
    if (!text_has_room(t, n))
        return;
    memcpy(t->p + t->n, p, n);
    t->n += n;
}

static inline void text_char(struct text *t, char c)
{
    text_bytes(t, &c, 1);
}

static inline void text_put(struct text *t, struct slice s)
{
    if (s.n)
        text_bytes(t, s.p, s.n);
}

#define text_literal(t, literal) text_bytes((t), (literal), sizeof(literal) - 1)

/* Decimal digits. */
void text_u64(struct text *t, uint64_t value);
void text_i64(struct text *t, int64_t value);
/* Writes four numbers separated by dots: an IPv4 address. */
void text_dotted(struct text *t, const unsigned char octets[4]);
/* Writes lower-case hexadecimal digits: without leading zeros, or exactly `digits` (an even number,
 * at most 16). */
void text_hex(struct text *t, uint64_t value);
void text_hex_fixed(struct text *t, uint64_t value, unsigned digits);
/* Writes "%" and two upper-case hexadecimal digits (RFC 3986 section 2.1). */
void text_percent(struct text *t, unsigned char byte);
/* Writes the content of a JSON string: quotes, backslashes, control characters (C0, DEL, C1),
 * U+2028, U+2029, U+FFFE and U+FFFF are escaped, so that YAML reads the same. A byte that is not
 * UTF-8 becomes U+FFFD and two lower-case hexadecimal digits; so do the bytes of a U+FFFD before
 * two such digits, so that no two texts become the same. */
void text_json(struct text *t, struct slice s);
/* Returns the byte that text_json() has written as the first TEXT_JSON_BYTE bytes of `s`; -1: they
 * are something else. */
int text_json_byte(struct slice s);
enum { TEXT_JSON_BYTE = 5 };
/* Returns the bytes of the character at the start of `s`, which is not empty. Returns 0 if it is a
 * control character, which could command a terminal, or not UTF-8. */
size_t text_printable(struct slice s);
/* Returns whether all of `s` is UTF-8 (RFC 3629); may be empty. */
bool text_is_utf8(struct slice s);
/* Copies `s`; "?" stands for each byte that text_printable() refuses. */
void text_clean(struct text *t, struct slice s);
/* Same as printf. Not for the hot path. */
void text_printf(struct text *t, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
