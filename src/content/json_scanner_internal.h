/* json_scanner_internal.h - shared by json_scanner.c and json_string.c. */
#ifndef WEIR_CONTENT_JSON_SCANNER_INTERNAL_H
#define WEIR_CONTENT_JSON_SCANNER_INTERNAL_H

#include "content/json_scanner.h"

enum json_state {
    STATE_VALUE,
    STATE_ELEMENT_OR_END, /* after [ */
    STATE_NAME_OR_END,    /* after { */
    STATE_NAME,           /* after a comma in an object */
    STATE_COLON,
    STATE_COMMA_OR_END, /* after a value */
    STATE_STRING,
    STATE_UTF8, /* inside of a code point of several bytes */
    STATE_ESCAPE,
    STATE_HEX,       /* scanner.literal: the digits that were read */
    STATE_LOW_SLASH, /* after a high surrogate: \ */
    STATE_LOW_U,     /* and u */
    STATE_LITERAL,
    STATE_MINUS,
    STATE_ZERO,
    STATE_DIGITS,
    STATE_POINT,
    STATE_FRACTION,
    STATE_EXPONENT,
    STATE_EXPONENT_SIGN,
    STATE_EXPONENT_DIGITS,
    STATE_END,
    STATE_INVALID
};

/* ---- json_scanner.c -------------------------------------------------------------------------- */

/* Reports the value to the paths that end with it. */
void json_report(struct json_scanner *s, struct scanned_value value);
void json_end_value(struct json_scanner *s);
/* Appends to the text of a wanted value. */
void json_keep(struct json_scanner *s, struct slice bytes);
/* Returns whether the innermost container is an object of a path. */
bool json_in_tracked(const struct json_scanner *s);

/* ---- json_string.c --------------------------------------------------------------------------- */

void json_begin_name(struct json_scanner *s);
/* Reads a run of plain bytes of a string, and the byte after it. Returns the rest. */
const char *json_read_string(struct json_scanner *s, const char *p, const char *end);
/* Read one byte: after a backslash, of a code unit, of a code point of several bytes. */
void json_after_escape(struct json_scanner *s, char c);
void json_read_hex(struct json_scanner *s, char c);
void json_continue_utf8(struct json_scanner *s, unsigned char c);
/* A surrogate is not one of a pair. */
void json_unpaired(struct json_scanner *s);

#endif
