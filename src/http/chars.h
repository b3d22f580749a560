/* chars.h - classes of bytes, each as its RFC defines it. */
#ifndef WEIR_HTTP_CHARS_H
#define WEIR_HTTP_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum char_class {
    CHAR_TOKEN = 1 << 0, /* tchar: RFC 9110 section 5.6.2 */
    CHAR_PLAIN = 1 << 1, /* letters, digits and "-": of such characters nearly all field names are made */
    CHAR_TEXT = 1 << 2,  /* HTAB, SP, VCHAR, obs-text: in field values (RFC 9110 section 5.5), reasons (RFC
                            9112 section 4) */
    CHAR_PATH = 1 << 3,  /* accepted in a target's path: every visible ASCII character but "#" and "?" */
    CHAR_QUERY = 1 << 4, /* accepted in a target's query: the same and "?" */
    CHAR_LABEL = 1 << 5, /* in a label of a host: unreserved (RFC 3986 section 2.3) but "." */
    CHAR_DIGIT = 1 << 6, /* DIGIT: RFC 5234 appendix B.1 */
    CHAR_HEX = 1 << 7,   /* HEXDIG of either case: RFC 5234 appendix B.1 */
    CHAR_SEGMENT =
        1 << 8 /* CHAR_PATH but "/" and what servers read in several ways (http/readings.h): "%", ";", "\" */
};

extern const uint16_t char_classes[256];

/* Is `c` in at least one of `classes`? */
static inline bool char_is(char c, unsigned classes)
{
    return (char_classes[(unsigned char)c] & classes) != 0;
}

/* The value of a digit of class CHAR_HEX. */
static inline unsigned char_hex_value(char c)
{
    return (unsigned)(c & 15) + (c > '9' ? 9 : 0);
}

/* The octet that the percent code at `p` stands for (RFC 3986 section 2.1); -1: there is none. */
static inline int percent_code_at(const char *p, const char *end)
{
    if (end - p < 3 || *p != '%' || !char_is(p[1], CHAR_HEX) || !char_is(p[2], CHAR_HEX))
        return -1;
    return (int)(char_hex_value(p[1]) << 4 | char_hex_value(p[2]));
}

#endif
