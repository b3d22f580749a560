#include "net/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/descriptors.h"

static unsigned pipes_max = PIPES_MAX;

void pipes_set_max(unsigned pipes)
{
    pipes_max = pipes;
}

static struct pipe *pipe_open(void)
{
    struct pipe *pipe = calloc(1, sizeof *pipe);
    int fds[2];

    if (!pipe || descriptors_are_scarce() || pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) {
        if (pipe && descriptors_lack(errno) && !descriptors_are_scarce())
            descriptors_note_lack(errno);
        free(pipe);
        return NULL;
    }
    pipe->read_fd = fds[0];
    pipe->write_fd = fds[1];
    /* If this fails, the pipe keeps 64 KiB: slower, but sufficient. */
    (void)fcntl(pipe->write_fd, F_SETPIPE_SZ, PIPE_BYTES);
    return pipe;
}

static void pipe_close(struct pipe *pipe)
{
    close(pipe->read_fd);
    close(pipe->write_fd);
    free(pipe);
}

struct pipe *pipe_get(struct pipe_pool *pool)
{
    struct pipe *pipe = pool->free;

    if (pipe) {
        pool->free = pipe->next_free;
        pool->kept--;
    } else if (pool->open < pipes_max && (pipe = pipe_open()))
        pool->open++;
    return pipe;
}

void pipe_put(struct pipe_pool *pool, struct pipe **given)
{
    struct pipe *pipe = *given;

    if (!pipe)
        return;
    *given = NULL;
    if (pipe->held || pool->kept >= PIPES_KEPT_MAX || descriptors_are_scarce()) {
        pool->open--;
        pipe_close(pipe);
        return;
    }
    pipe->next_free = pool->free;
    pool->free = pipe;
    pool->kept++;
}

void pipe_pool_clear(struct pipe_pool *pool)
{
    for (struct pipe *pipe; (pipe = pool->free);) {
        pool->free = pipe->next_free;
        pipe_close(pipe);
    }
    pool->open -= pool->kept;
    pool->kept = 0;
}

ssize_t pipe_fill(struct pipe *pipe, int socket, size_t most)
{
    ssize_t n;

    do
        n = splice(socket, NULL, pipe->write_fd, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        pipe->held += (size_t)n;
    return n;
}

ssize_t pipe_drain(struct pipe *pipe, int socket)
{
    ssize_t n;

    do
        n = splice(pipe->read_fd, NULL, socket, NULL, pipe->held,
                   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        pipe->held -= (size_t)n;
    return n < 0 && errno == EAGAIN ? 0 : n;
}
