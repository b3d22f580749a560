/* stream.h - a non-blocking socket with its watch and two bounded buffers.
 *
 *   peer --> [socket] --stream_read--> caller     in:   received, not consumed yet
 *   peer <-- [socket] <--stream_send-- caller     out:  accepted, not written yet; IOBUF_MAX
 *   peer <-- [socket] <-stream_splice- socket     pipe: same for stream_splice; never used with out
 *
 * Events are level-triggered and stay registered while they are wanted. Both sides of the proxy use
 * streams. TLS is added in one place, as a layer between a stream and its socket.
 *
 * This directory owns sockets and addresses. It gives no meaning to the bytes. In reading order:
 *
 *   address.h, resolver.h         addresses as text and bytes; names
 *   listener.h, inherited.h       listening sockets, own and of systemd; ip_counts.h
 *   poller.h                      which sockets are ready
 *   stream.h, iobuf.h, pipe.h     a socket with its buffers; content that stays in the kernel
 *   tls.h, tls_pump.h             TLS below a stream; TLS below a plain socket
 *   proxy_header.h                the PROXY protocol */
#ifndef WEIR_NET_STREAM_H
#define WEIR_NET_STREAM_H

#include <sys/uio.h>

#include "net/iobuf.h"
#include "net/poller.h"

struct stream;

/* A layer between a stream and its socket. A plain stream has none; checking for it costs one
 * branch. The layer receives the socket's events and forwards them. It keeps them level-triggered
 * for the owner, even if bytes wait in the layer or reading must wait for writing. */
struct stream_layer {
    /* same as stream_read */
    ssize_t (*read)(struct stream *s, char *bytes, size_t size);
    /* Returns 0 if the socket accepts nothing now, -1 on failure. Bytes that were not accepted
     * are offered again, at the front. */
    ssize_t (*write)(struct stream *s, const struct iovec *pieces, int count);
    /* called when s->reading or s->writing changed */
    void (*wait)(struct stream *s);
    bool (*holds)(const struct stream *s);          /* whether the layer holds unread input */
    bool (*end)(struct stream *s);                  /* same as stream_end */
    void (*close)(struct stream *s, bool politely); /* called before the socket is closed */
};

struct stream {
    int fd; /* -1: closed */
    /* Events that the owner wants. Without a layer, the watch waits for them. */
    bool reading, writing;
    bool eof; /* the peer has closed its sending side */
    /* The last read took all available data. A hint; meaningless if the stream has a layer. */
    bool drained;
    /* A write failed with ECONNRESET. The kernel reports a reset once, so a later end of input
     * is a truncation. */
    bool reset;
    bool spliced;      /* content was spliced to it */
    bool cut;          /* close abruptly: the data sent must not look complete */
    uint64_t sent;     /* bytes that the socket has accepted, before encryption */
    uint64_t received; /* bytes read from the socket; not with a layer */
    struct iobuf *in, *out;
    struct pipe *pipe;
    const struct stream_layer *layer; /* NULL: none */
    void *session;                    /* private to the layer */
    struct watch watch;
};

/* Takes ownership of `fd`. No events are wanted yet. `context` is passed to the callbacks. */
void stream_open(struct stream *s, struct poller *poller, int fd, event_callback_fn on_readable,
                 event_callback_fn on_writable, void *context);
/* Ends the watch, closes the socket and returns the buffers. May be called twice. */
void stream_close(struct stream *s, struct iobuf_pool *pool);

/* Start or stop waiting for input or for room to write. */
void stream_want_read(struct stream *s, bool want);
void stream_want_write(struct stream *s, bool want);
/* Stops waiting for input, until stream_want_read(). If `tell_end` is set, on_readable runs with
 * EV_CLOSED when the peer's FIN or reset arrives, even after unread input. */
void stream_pause(struct stream *s, bool tell_end);
/* Calls on_readable in this loop iteration or the next, even if the socket has no data. Used for
 * input that is already in `in`. */
void stream_wake(struct stream *s);

/* Closes the sending side: the peer sees the end of the data. `out` must be empty. Returns false if
 * the peer is gone. */
MUST_CHECK bool stream_end(struct stream *s);

/* Returns whether there is unconsumed input outside the kernel, in `in` or in the layer. */
static inline bool stream_holds_input(const struct stream *s)
{
    return iobuf_held(s->in) || (s->layer && s->layer->holds(s));
}

/* Returns whether there is output that the socket has not accepted yet. */
static inline bool stream_holds_output(const struct stream *s)
{
    return s->out || s->pipe;
}

/* Returns whether the socket accepts output now, or has failed. Costs a system call. */
bool stream_is_writable(const struct stream *s);

/* Returns whether there is unread input, in the layer or in the kernel. */
bool stream_has_unread(const struct stream *s);
/* Same as stream_has_unread(), or `in` holds unconsumed input. */
bool stream_has_input(const struct stream *s);

enum { STREAM_AGAIN = -1, STREAM_FAILED = -2 };

/* Reads once. Returns the number of bytes; 0 at the end of input (sets `eof`); STREAM_AGAIN; or
 * STREAM_FAILED with errno. */
ssize_t stream_read(struct stream *s, char *bytes, size_t size);

/* Reads once and appends to `in`. If `in` has no buffer, gets one of at least `room` bytes. Returns
 * as stream_read(); STREAM_FAILED with ENOBUFS if `in` is full or there is no memory. */
ssize_t stream_read_in(struct stream *s, struct iobuf_pool *pool, size_t room);

/* Stores `bytes` in `in` for later. Returns false if there is no room or no memory. */
MUST_CHECK bool stream_keep(struct stream *s, struct iobuf_pool *pool, struct slice bytes);
/* Consumes `n` bytes of `in`. */
void stream_take(struct stream *s, struct iobuf_pool *pool, size_t n);

enum sent { SENT_ALL, SENT_PART, SENT_FAILED };

/* Writes as much as the socket accepts, stores the rest in `out` and waits for writing.
 * SENT_FAILED: the peer is gone or the rest does not fit; the stream cannot be used further. */
enum sent stream_send(struct stream *s, struct iobuf_pool *pool, struct iovec *pieces, int count);
/* Writes more of `out`. SENT_ALL: `out` is empty and its buffer returned to the pool. */
enum sent stream_flush(struct stream *s, struct iobuf_pool *pool);

/* Returns whether neither stream has a layer, so that content can be spliced. */
static inline bool stream_can_splice(const struct stream *from, const struct stream *to)
{
    return !from->layer && !to->layer;
}

/* Reads once, up to `most` bytes, and writes them to `to`, without copying to user space. Bytes
 * that `to` does not accept stay in to->pipe, and `to` waits for writing. `to` must hold no output.
 *
 * Returns as stream_read(). STREAM_FAILED with ENOBUFS or EINVAL: splicing is not possible and
 * nothing was read. `*sent` is set if bytes were read. */
ssize_t stream_splice(struct stream *from, struct stream *to, struct iobuf_pool *pool, size_t most,
                      enum sent *sent);

/* Returns the bytes sent that the peer's kernel has received (TCP) or the peer has read (unix
 * socket). Only differences are meaningful: encryption adds bytes that are not counted in `sent`.
 * Costs a system call. */
uint64_t stream_taken(const struct stream *s);

/* Discards the waiting output, because the peer is gone. */
void stream_drop_output(struct stream *s, struct iobuf_pool *pool);

static inline struct iovec iovec_of(struct slice s)
{
    return (struct iovec){(void *)(uintptr_t)s.p, s.n};
}

#endif
