#include "http/chars.h"

/* Accepted in a target. RFC 3986 allows fewer characters, but browsers (the percent-encode sets of
 * the WHATWG URL Standard) and HTTP libraries send the others too, and nginx and HAProxy accept
 * them. None of them can end a target. */
#define TARGET (CHAR_TEXT | CHAR_PATH | CHAR_SEGMENT | CHAR_QUERY)
/* tchar: RFC 9110 section 5.6.2. */
#define TCHAR (TARGET | CHAR_TOKEN)
/* unreserved: RFC 3986 section 2.3. */
#define UNRESERVED (TCHAR | CHAR_LABEL)

const uint16_t char_classes[256] = {
    ['\t'] = CHAR_TEXT,
    [' '] = CHAR_TEXT,
    ['!'] = TCHAR,
    ['"'] = TARGET,
    ['#'] = CHAR_TOKEN | CHAR_TEXT,
    ['$'] = TCHAR,
    ['%'] = TCHAR & ~CHAR_SEGMENT,
    ['&'] = TCHAR,
    ['\''] = TCHAR,
    ['('] = TARGET,
    [')'] = TARGET,
    ['*'] = TCHAR,
    ['+'] = TCHAR,
    [','] = TARGET,
    ['-'] = UNRESERVED | CHAR_PLAIN,
    ['.'] = UNRESERVED & ~CHAR_LABEL,
    ['/'] = TARGET & ~CHAR_SEGMENT,
    ['0' ... '9'] = UNRESERVED | CHAR_PLAIN | CHAR_DIGIT | CHAR_HEX,
    [':'] = TARGET,
    [';'] = TARGET & ~CHAR_SEGMENT,
    ['<'] = TARGET,
    ['='] = TARGET,
    ['>'] = TARGET,
    ['?'] = CHAR_TEXT | CHAR_QUERY,
    ['@'] = TARGET,
    ['A' ... 'F'] = UNRESERVED | CHAR_PLAIN | CHAR_HEX,
    ['G' ... 'Z'] = UNRESERVED | CHAR_PLAIN,
    ['['] = TARGET,
    ['\\'] = TARGET & ~CHAR_SEGMENT,
    [']'] = TARGET,
    ['^'] = TCHAR,
    ['_'] = UNRESERVED,
    ['`'] = TCHAR,
    ['a' ... 'f'] = UNRESERVED | CHAR_PLAIN | CHAR_HEX,
    ['g' ... 'z'] = UNRESERVED | CHAR_PLAIN,
    ['{'] = TARGET,
    ['|'] = TCHAR,
    ['}'] = TARGET,
    ['~'] = UNRESERVED,
    [0x80 ... 0xff] = CHAR_TEXT, /* obs-text */
};
