/* chars.h - character classes of the RFCs. */
#ifndef WEIR_HTTP_CHARS_H
#define WEIR_HTTP_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum char_class {
    CHAR_TOKEN = 1 << 0, /* tchar: RFC 9110 section 5.6.2 */
    CHAR_PLAIN = 1 << 1, /* letters, digits and "-": the characters of nearly all field names */
    /* HTAB, SP, VCHAR, obs-text: field values (RFC 9110 section 5.5), reason phrases (RFC 9112
     * section 4). */
    CHAR_TEXT = 1 << 2,
    CHAR_PATH = 1 << 3,  /* accepted in a target's path: visible ASCII except "#" and "?" */
    CHAR_QUERY = 1 << 4, /* accepted in a target's query: CHAR_PATH and "?" */
    CHAR_LABEL = 1 << 5, /* in a host label: unreserved (RFC 3986 section 2.3) except "." */
    CHAR_DIGIT = 1 << 6, /* DIGIT: RFC 5234 appendix B.1 */
    CHAR_HEX = 1 << 7,   /* HEXDIG, either case: RFC 5234 appendix B.1 */
    /* CHAR_PATH except "/" and the characters that servers interpret differently
     * (http/readings.h): "%", ";", "\". */
    CHAR_SEGMENT = 1 << 8
};

extern const uint16_t char_classes[256];

/* Returns whether `c` is in at least one of `classes`. */
static inline bool char_is(char c, unsigned classes)
{
    return (char_classes[(unsigned char)c] & classes) != 0;
}

/* Returns the value of a CHAR_HEX digit. */
static inline unsigned char_hex_value(char c)
{
    return (unsigned)(c & 15) + (c > '9' ? 9 : 0);
}

/* Returns the octet of the percent code at `p` (RFC 3986 section 2.1), or -1 if there is none. */
static inline int percent_code_at(const char *p, const char *end)
{
    if (end - p < 3 || *p != '%' || !char_is(p[1], CHAR_HEX) || !char_is(p[2], CHAR_HEX))
        return -1;
    return (int)(char_hex_value(p[1]) << 4 | char_hex_value(p[2]));
}

#endif
