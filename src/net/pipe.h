/* pipe.h - pipes that carry content from one socket to another inside the kernel (splice(2)), from a pool per
 * worker.
 *
 * A pipe belongs to a stream only while it holds bytes for it. One that is given back empty is kept for the
 * next; what another still holds is dropped with it. */
#ifndef WEIR_NET_PIPE_H
#define WEIR_NET_PIPE_H

#include <stddef.h>
#include <sys/types.h>

#include "base/macros.h"

enum {
    PIPE_BYTES = 256 * 1024, /* asked for; the kernel may give less (/proc/sys/fs/pipe-user-pages-soft) */
    PIPES_MAX = 128,         /* of a worker; whoever gets none copies */
    PIPES_KEPT_MAX = 32      /* free ones; beyond that they are closed */
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

/* An empty pipe; NULL: there are too many, or no memory or descriptors. */
MUST_CHECK struct pipe *pipe_get(struct pipe_pool *pool);
/* Gives `*pipe` back and nulls it; NULL is allowed. */
void pipe_put(struct pipe_pool *pool, struct pipe **pipe);
void pipe_pool_clear(struct pipe_pool *pool);

/* Moves what the socket has, up to `most` bytes, into the pipe, which is empty. As read(2), without EINTR. */
ssize_t pipe_fill(struct pipe *pipe, int socket, size_t most);
/* Moves what the socket takes out of the pipe. As write(2), but 0 when nothing can be written now. */
ssize_t pipe_drain(struct pipe *pipe, int socket);

#endif
