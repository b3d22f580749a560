/* session_memory.h - where libnghttp2 stores a session and its frame buffer.
 *
 * libnghttp2 1.52 allocates a frame buffer of 16 KB per session and seldom uses more than its first
 * KB. A buffer of malloc(3) becomes resident as connections come and go, because its bytes are used
 * for other things in between. Here, session and buffer are in a slot of whole pages, which stores
 * nothing else: only pages that were written are resident. Blocks of SLOTS_PER_BLOCK slots are
 * mapped as needed, and released when all their slots are free; one is kept. If there is no slot,
 * or its buffer is in use or too small, malloc(3) is used. */
#ifndef WEIR_HTTP2_SESSION_MEMORY_H
#define WEIR_HTTP2_SESSION_MEMORY_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/macros.h"

enum { SLOT_SIZE = 5 * 4096, SLOTS_PER_BLOCK = 400, SPARE_COUNT = 16 };

struct slot_block;
TAILQ_HEAD(slot_blocks, slot_block);

/* The slots of a worker. */
struct session_slots {
    struct slot_blocks with_room; /* blocks with a free slot */
    unsigned block_count;         /* all blocks */
    /* A reserve, for small allocations while libnghttp2 sends a frame. */
    void *spare[SPARE_COUNT];
    unsigned spare_count;
};

/* The memory of one session. */
struct session_memory {
    nghttp2_mem functions;
    struct session_slots *slots;
    struct slot_block *block;
    char *slot;       /* NULL: malloc(3) alone */
    size_t head_size; /* bytes of the slot for the session; the frame buffer follows them */
    bool buffer_used; /* the frame buffer is in the slot */
};

void session_slots_begin(struct session_slots *slots);
/* All slots must be free. */
void session_slots_end(struct session_slots *slots);

/* Takes a slot. `memory->functions` are for nghttp2_session_server_new3(); `memory` must not move
 * until session_memory_end(), which follows nghttp2_session_del(). */
void session_memory_begin(struct session_memory *memory, struct session_slots *slots);
/* Fills the reserve. Returns false if out of memory: then no frame may be sent. libnghttp2 1.52
 * fails an assertion if it runs out of memory after a header section. */
MUST_CHECK bool session_memory_reserve(struct session_memory *memory);
void session_memory_end(struct session_memory *memory);

#endif
