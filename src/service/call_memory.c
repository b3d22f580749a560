#include "service/call_memory.h"

#include <stdlib.h>

enum { BLOCK_BYTES = 16 * 1024, ALIGNMENT = 16 };

static struct call_memory_block *add_block(struct call_memory *memory, size_t size)
{
    size_t bytes = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    struct call_memory_block *block;

    if (bytes > CALL_MEMORY_MAX - memory->total)
        return NULL;
    if (!(block = malloc(sizeof *block + bytes))) {
        memory->lacks = true;
        return NULL;
    }
    block->next = NULL;
    block->size = bytes;
    if (memory->last)
        memory->last->next = block;
    else
        memory->first = block;
    memory->last = block;
    memory->used = 0;
    memory->total += bytes;
    return block;
}

void *call_memory_get(struct call_memory *memory, size_t size)
{
    struct call_memory_block *block = memory->last;

    if (size > CALL_MEMORY_MAX)
        return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!block || size > block->size - memory->used)
        block = add_block(memory, size);
    if (!block)
        return NULL;
    void *bytes = block->bytes + memory->used;
    memory->used += size;
    return bytes;
}

void call_memory_reset(struct call_memory *memory)
{
    struct call_memory_block *first = memory->first;

    memory->lacks = false;
    if (!first)
        return;
    for (struct call_memory_block *block; (block = first->next);) {
        first->next = block->next;
        free(block);
    }
    memory->last = first;
    memory->total = first->size;
    memory->used = 0;
}

void call_memory_free(struct call_memory *memory)
{
    call_memory_reset(memory);
    free(memory->first);
    *memory = (struct call_memory){0};
}
