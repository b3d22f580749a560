/* zone.h - reads a time zone from the system database as a list of offset changes. */
#ifndef WEIR_POLICY_ZONE_H
#define WEIR_POLICY_ZONE_H

#include "base/arena.h"
#include "base/slice.h"

/* The years are fixed, so that all instances of one weir version generate the same script. Before
 * and after them, the offset is constant. */
enum { ZONE_FIRST_YEAR = 2020, ZONE_LAST_YEAR = 2060, ZONE_NAME_MAX = 64 };

struct zone_change {
    int64_t at;     /* Unix time, seconds */
    int64_t offset; /* new offset from UTC, seconds */
};

struct zone {
    int64_t first; /* offset before the first change */
    struct zone_change *changes;
    unsigned count;
};

/* Reads a zone such as "Europe/Berlin" from $TZDIR or /usr/share/zoneinfo (TZif, RFC 9636). "UTC"
 * needs no file. Allocates the changes in `arena` and the file's content in `scratch`. Returns
 * false on error, with `*why` set. Blocks. */
bool zone_read(struct arena *arena, struct arena *scratch, struct slice name, struct zone *zone,
               const char **why);

/* Returns the offset at `at` (Unix time). Sets `*until` to the next change, or INT64_MAX. */
int64_t zone_offset(const struct zone *zone, int64_t at, int64_t *until);

#endif
