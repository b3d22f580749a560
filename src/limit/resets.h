/* resets.h - clients that were recently reset or granted a quota: state that workers hold for
 * them is no longer valid.
 *
 * Written by the main thread, read by workers; state of other clients stays valid. The last
 * RESETS_MAX resets are kept by name. Older resets apply to all clients. */
#ifndef WEIR_LIMIT_RESETS_H
#define WEIR_LIMIT_RESETS_H

#include <stdbool.h>

#include "base/slice.h"

enum { RESETS_MAX = 64 };

/* Records a reset. `client` is identity_text(); empty: any client. Any thread. */
void resets_note(struct slice client);

/* Returns true if state requested from Redis at requested_us may have been removed since. `key`
 * is a limit's key without PREFIX and ":". Any thread. */
MUST_CHECK bool resets_concern(struct slice key, uint64_t requested_us);

#endif
