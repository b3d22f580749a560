#include "net/iobuf.h"

#include <limits.h>
#include <stdlib.h>

static const uint32_t size_of_class[2] = {IOBUF_SMALL, IOBUF_LARGE};

static size_t memory_of_class(unsigned class)
{
    return sizeof(struct iobuf) + size_of_class[class];
}

static struct iobuf *new_buffer(struct iobuf_pool *pool, uint32_t cap)
{
    struct iobuf *b = memory_has_room(&pool->memory) ? malloc(sizeof *b + cap) : NULL;

    if (b)
        memory_take(&pool->memory, sizeof *b + cap);
    return b;
}

struct iobuf *iobuf_get(struct iobuf_pool *pool, size_t size)
{
    unsigned class = size > IOBUF_SMALL;
    uint32_t cap = size > IOBUF_LARGE ? (uint32_t)size : size_of_class[class];
    struct iobuf *b = size > IOBUF_LARGE ? NULL : free_list_take(&pool->free[class]);

    if (!b && !(b = new_buffer(pool, cap)))
        return NULL;
    b->next_free = NULL;
    b->start = b->end = 0;
    b->cap = cap;
    return b;
}

/* Returns the capacity for `size` bytes. Doubled beyond the pooled sizes, so that what is stored
 * in many pieces is copied twice on average. */
static size_t roomy(size_t size, size_t max)
{
    if (size <= IOBUF_LARGE)
        return size;
    return size < max / 2 ? 2 * size : max;
}

bool iobuf_store(struct iobuf_pool *pool, struct iobuf **buffer, struct slice bytes)
{
    return iobuf_store_up_to(pool, buffer, bytes, IOBUF_LARGE);
}

bool iobuf_store_up_to(struct iobuf_pool *pool, struct iobuf **buffer, struct slice bytes,
                       size_t max)
{
    struct iobuf *b = *buffer;
    size_t size = iobuf_held(b) + bytes.n;

    if (bytes.n == 0)
        return true;
    if (size > max)
        return false;
    if (!b || size > b->cap) {
        struct iobuf *larger = iobuf_get(pool, roomy(size, max));
        if (!larger)
            return false;
        if (b)
            iobuf_append(larger, iobuf_slice(b));
        iobuf_put(pool, buffer);
        *buffer = b = larger;
    }
    if (iobuf_room(b) < bytes.n)
        iobuf_compact(b);
    iobuf_append(b, bytes);
    return true;
}

void iobuf_give_back(struct iobuf_pool *pool, struct iobuf *b)
{
    unsigned class = b->cap > IOBUF_SMALL;
    if (pool->free[class].count < IOBUF_KEPT_MAX && b->cap <= IOBUF_LARGE &&
        pool->memory.level == MEMORY_LOW) {
        free_list_put(&pool->free[class], b);
        return;
    }
    memory_give(&pool->memory, iobuf_memory(b));
    free(b);
}

void iobuf_pool_trim(struct iobuf_pool *pool)
{
    for (unsigned class = 0; class < 2; class ++)
        memory_give(&pool->memory, free_list_trim(&pool->free[class]) * memory_of_class(class));
}

void iobuf_pool_clear(struct iobuf_pool *pool)
{
    for (unsigned class = 0; class < 2; class ++)
        memory_give(&pool->memory,
                    free_list_drop(&pool->free[class], UINT_MAX) * memory_of_class(class));
    memory_report(&pool->memory);
    pipe_pool_clear(&pool->pipes);
    *pool = (struct iobuf_pool){0};
}
