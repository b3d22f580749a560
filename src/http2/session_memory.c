#include "http2/session_memory.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    HEAD_SIZE_MAX = 4000, /* a larger session would leave no room for the frame buffer */
    SPARE_SIZE = 1024,
    BUFFER_SIZE_MIN = 16384 /* only frame buffers are as large */
};

struct slot_block {
    TAILQ_ENTRY(slot_block) link; /* slots->with_room, if free_count > 0 */
    char *base;
    unsigned free_count;
    uint16_t free[SLOTS_PER_BLOCK]; /* numbers of the free slots; the last one is taken first */
};

/* ---- slots ----------------------------------------------------------------------------------- */

void session_slots_begin(struct session_slots *slots)
{
    TAILQ_INIT(&slots->with_room);
    slots->block_count = slots->spare_count = 0;
}

static void free_block(struct session_slots *slots, struct slot_block *block)
{
    slots->block_count--;
    munmap(block->base, (size_t)SLOT_SIZE * SLOTS_PER_BLOCK);
    free(block);
}

void session_slots_end(struct session_slots *slots)
{
    struct slot_block *block = TAILQ_FIRST(&slots->with_room);

    while (block) {
        struct slot_block *next = TAILQ_NEXT(block, link);

        free_block(slots, block);
        block = next;
    }
    TAILQ_INIT(&slots->with_room);
    while (slots->spare_count)
        free(slots->spare[--slots->spare_count]);
}

static struct slot_block *new_block(struct session_slots *slots)
{
    size_t size = (size_t)SLOT_SIZE * SLOTS_PER_BLOCK;
    struct slot_block *block = malloc(sizeof *block);

    if (!block)
        return NULL;
    block->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block->base == MAP_FAILED) {
        free(block);
        return NULL;
    }
    madvise(block->base, size, MADV_NOHUGEPAGE); /* huge pages would be resident as a whole */
    for (unsigned n = 0; n < SLOTS_PER_BLOCK; n++)
        block->free[n] = (uint16_t)(SLOTS_PER_BLOCK - 1 - n);
    block->free_count = SLOTS_PER_BLOCK;
    TAILQ_INSERT_HEAD(&slots->with_room, block, link);
    slots->block_count++;
    return block;
}

/* Returns NULL if there is no memory. */
static char *take_slot(struct session_slots *slots, struct slot_block **block_out)
{
    struct slot_block *block = TAILQ_FIRST(&slots->with_room);

    if (!block && !(block = new_block(slots)))
        return NULL;
    if (--block->free_count == 0)
        TAILQ_REMOVE(&slots->with_room, block, link);
    *block_out = block;
    return block->base + (size_t)SLOT_SIZE * block->free[block->free_count];
}

/* One block without used slots is kept. */
static void put_slot(struct session_slots *slots, struct slot_block *block, char *slot)
{
    if (block->free_count == 0)
        TAILQ_INSERT_TAIL(&slots->with_room, block, link);
    block->free[block->free_count++] = (uint16_t)((size_t)(slot - block->base) / SLOT_SIZE);
    if (block->free_count == SLOTS_PER_BLOCK &&
        (TAILQ_NEXT(block, link) || TAILQ_FIRST(&slots->with_room) != block)) {
        TAILQ_REMOVE(&slots->with_room, block, link);
        free_block(slots, block);
    }
}

/* ---- the functions for libnghttp2 ------------------------------------------------------------ */

static bool in_slot(const struct session_memory *memory, const void *pointer)
{
    return memory->slot && (uintptr_t)pointer - (uintptr_t)memory->slot < (uintptr_t)SLOT_SIZE;
}

static char *buffer_of(const struct session_memory *memory)
{
    return memory->slot + memory->head_size;
}

/* malloc(3), or from the reserve. */
static void *take_small(struct session_slots *slots, size_t size)
{
    void *memory = malloc(size);

    if (memory || size > SPARE_SIZE || !slots->spare_count)
        return memory;
    return slots->spare[--slots->spare_count];
}

bool session_memory_reserve(struct session_memory *memory)
{
    struct session_slots *slots = memory->slots;

    while (slots->spare_count < SPARE_COUNT &&
           (slots->spare[slots->spare_count] = malloc(SPARE_SIZE)))
        slots->spare_count++;
    return slots->spare_count == SPARE_COUNT;
}

static void *take_memory(size_t size, void *user_data)
{
    struct session_memory *memory = user_data;

    if (size < BUFFER_SIZE_MIN || !memory->slot || memory->buffer_used ||
        size > SLOT_SIZE - memory->head_size)
        return take_small(memory->slots, size);
    memory->buffer_used = true;
    return buffer_of(memory);
}

static void put_memory(void *pointer, void *user_data)
{
    struct session_memory *memory = user_data;

    if (!in_slot(memory, pointer))
        free(pointer);
    else if (pointer == buffer_of(memory))
        memory->buffer_used = false;
}

/* The first one is the session. */
static void *take_zeroed_memory(size_t count, size_t size, void *user_data)
{
    struct session_memory *memory = user_data;
    void *pointer;

    if (!memory->slot || memory->head_size || count != 1 || size > HEAD_SIZE_MAX)
        return (pointer = take_small(memory->slots, count * size))
                   ? memset(pointer, 0, count * size)
                   : NULL;
    memory->head_size = (size + 15) & ~(size_t)15;
    return memset(memory->slot, 0, size);
}

static void *resize_memory(void *pointer, size_t size, void *user_data)
{
    struct session_memory *memory = user_data;
    void *larger;

    if (!pointer)
        return take_memory(size, user_data);
    if (!in_slot(memory, pointer)) {
        size_t old = malloc_usable_size(pointer);
        if ((larger = realloc(pointer, size)) || !(larger = take_small(memory->slots, size)))
            return larger;
        memcpy(larger, pointer, old < size ? old : size);
        free(pointer);
        return larger;
    }
    size_t room = pointer == memory->slot ? memory->head_size : SLOT_SIZE - memory->head_size;
    if (size <= room)
        return pointer;
    if (!(larger = malloc(size)))
        return NULL;
    memcpy(larger, pointer, room);
    put_memory(pointer, user_data);
    return larger;
}

void session_memory_begin(struct session_memory *memory, struct session_slots *slots)
{
    *memory = (struct session_memory){.slots = slots};
    memory->functions = (nghttp2_mem){.mem_user_data = memory,
                                      .malloc = take_memory,
                                      .free = put_memory,
                                      .calloc = take_zeroed_memory,
                                      .realloc = resize_memory};
    memory->slot = take_slot(slots, &memory->block);
}

void session_memory_end(struct session_memory *memory)
{
    if (memory->slot)
        put_slot(memory->slots, memory->block, memory->slot);
    memory->slot = NULL;
}
