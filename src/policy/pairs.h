/* pairs.h - "name=value" pairs of query strings and Cookie fields, and names that servers may read
 * as one. */
#ifndef WEIR_POLICY_PAIRS_H
#define WEIR_POLICY_PAIRS_H

#include "base/slice.h"

/* Unread pairs, separated by one of the characters in `separators`, which has one or two. */
struct pairs {
    struct slice rest;
    const char *separators;
    char before; /* separator before the next pair; 0: none */
    bool ended;
};

struct pair {
    struct slice text;        /* the whole pair */
    struct slice name, value; /* encoded */
    bool has_value;           /* the pair contains a "=" */
    char before, after;       /* separators beside the pair; 0: none */
};

static inline struct pairs pairs_of(struct slice text, const char *separators)
{
    return (struct pairs){.rest = text, .separators = separators};
}

/* Sets the next pair, which may be empty. Returns false after the last one. */
bool pairs_next(struct pairs *pairs, struct pair *pair);

/* Decodes percent-encoding once, and "+" as a space (application/x-www-form-urlencoded, WHATWG URL
 * Standard section 5). If `quoted`, first removes the backslashes of a quoted cookie value: "\141"
 * and "\a" are "a" (Python's http.cookies). */
struct percent {
    const char *p, *end;
    bool quoted;
};

enum { PERCENT_END = -1, PERCENT_MALFORMED = -2 };

/* Returns the next byte, PERCENT_END, or PERCENT_MALFORMED for a "%" without two hexadecimal
 * digits, which is skipped. */
int percent_next(struct percent *percent);

/* Decodes once into `out`, which may be where `coded` is; "+" is a space only with `plus`. Invalid
 * codes stay. */
struct slice percent_decode(struct slice coded, bool plus, char *out);
/* Decodes a decoded text once more, also "%uXXXX" to UTF-8 (ASP.NET, escape() of JavaScript). */
struct slice percent_decode_again(struct slice coded, char *out);
/* Returns true if the text contains a valid percent code, or a "%uXXXX". */
bool percent_is_in(struct slice text);
/* Returns true if the text contains a "%" without two hexadecimal digits. */
bool percent_is_malformed(struct slice text);

/* NAME_TWIN: some servers take the name for the wanted one. They ignore case or leading spaces,
 * read characters such as "." and "-" as "_" (PHP), read "name[]" and "name[key]" as name, or end
 * names at a NUL. */
enum name_match { NAME_DIFFERS, NAME_TWIN, NAME_EQUAL };

/* Compares an encoded name with that of an option. */
enum name_match name_match(struct slice coded, struct slice wanted);

#endif
