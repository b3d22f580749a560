/* iobuf.h - bounded buffers of the proxied path, from a pool per worker.
 *
 *   bytes[0 .. start): consumed    bytes[start .. end): held    bytes[end .. cap): free
 *
 * There are two sizes. IOBUF_SMALL holds an ordinary head; IOBUF_LARGE holds the largest head
 * allowed or one read of content. Output that a socket did not take at once can be larger, if it is
 * a large head with content after it, and so can content that is kept: their buffers have the size
 * that is needed, and are not pooled.
 * An idle connection owns no buffer. The number of buffers per connection is fixed (see
 * proxy/relay.h), and buffer_memory.h bounds those of the process. */
#ifndef WEIR_NET_IOBUF_H
#define WEIR_NET_IOBUF_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/free_list.h"
#include "base/macros.h"
#include "base/slice.h"
#include "net/buffer_memory.h"
#include "net/pipe.h"

enum {
    IOBUF_READ_MAX = 64 * 1024,  /* maximum size of one read, in bytes */
    IOBUF_ADDED_MAX = 16 * 1024, /* maximum bytes that weir adds to a head */
    IOBUF_SMALL = 4 * 1024,
    IOBUF_LARGE = IOBUF_READ_MAX + IOBUF_ADDED_MAX,
    IOBUF_MAX = IOBUF_LARGE + IOBUF_READ_MAX + 1024, /* of output: ... and the lines of a chunk */
    IOBUF_KEPT_MAX = 256, /* maximum free buffers per size in a pool; more are freed */
};

struct iobuf {
    struct iobuf *next_free;
    uint32_t start, end, cap;
    char bytes[];
};

struct iobuf_pool {
    struct free_list free[2];
    struct buffer_memory memory;
    struct pipe_pool pipes;
};

/* Returns an empty buffer with at least `size` bytes; NULL if out of memory, or
 * if the process has too many buffers. */
MUST_CHECK struct iobuf *iobuf_get(struct iobuf_pool *pool, size_t size);
/* Appends `bytes` to `*buffer`, which is created (NULL) or replaced by a larger one if necessary.
 * Returns false, without any change, if they do not fit IOBUF_LARGE or out of memory. */
MUST_CHECK bool iobuf_store(struct iobuf_pool *pool, struct iobuf **buffer, struct slice bytes);
/* The same for up to `max` bytes, which may be more than IOBUF_LARGE. */
MUST_CHECK bool iobuf_store_up_to(struct iobuf_pool *pool, struct iobuf **buffer,
                                  struct slice bytes, size_t max);
/* Returns a buffer to the pool. */
void iobuf_give_back(struct iobuf_pool *pool, struct iobuf *b);
/* Frees the buffers that were not needed since the last call. */
void iobuf_pool_trim(struct iobuf_pool *pool);
void iobuf_pool_clear(struct iobuf_pool *pool);

/* Returns `*buffer` to the pool and sets it to NULL. `*buffer` may be NULL. */
static inline void iobuf_put(struct iobuf_pool *pool, struct iobuf **buffer)
{
    if (*buffer)
        iobuf_give_back(pool, *buffer);
    *buffer = NULL;
}

/* Returns the memory of a buffer (NULL: 0), in bytes. */
static inline size_t iobuf_memory(const struct iobuf *b)
{
    return b ? sizeof *b + b->cap : 0;
}

static inline size_t iobuf_held(const struct iobuf *b)
{
    return b ? b->end - b->start : 0;
}

static inline size_t iobuf_room(const struct iobuf *b)
{
    return b->cap - b->end;
}

static inline struct slice iobuf_slice(const struct iobuf *b)
{
    return (struct slice){b->bytes + b->start, b->end - b->start};
}

/* Consumes the first `n` held bytes. */
static inline void iobuf_take(struct iobuf *b, size_t n)
{
    assert(n <= b->end - b->start);
    b->start += (uint32_t)n;
    if (b->start == b->end)
        b->start = b->end = 0;
}

/* Moves the held bytes to the front, so that all free bytes follow them. */
static inline void iobuf_compact(struct iobuf *b)
{
    if (b->start == 0)
        return;
    memmove(b->bytes, b->bytes + b->start, b->end - b->start);
    b->end -= b->start;
    b->start = 0;
}

/* Appends `bytes`. The caller has checked that they fit. */
static inline void iobuf_append(struct iobuf *b, struct slice bytes)
{
    assert(bytes.n <= iobuf_room(b));
    memcpy(b->bytes + b->end, bytes.p, bytes.n);
    b->end += (uint32_t)bytes.n;
}

#endif
