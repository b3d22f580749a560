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
    CHAR_PATH = 1 << 3,  /* pchar and "/": RFC 3986 section 3.3 */
    CHAR_QUERY = 1 << 4, /* query: RFC 3986 section 3.4, and what clients send all the same, see chars.c */
    CHAR_HOST = 1 << 5,  /* reg-name but for pct-encoded: RFC 3986 section 3.2.2 */
    CHAR_DIGIT = 1 << 6, /* DIGIT: RFC 5234 appendix B.1 */
    CHAR_HEX = 1 << 7    /* HEXDIG of either case: RFC 5234 appendix B.1 */
};

extern const uint8_t char_classes[256];

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

#endif
