/* descriptors.h - handling of file descriptor exhaustion (RLIMIT_NOFILE, system-wide fs.file-max).
 *
 * A reserve of descriptors is opened at start. When descriptors are scarce:
 *
 * - workers accept no clients;
 * - connections to servers may use 1/2 of the reserve, connections to Redis 3/4;
 * - the main thread (admin listener, reload, log) may use all of it.
 *
 * Freed descriptors refill the reserve first. The state is global. Any thread may call these
 * functions, except start and stop. */
#ifndef WEIR_BASE_DESCRIPTORS_H
#define WEIR_BASE_DESCRIPTORS_H

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum { DESCRIPTORS_RESERVED = 32 };

enum descriptor_use { DESCRIPTOR_FOR_SERVER, DESCRIPTOR_FOR_REDIS, DESCRIPTOR_FOR_MAIN };

/* Opens the reserve and monitors it on the main thread's loop. If the limit is low, the reserve is
 * 1/8 of it. Returns false if out of memory or if the reserve cannot be opened. */
MUST_CHECK bool descriptors_start(struct event_base *base);
void descriptors_stop(void);

/* Returns whether errno `error` means that no descriptor was available. */
static inline bool descriptors_lack(int error)
{
    return error == EMFILE || error == ENFILE;
}

/* Returns whether descriptors are scarce: a call has failed and the reserve is not full again. */
bool descriptors_are_scarce(void);

/* Reports that a call failed with this errno for lack of a descriptor. Logs one line per shortage,
 * and one when it ends. */
void descriptors_note_lack(int error);

/* Same as descriptors_note_lack(); also frees one reserved descriptor. The caller must retry at
 * once. Returns false if none is left for this use. */
MUST_CHECK bool descriptors_give(enum descriptor_use use, int error);

/* Returns the number of shortages so far. */
uint64_t descriptors_shortages(void);

#endif
