/* pipe.h - pipes that move content between sockets inside the kernel (splice(2)), from a pool per
 * worker.
 *
 * A stream owns a pipe only while the pipe holds bytes for it. An empty pipe is kept in the pool
 * for reuse; a pipe that still holds bytes is closed. */
#ifndef WEIR_NET_PIPE_H
#define WEIR_NET_PIPE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"

enum {
    /* Requested size in bytes. The kernel may give less (/proc/sys/fs/pipe-user-pages-soft). */
    PIPE_BYTES = 256 * 1024,
    PIPES_MAX = 128,    /* maximum per worker, see pipes_set_max(); others' content is copied */
    PIPES_KEPT_MAX = 32 /* maximum free pipes in a pool; more are closed */
};

struct pipe {
    struct pipe *next_free;
    int read_fd, write_fd;
    size_t held;
};

struct pipe_pool {
    struct pipe *free;
    unsigned kept, open;
};

/* Sets the maximum of each pool, at most PIPES_MAX (default). Call before any pool is used. */
void pipes_set_max(unsigned pipes);

/* Returns an empty pipe; NULL if there are too many, or no memory or descriptors. */
MUST_CHECK struct pipe *pipe_get(struct pipe_pool *pool);
/* Returns `*pipe` to the pool and sets it to NULL. `*pipe` may be NULL. */
void pipe_put(struct pipe_pool *pool, struct pipe **pipe);
void pipe_pool_clear(struct pipe_pool *pool);

/* Moves up to `most` bytes from the socket into the pipe, which must be empty. Returns as read(2),
 * but never fails with EINTR. */
ssize_t pipe_fill(struct pipe *pipe, int socket, size_t most);
/* Moves bytes from the pipe to the socket. Returns as write(2), but 0 if the socket accepts nothing
 * now. */
ssize_t pipe_drain(struct pipe *pipe, int socket);

#endif
