/* blocking.h - a connection to Redis that waits for each answer: for the command line, and for checks
 * before the workers start. Never in a running weir. */
#ifndef WEIR_REDIS_BLOCKING_H
#define WEIR_REDIS_BLOCKING_H

#include <hiredis/hiredis.h>

#include "policy/policy.h"

enum { REDIS_WHY_MAX = 160 };

/* Connects, logs in and selects the database, with at most `timeout_us` for each step and for each command
 * afterwards. NULL: `why` says what went wrong. The caller frees it with redisFree. */
redisContext *redis_dial(const struct redis_settings *settings, uint64_t timeout_us,
                         char why[static REDIS_WHY_MAX]);

/* The same; of a cluster, to the node that has the slot, or to the `part`th of its `*parts` masters. */
redisContext *redis_dial_slot(const struct redis_settings *settings, unsigned slot, uint64_t timeout_us,
                              char why[static REDIS_WHY_MAX]);
redisContext *redis_dial_part(const struct redis_settings *settings, unsigned part, unsigned *parts,
                              uint64_t timeout_us, char why[static REDIS_WHY_MAX]);

#endif
