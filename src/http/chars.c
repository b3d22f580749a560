#include "http/chars.h"

/* unreserved and sub-delims of RFC 3986 that are tchar as well: allowed everywhere. */
#define EVERYWHERE (CHAR_TOKEN | CHAR_TEXT | CHAR_PATH | CHAR_QUERY | CHAR_HOST)
/* sub-delims that are no tchar. */
#define DELIMITER (CHAR_TEXT | CHAR_PATH | CHAR_QUERY | CHAR_HOST)
/* RFC 3986 allows these nowhere unescaped but "[" and "]" around an IPv6 address. Browsers (the WHATWG URL
 * Standard's query percent-encode set) and scripts send them in queries, nginx and HAProxy take them there,
 * and so does weir: a query neither frames a message nor chooses a rule. In a path they are refused. */
#define TOLERATED CHAR_QUERY

const uint8_t char_classes[256] = {
    ['\t'] = CHAR_TEXT,
    [' '] = CHAR_TEXT,
    ['!'] = EVERYWHERE,
    ['"'] = CHAR_TEXT | TOLERATED,
    ['#'] = CHAR_TOKEN | CHAR_TEXT,
    ['$'] = EVERYWHERE,
    ['%'] = CHAR_TOKEN | CHAR_TEXT | CHAR_PATH | CHAR_QUERY,
    ['&'] = EVERYWHERE,
    ['\''] = EVERYWHERE,
    ['('] = DELIMITER,
    [')'] = DELIMITER,
    ['*'] = EVERYWHERE,
    ['+'] = EVERYWHERE,
    [','] = DELIMITER,
    ['-'] = EVERYWHERE | CHAR_PLAIN,
    ['.'] = EVERYWHERE,
    ['/'] = CHAR_TEXT | CHAR_PATH | CHAR_QUERY,
    ['0' ... '9'] = EVERYWHERE | CHAR_PLAIN | CHAR_DIGIT | CHAR_HEX,
    [':'] = CHAR_TEXT | CHAR_PATH | CHAR_QUERY,
    [';'] = DELIMITER,
    ['<'] = CHAR_TEXT | TOLERATED,
    ['='] = DELIMITER,
    ['>'] = CHAR_TEXT | TOLERATED,
    ['?'] = CHAR_TEXT | CHAR_QUERY,
    ['@'] = CHAR_TEXT | CHAR_PATH | CHAR_QUERY,
    ['A' ... 'F'] = EVERYWHERE | CHAR_PLAIN | CHAR_HEX,
    ['G' ... 'Z'] = EVERYWHERE | CHAR_PLAIN,
    ['['] = CHAR_TEXT | TOLERATED,
    ['\\'] = CHAR_TEXT | TOLERATED,
    [']'] = CHAR_TEXT | TOLERATED,
    ['^'] = CHAR_TOKEN | CHAR_TEXT | TOLERATED,
    ['_'] = EVERYWHERE,
    ['`'] = CHAR_TOKEN | CHAR_TEXT | TOLERATED,
    ['a' ... 'f'] = EVERYWHERE | CHAR_PLAIN | CHAR_HEX,
    ['g' ... 'z'] = EVERYWHERE | CHAR_PLAIN,
    ['{'] = CHAR_TEXT | TOLERATED,
    ['|'] = CHAR_TOKEN | CHAR_TEXT | TOLERATED,
    ['}'] = CHAR_TEXT | TOLERATED,
    ['~'] = EVERYWHERE,
    [0x80 ... 0xff] = CHAR_TEXT, /* obs-text */
};
