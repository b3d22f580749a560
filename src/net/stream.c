#include "net/stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

void stream_open(struct stream *s, struct poller *poller, int fd, event_callback_fn on_readable,
                 event_callback_fn on_writable, void *context)
{
    s->fd = fd;
    s->reading = s->writing = s->eof = s->drained = s->reset = s->spliced = s->cut = false;
    s->sent = s->received = 0;
    s->in = s->out = NULL;
    s->pipe = NULL;
    s->layer = NULL;
    s->session = NULL;
    s->watch.on_readable = on_readable;
    s->watch.on_writable = on_writable;
    s->watch.context = context;
    watch_begin(&s->watch, poller, fd);
}

void stream_close(struct stream *s, struct iobuf_pool *pool)
{
    if (s->fd < 0)
        return;
    if (s->layer)
        s->layer->close(s, !s->cut);
    s->layer = NULL;
    watch_end(&s->watch);
    s->reading = s->writing = false;
    close(s->fd);
    s->fd = -1;
    iobuf_put(pool, &s->in);
    stream_drop_output(s, pool);
}

static void watch_stream(struct stream *s)
{
    if (s->layer)
        s->layer->wait(s);
    else
        watch_want(&s->watch, s->reading, s->writing);
}

void stream_want_read(struct stream *s, bool wanted)
{
    if (s->reading == wanted && !s->watch.for_end)
        return;
    s->reading = wanted;
    s->watch.for_end = false;
    if (!wanted)
        watch_cancel_wake(&s->watch);
    watch_stream(s);
}

void stream_pause(struct stream *s, bool tell_end)
{
    s->reading = false;
    s->watch.for_end = tell_end;
    watch_cancel_wake(&s->watch);
    watch_stream(s);
}

void stream_want_write(struct stream *s, bool wanted)
{
    if (s->writing == wanted)
        return;
    s->writing = wanted;
    watch_stream(s);
}

void stream_wake(struct stream *s)
{
    watch_wake(&s->watch);
}

bool stream_end(struct stream *s)
{
    return s->layer ? s->layer->end(s) : shutdown(s->fd, SHUT_WR) == 0;
}

bool stream_is_writable(const struct stream *s)
{
    struct pollfd socket = {.fd = s->fd, .events = POLLOUT};

    return !stream_holds_output(s) && poll(&socket, 1, 0) == 1;
}

bool stream_has_unread(const struct stream *s)
{
    char byte;
    return (s->layer && s->layer->holds(s)) || recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool stream_has_input(const struct stream *s)
{
    return iobuf_held(s->in) || stream_has_unread(s);
}

/* Returns whether the peer has sent no FIN. The kernel counts a FIN as a byte received. */
static bool has_no_fin(const struct stream *s)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    return getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_bytes_received == s->received;
}

/* The kernel reports a reset by one failed call. If a write received it, the next read returns end
 * of input, as after a FIN. splice(2) may have received it and returned the bytes that it had sent
 * before. */
static bool end_is_reset(struct stream *s)
{
    s->reset |= s->spliced && has_no_fin(s);
    if (s->reset)
        errno = ECONNRESET;
    return s->reset;
}

ssize_t stream_read(struct stream *s, char *bytes, size_t size)
{
    ssize_t n;

    if (s->layer)
        return s->layer->read(s, bytes, size);
    /* faster than read(2), which goes through the file layer */
    do
        n = recv(s->fd, bytes, size, 0);
    while (n < 0 && errno == EINTR);
    s->drained = n < 0 || (size_t)n < size;
    if (n == 0 && end_is_reset(s))
        return STREAM_FAILED;
    if (n == 0)
        s->eof = true;
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? STREAM_AGAIN : STREAM_FAILED;
    s->received += (size_t)n;
    return n;
}

/* Replaces `in` by a buffer of at least `size` bytes and copies its content. */
static bool in_grow(struct stream *s, struct iobuf_pool *pool, size_t size)
{
    struct iobuf *larger;

    if (s->in && s->in->cap >= size)
        return true;
    if (!(larger = iobuf_get(pool, size)))
        return false;
    if (s->in)
        iobuf_append(larger, iobuf_slice(s->in));
    iobuf_put(pool, &s->in);
    s->in = larger;
    return true;
}

ssize_t stream_read_in(struct stream *s, struct iobuf_pool *pool, size_t room)
{
    if (!in_grow(s, pool, room)) {
        errno = ENOBUFS;
        return STREAM_FAILED;
    }
    if (iobuf_room(s->in) < s->in->start)
        iobuf_compact(s->in);
    /* Hold at most one read of data, so that it fits an IOBUF_LARGE together with what weir
     * adds. */
    size_t size = iobuf_held(s->in) < IOBUF_READ_MAX ? IOBUF_READ_MAX - iobuf_held(s->in) : 0;
    size = iobuf_room(s->in) < size ? iobuf_room(s->in) : size;
    if (size == 0) {
        errno = ENOBUFS;
        return STREAM_FAILED;
    }
    ssize_t n = stream_read(s, s->in->bytes + s->in->end, size);
    if (n > 0)
        s->in->end += (uint32_t)n;
    else if (iobuf_held(s->in) == 0)
        iobuf_put(pool, &s->in);
    return n;
}

bool stream_keep(struct stream *s, struct iobuf_pool *pool, struct slice bytes)
{
    if (bytes.n == 0)
        return true;
    size_t size = iobuf_held(s->in) + bytes.n;
    if (size > IOBUF_LARGE || !in_grow(s, pool, size))
        return false;
    if (iobuf_room(s->in) < bytes.n)
        iobuf_compact(s->in);
    iobuf_append(s->in, bytes);
    return true;
}

void stream_take(struct stream *s, struct iobuf_pool *pool, size_t n)
{
    if (n == 0)
        return;
    iobuf_take(s->in, n);
    if (iobuf_held(s->in) == 0)
        iobuf_put(pool, &s->in);
}

/* Appends the unwritten rest of `pieces` to `out`. */
static bool keep_rest(struct stream *s, struct iobuf_pool *pool, const struct iovec *pieces,
                      int count, size_t written)
{
    size_t rest = 0;
    for (int i = 0; i < count; i++)
        rest += pieces[i].iov_len;
    rest -= written;
    if (!s->out && !(s->out = rest > IOBUF_MAX ? NULL : iobuf_get(pool, rest)))
        return false;
    if (iobuf_room(s->out) < rest)
        iobuf_compact(s->out);
    if (iobuf_room(s->out) < rest)
        return false;
    for (int i = 0; i < count; i++) {
        size_t skip = written < pieces[i].iov_len ? written : pieces[i].iov_len;
        written -= skip;
        if (pieces[i].iov_len > skip)
            iobuf_append(s->out, (struct slice){(const char *)pieces[i].iov_base + skip,
                                                pieces[i].iov_len - skip});
    }
    stream_want_write(s, true);
    return true;
}

/* Same as writev(2), but returns 0 if the socket accepts nothing now. */
static inline ssize_t write_socket(struct stream *s, const struct iovec *pieces, int count)
{
    ssize_t n;

    do
        if (count == 1)
            n = send(s->fd, pieces[0].iov_base, pieces[0].iov_len, MSG_NOSIGNAL);
        else {
            struct msghdr message = {.msg_iov = (struct iovec *)pieces,
                                     .msg_iovlen = (size_t)count};
            n = sendmsg(s->fd, &message, MSG_NOSIGNAL);
        }
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    s->reset |= errno == ECONNRESET;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : n;
}

static inline ssize_t write_some(struct stream *s, const struct iovec *pieces, int count)
{
    ssize_t n = s->layer ? s->layer->write(s, pieces, count) : write_socket(s, pieces, count);

    if (n > 0)
        s->sent += (size_t)n;
    return n;
}

uint64_t stream_taken(const struct stream *s)
{
    int queued = 0;

    (void)ioctl(s->fd, SIOCOUTQ, &queued);
    return s->sent - (uint64_t)queued;
}

/* Writes the content of the pipe. Returns false if the peer is gone. */
static bool write_pipe(struct stream *s, struct pipe *pipe)
{
    size_t held = pipe->held;

    if (pipe_drain(pipe, s->fd) >= 0) {
        s->sent += held - pipe->held;
        s->spliced = true;
        return true;
    }
    s->reset |= errno == ECONNRESET;
    return false;
}

enum sent stream_send(struct stream *s, struct iobuf_pool *pool, struct iovec *pieces, int count)
{
    ssize_t n = 0;
    size_t size = 0;

    for (int i = 0; i < count; i++)
        size += pieces[i].iov_len;
    if (size == 0)
        return s->out ? SENT_PART : SENT_ALL;
    if (!s->out)
        n = write_some(s, pieces, count);
    if (n < 0)
        return SENT_FAILED;
    if ((size_t)n == size)
        return SENT_ALL;
    return keep_rest(s, pool, pieces, count, (size_t)n) ? SENT_PART : SENT_FAILED;
}

enum sent stream_flush(struct stream *s, struct iobuf_pool *pool)
{
    if (s->out) {
        struct iovec piece = iovec_of(iobuf_slice(s->out));
        ssize_t n = write_some(s, &piece, 1);
        if (n < 0)
            return SENT_FAILED;
        iobuf_take(s->out, (size_t)n);
        if (iobuf_held(s->out))
            return SENT_PART;
        iobuf_put(pool, &s->out);
    }
    if (s->pipe) {
        if (!write_pipe(s, s->pipe))
            return SENT_FAILED;
        if (s->pipe->held)
            return SENT_PART;
        pipe_put(&pool->pipes, &s->pipe);
    }
    stream_want_write(s, false);
    return SENT_ALL;
}

void stream_drop_output(struct stream *s, struct iobuf_pool *pool)
{
    iobuf_put(pool, &s->out);
    pipe_put(&pool->pipes, &s->pipe);
}

ssize_t stream_splice(struct stream *from, struct stream *to, struct iobuf_pool *pool, size_t most,
                      enum sent *sent)
{
    struct pipe *pipe = pipe_get(&pool->pipes);

    if (!pipe) {
        errno = ENOBUFS;
        return STREAM_FAILED;
    }
    ssize_t n = pipe_fill(pipe, from->fd, most);
    int error = errno;
    if (n > 0) {
        from->received += (size_t)n;
        *sent = !write_pipe(to, pipe) ? SENT_FAILED : pipe->held ? SENT_PART : SENT_ALL;
        if (*sent == SENT_PART) {
            to->pipe = pipe;
            from->drained = false;
            stream_want_write(to, true);
            return n;
        }
    }
    pipe_put(&pool->pipes, &pipe);
    from->drained = n < 0;
    if (n == 0 && end_is_reset(from))
        return STREAM_FAILED;
    from->eof |= n == 0;
    if (n < 0)
        n = error == EAGAIN || error == EWOULDBLOCK ? STREAM_AGAIN : STREAM_FAILED;
    errno = error;
    return n;
}
