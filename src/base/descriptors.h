/* descriptors.h - what to do when the process has no file descriptor left (RLIMIT_NOFILE; fs.file-max of the system).
 *
 * Some are opened at the start and kept as a reserve. When descriptors are scarce, workers accept no clients, connections to
 * servers and Redis may take a part of the reserve, and the main thread (admin listener, reload, log) may take all of it. What
 * becomes free goes to the reserve first. A state of the process: all functions but start and stop are for any thread. */
#ifndef WEIR_BASE_DESCRIPTORS_H
#define WEIR_BASE_DESCRIPTORS_H

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

enum { DESCRIPTORS_RESERVED = 32 };

enum descriptor_use { DESCRIPTOR_FOR_SERVER, DESCRIPTOR_FOR_REDIS, DESCRIPTOR_FOR_MAIN };

/* Opens the reserve and watches over it on the main thread's loop. Where the limit is low, the reserve is an eighth of it. False: no
 * memory, or no descriptor at all. */
MUST_CHECK bool descriptors_start(struct event_base *base);
void descriptors_stop(void);

/* Did a call fail, with this errno, because there is no descriptor? */
static inline bool descriptors_lack(int error)
{
    return error == EMFILE || error == ENFILE;
}

/* Are they scarce: has a call failed, and is the reserve not full again? */
bool descriptors_are_scarce(void);

/* A call failed with this errno for lack of a descriptor. Logged: one line for each time that they are scarce, and one when they
 * no longer are. */
void descriptors_note_lack(int error);

/* The same, and frees one of the reserve for another try, which has to follow at once. False: none is left for this use. */
MUST_CHECK bool descriptors_give(enum descriptor_use use, int error);

/* How often they became scarce. */
uint64_t descriptors_shortages(void);

#endif
