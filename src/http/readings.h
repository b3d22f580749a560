/* readings.h - the different ways in which servers interpret a path.
 *
 * Servers, frameworks and applications transform a path further, in different orders:
 *
 *   - decode "%2F" and "%5C", or all other percent codes, or both, once or several times
 *   - replace "\" with "/"
 *   - merge repeated slashes
 *   - remove the ";parameters" of a segment
 *   - resolve dot segments (RFC 3986 section 5.2.4)
 *   - end the path at a decoded "?", "#", NUL, CR or LF
 *   - parse a leading "//name" as an authority (RFC 3986 section 4.2), as `new URL(target, base)`
 *     does
 *   - remove control bytes (the WHATWG URL Standard removes tabs and newlines; "$" in a regular
 *     expression matches before a newline)
 *   - remove dots and spaces at the end of a segment (Windows)
 *   - replace overlong UTF-8 and fullwidth forms with the ASCII characters that they represent
 *
 * The readings of a path are the results of all sequences of these steps on its normal form. */
#ifndef WEIR_HTTP_READINGS_H
#define WEIR_HTTP_READINGS_H

#include "base/text.h"

enum {
    READINGS_MAX = 64,
    READINGS_PATH_MAX = 64 << 10,
    READINGS_BASE = 32 << 10, /* bytes for all readings of one path: this plus 3 times its length */
    READINGS_ROOM = READINGS_BASE + 3 * READINGS_PATH_MAX
};

struct readings {
    unsigned count, next, expanded;
    bool too_many; /* more than READINGS_MAX readings, or no space left in `room` */
    struct slice at[READINGS_MAX];
    struct text room;
    char bytes[READINGS_ROOM];
};

/* Starts with `normal`, the output of path_normalise(): at most READINGS_PATH_MAX bytes. The caller
 * keeps it unchanged and in place while `readings` is in use. */
void readings_begin(struct readings *readings, struct slice normal);

/* Sets `*reading` to the next distinct reading; the first is the normal form. Returns false after
 * the last one, or if readings->too_many is set. The work is bounded: each step processes at most
 * READINGS_ROOM bytes in total. */
bool readings_next(struct readings *readings, struct slice *reading);

#endif
