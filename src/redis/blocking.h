/* blocking.h - a blocking Redis connection: for the command line, and for checks before the
 * workers start. A running worker never uses it. */
#ifndef WEIR_REDIS_BLOCKING_H
#define WEIR_REDIS_BLOCKING_H

#include <hiredis/hiredis.h>

#include "policy/policy.h"

enum { REDIS_WHY_MAX = 160 };

/* Connects, logs in and selects the database. `timeout_us` limits each step and each later
 * command. Returns NULL on error; `why` then holds the cause. The caller frees the result with
 * redisFree(). */
redisContext *redis_dial(const struct redis_settings *settings, uint64_t timeout_us,
                         char why[static REDIS_WHY_MAX]);

/* The same as redis_dial(). In a cluster, redis_dial_slot() connects to the master of `slot`.
 * redis_dial_part() connects to master number `part` (from 0) and sets `*parts` to the number of
 * masters. */
redisContext *redis_dial_slot(const struct redis_settings *settings, unsigned slot, uint64_t timeout_us,
                              char why[static REDIS_WHY_MAX]);
redisContext *redis_dial_part(const struct redis_settings *settings, unsigned part, unsigned *parts,
                              uint64_t timeout_us, char why[static REDIS_WHY_MAX]);

#endif
