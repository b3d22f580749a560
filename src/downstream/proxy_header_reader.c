#include "downstream/socket_client.h"

#include <errno.h>
#include <sys/socket.h>

static ssize_t recv_again(int fd, void *bytes, size_t size, int flags)
{
    ssize_t n;
    do
        n = recv(fd, bytes, size, flags);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Consumes bytes that were peeked before. */
static bool consume_peeked(struct stream *s, size_t n)
{
    if (recv_again(s->fd, s->in->bytes + s->in->end, n, 0) != (ssize_t)n)
        return false;
    s->in->end += (uint32_t)n;
    s->received += n;
    return true;
}

/* Handles a read without new bytes: none yet, or the connection has ended. */
static enum proxy_header_result nothing_came(struct stream *s, struct iobuf_pool *pool, bool again)
{
    bool began = iobuf_held(s->in) > 0;

    if (!began)
        iobuf_put(pool, &s->in);
    return again ? RECEIVE_PARTIAL : began ? RECEIVE_BAD : RECEIVE_CLOSED;
}

enum proxy_header_result proxy_header_receive(struct stream *s, struct iobuf_pool *pool,
                                              struct proxy_header *header)
{
    if (!s->in && !(s->in = iobuf_get(pool, PROXY_HEADER_MAX)))
        return RECEIVE_CLOSED;
    /* Peeks first: only the header contains its own length. */
    size_t held = iobuf_held(s->in);
    ssize_t n = recv_again(s->fd, s->in->bytes + held, iobuf_room(s->in), MSG_PEEK);
    if (n <= 0)
        return nothing_came(s, pool, n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
    switch (proxy_header_scan((struct slice){s->in->bytes, held + (size_t)n}, header)) {
    case PROXY_HEADER_PARTIAL: return consume_peeked(s, (size_t)n) ? RECEIVE_PARTIAL : RECEIVE_BAD;
    case PROXY_HEADER_BAD: return RECEIVE_BAD;
    case PROXY_HEADER_WHOLE: break;
    }
    bool taken = consume_peeked(s, header->size - held);
    iobuf_put(pool, &s->in);
    return taken ? RECEIVE_WHOLE : RECEIVE_BAD;
}
