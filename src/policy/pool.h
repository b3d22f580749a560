/* pool.h - memory that is freed all at once: a policy's, or what reading one needs.
 *
 * Each piece is an allocation of its own, so that the address sanitizer sees an overrun. Not for the hot
 * path; ends the process when there is no memory (base/memory.h). */
#ifndef WEIR_POLICY_POOL_H
#define WEIR_POLICY_POOL_H

#include "base/slice.h"

struct pool_block;

struct pool {
    struct pool_block *blocks; /* NULL: empty */
};

/* `count` times `size` bytes, zeroed; lives until pool_free. Counts come from a file of bounded size: the
 * product cannot overflow. */
void *pool_zeroed(struct pool *pool, size_t count, size_t size);
/* A copy with a NUL behind it. */
char *pool_text(struct pool *pool, struct slice text);
/* Frees every piece; the pool is empty again. */
void pool_free(struct pool *pool);

#endif
