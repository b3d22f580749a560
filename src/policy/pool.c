#include "policy/pool.h"

#include <stdlib.h>

#include "base/memory.h"

struct pool_block {
    struct pool_block *next;
    _Alignas(max_align_t) char bytes[];
};

static void *take(struct pool *pool, struct pool_block *block)
{
    block->next = pool->blocks;
    pool->blocks = block;
    return block->bytes;
}

void *pool_zeroed(struct pool *pool, size_t count, size_t size)
{
    return take(pool, xcalloc(1, sizeof(struct pool_block) + count * size));
}

char *pool_text(struct pool *pool, struct slice text)
{
    char *copy = pool_zeroed(pool, text.n + 1, 1);
    if (text.n)
        memcpy(copy, text.p, text.n);
    return copy;
}

void pool_free(struct pool *pool)
{
    while (pool->blocks) {
        struct pool_block *block = pool->blocks;
        pool->blocks = block->next;
        free(block);
    }
}
