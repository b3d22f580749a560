/* resets.h - which clients were reset, or granted a quota, a moment ago: what a worker holds for them counts no longer.
 *
 * Written by the main thread when it hears of one, read by workers; other clients' holdings stay what they are. The last
 * RESETS_MAX are known by name, and what is older than those is taken for everybody's. */
#ifndef WEIR_LIMIT_RESETS_H
#define WEIR_LIMIT_RESETS_H

#include <stdbool.h>

#include "base/slice.h"

enum { RESETS_MAX = 64 };

/* `client` is identity_text(), or empty: any may have been. Any thread. */
void resets_note(struct slice client);

/* May what was asked of Redis then have been removed since? `key` is that of a limit, behind PREFIX and ":". Any thread. */
MUST_CHECK bool resets_concern(struct slice key, uint64_t asked_us);

#endif
