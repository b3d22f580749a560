/* arena.h - memory that is freed all at once: a policy's, or what reading one needs.
 *
 * Each piece is an allocation of its own, so that the address sanitizer sees an overrun. Not for the hot
 * path; ends the process when there is no memory (base/memory.h). */
#ifndef WEIR_POLICY_ARENA_H
#define WEIR_POLICY_ARENA_H

#include "base/slice.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* NULL: empty */
};

/* `count` times `size` bytes, zeroed; lives until arena_free. Counts come from a file of bounded size: the
 * product cannot overflow. */
void *arena_zeroed(struct arena *arena, size_t count, size_t size);
/* A copy with a NUL behind it. */
char *arena_text(struct arena *arena, struct slice text);
/* Frees every piece; the pool is empty again. */
void arena_free(struct arena *arena);

#endif
