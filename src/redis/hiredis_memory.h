/* hiredis_memory.h - hiredis 0.14 without its abort() if out of memory.
 *
 * hiredis 0.14 calls abort() if a small allocation of redisAsyncConnect() or redisAsyncFree()
 * fails. weir replaces the two functions for that, hi_malloc() and hi_strdup(), by ones with a
 * reserve. hiredis 1.1 and newer return errors; there is no reserve then. */
#ifndef WEIR_REDIS_HIREDIS_MEMORY_H
#define WEIR_REDIS_HIREDIS_MEMORY_H

#include <stdbool.h>

#include "base/macros.h"

/* Fills the reserve of the process, before redisAsyncConnect(). Returns false if out of memory:
 * then that function must not be called. */
MUST_CHECK bool hiredis_memory_reserve(void);

#endif
