#include "base/arena.h"

#include <stdlib.h>

#include "base/memory.h"

struct arena_block {
    struct arena_block *next;
    _Alignas(max_align_t) char bytes[];
};

static void *take(struct arena *arena, struct arena_block *block)
{
    block->next = arena->blocks;
    arena->blocks = block;
    return block->bytes;
}

void *arena_zeroed(struct arena *arena, size_t count, size_t size)
{
    return take(arena, xcalloc(1, sizeof(struct arena_block) + count * size));
}

char *arena_text(struct arena *arena, struct slice text)
{
    char *copy = arena_zeroed(arena, text.n + 1, 1);
    if (text.n)
        memcpy(copy, text.p, text.n);
    return copy;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}
