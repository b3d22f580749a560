/* readings.h - how servers may read a path.
 *
 * Servers, frameworks and applications read a path further than its normal form, each in another way and order:
 *
 *   - "%2F" and "%5C" decoded, or all other percent codes, or both; any of these more than once
 *   - "\" as "/"
 *   - repeated slashes as one
 *   - ";parameters" of a segment removed
 *   - dot segments resolved (RFC 3986 section 5.2.4)
 *   - the path ended by a decoded "?", "#", NUL, CR or LF
 *   - "//name" at the front as an authority (RFC 3986 section 4.2), as `new URL(target, base)` has it
 *   - control bytes removed (the WHATWG URL Standard removes tabs and newlines; "$" of regular expressions matches before a
 *     newline)
 *   - dots and spaces at the end of a segment removed (Windows)
 *   - overlong UTF-8 and fullwidth forms as the ASCII characters they stand for
 *
 * The readings of a path are what any sequence of these steps makes of its normal form. */
#ifndef WEIR_HTTP_READINGS_H
#define WEIR_HTTP_READINGS_H

#include "base/text.h"

enum {
    READINGS_MAX = 64,
    READINGS_PATH_MAX = 64 << 10,
    READINGS_BASE = 32 << 10, /* bytes of all readings of one path: this, and three times the path's length */
    READINGS_ROOM = READINGS_BASE + 3 * READINGS_PATH_MAX
};

struct readings {
    unsigned count, next, expanded;
    bool too_many; /* there are more than READINGS_MAX, or more bytes than there is room for */
    struct slice at[READINGS_MAX];
    struct text room;
    char bytes[READINGS_ROOM];
};

/* Begins with `normal`, which path_normalise() wrote and which must stay where it is: at most READINGS_PATH_MAX bytes. */
void readings_begin(struct readings *readings, struct slice normal);

/* The next reading; each comes once, the first is the normal form. False: there is none, or readings->too_many. The work
 * is bounded: READINGS_ROOM bytes go through each step at most once. */
bool readings_next(struct readings *readings, struct slice *reading);

#endif
