/* call_memory.h - memory for reading one call: allocated piece by piece, freed all at once.
 *
 * The first block is kept for the next call, so that ordinary calls allocate nothing. All blocks
 * together are bounded: 64 KiB of content could otherwise become megabytes of empty messages. */
#ifndef WEIR_SERVICE_CALL_MEMORY_H
#define WEIR_SERVICE_CALL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

enum { CALL_MEMORY_MAX = 1 << 20 };

struct call_memory_block {
    struct call_memory_block *next;
    size_t size;
    _Alignas(16) char bytes[];
};

/* Zeroed: empty. */
struct call_memory {
    struct call_memory_block *first, *last; /* `last` is the one in use */
    size_t used;                            /* bytes of `last` */
    size_t total;                           /* of all blocks */
    bool lacks;                             /* an allocation has failed since call_memory_reset() */
};

/* Returns memory that is valid until call_memory_reset(). NULL: out of memory, or above
 * CALL_MEMORY_MAX. */
MUST_CHECK void *call_memory_get(struct call_memory *memory, size_t size);

/* Frees what was allocated; keeps the first block. Clears `lacks`. */
void call_memory_reset(struct call_memory *memory);
/* Frees all blocks. */
void call_memory_free(struct call_memory *memory);

#endif
