/* arena.h - memory that is freed all at once, for a policy or for the time of reading one.
 *
 * Each allocation is separate, so that AddressSanitizer detects overruns. Not for the hot path. If
 * memory runs out, memory_try() ends (base/memory.h), and its caller frees the arena. */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include "base/slice.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* NULL: empty */
};

/* Allocates `count` times `size` zeroed bytes until arena_free(). The product must not overflow;
 * counts come from a file of bounded size. */
void *arena_zeroed(struct arena *arena, size_t count, size_t size);
/* The same, but returns NULL if memory runs out: for callers that hold an open file. */
void *arena_zeroed_or_null(struct arena *arena, size_t count, size_t size);
/* Makes room for another item after `count` ones of `size` bytes: doubles the array if `count` is
 * 0 or a power of two. Returns the array. */
void *arena_grown(struct arena *arena, void *items, size_t count, size_t size);
/* Copies `text` and appends a NUL. */
char *arena_text(struct arena *arena, struct slice text);
/* Frees all allocations; the arena is then empty and reusable. */
void arena_free(struct arena *arena);

#endif
