/* zone.h - a time zone of the system's database as the list of its changes in a fixed span of years. */
#ifndef WEIR_CONFIG_ZONE_H
#define WEIR_CONFIG_ZONE_H

#include "base/slice.h"
#include "policy/arena.h"

/* The span is the same whenever a policy is read, so that all weirs of one version make the same script of
 * it. Before and behind it the offset stays what it is at its edge. */
enum { ZONE_FIRST_YEAR = 2020, ZONE_LAST_YEAR = 2060, ZONE_NAME_MAX = 64 };

struct zone_change {
    int64_t at;     /* s since 1970 */
    int64_t offset; /* from then on: s that the wall clock is ahead of UTC */
};

struct zone {
    int64_t first; /* the offset before the first change */
    struct zone_change *changes;
    unsigned count;
};

/* Reads "Europe/Berlin" from $TZDIR or /usr/share/zoneinfo (TZif, RFC 9636); "UTC" needs no file. The zone is in
 * `pool`, what was read in `scratch`. False: `*why` says what is wrong. Blocks. */
bool zone_read(struct arena *arena, struct arena *scratch, struct slice name, struct zone *zone,
               const char **why);

/* The offset at `at` (s since 1970); `*until`: the next change, or INT64_MAX. */
int64_t zone_offset(const struct zone *zone, int64_t at, int64_t *until);

#endif
