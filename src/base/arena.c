#include "base/arena.h"

#include <stdlib.h>

#include "base/memory.h"

struct arena_block {
    struct arena_block *next;
    _Alignas(max_align_t) char bytes[];
};

void *arena_zeroed_or_null(struct arena *arena, size_t count, size_t size)
{
    struct arena_block *block = calloc(1, sizeof *block + count * size);

    if (!block)
        return NULL;
    block->next = arena->blocks;
    arena->blocks = block;
    return block->bytes;
}

void *arena_zeroed(struct arena *arena, size_t count, size_t size)
{
    void *memory = arena_zeroed_or_null(arena, count, size);

    if (!memory)
        memory_exhausted();
    return memory;
}

void *arena_grown(struct arena *arena, void *items, size_t count, size_t size)
{
    if (count & (count - 1))
        return items;
    void *larger = arena_zeroed(arena, count ? 2 * count : 1, size);
    if (count)
        memcpy(larger, items, count * size);
    return larger;
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
