/* stream.h - one non-blocking socket with its watch and its two bounded buffers.
 *
 *   peer --> [socket] --stream_read--> caller     in:  received and not consumed yet
 *   peer <-- [socket] <--stream_send-- caller     out: accepted by stream_send and not written yet; one IOBUF_LARGE at most
 *   peer <-- [socket] <-stream_splice- socket     pipe: the same of stream_splice; never both
 *
 * Events are level-triggered and stay added while they are wanted. All bytes of both sides of the proxy pass
 * here, so that another kind of stream (TLS) comes in at one place: a layer between the stream and its socket. */
#ifndef WEIR_NET_STREAM_H
#define WEIR_NET_STREAM_H

#include <sys/uio.h>

#include "net/iobuf.h"
#include "net/poller.h"

struct stream;

/* What stands between a stream and its socket. A plain stream has none, which costs it one branch. A layer has
 * the events call it and passes them on, so that they stay level-triggered for the stream's owner even where
 * bytes wait in the layer, or where reading has to wait for writing. */
struct stream_layer {
    ssize_t (*read)(struct stream *s, char *bytes, size_t size);               /* as stream_read */
    ssize_t (*write)(struct stream *s, const struct iovec *pieces, int count); /* 0: nothing now; -1: failed.
                     What was offered and not taken is offered again, with the same bytes in front */
    void (*wait)(struct stream *s);                 /* s->reading or s->writing has changed */
    bool (*holds)(const struct stream *s);          /* input that was received and not read */
    bool (*end)(struct stream *s);                  /* as stream_end */
    void (*close)(struct stream *s, bool politely); /* before the socket closes */
};

struct stream {
    int fd;                /* -1: closed */
    bool reading, writing; /* it is wanted; without a layer: the watch waits for it */
    bool eof;              /* the peer has sent its last byte */
    bool drained; /* the last read took all that was there; without a layer, and as far as is known */
    bool reset; /* a write failed with ECONNRESET, which the kernel reports once: the end of input is a cut */
    bool cut;   /* close without a word: what was sent must not look whole */
    struct iobuf *in, *out;
    struct pipe *pipe;
    const struct stream_layer *layer; /* NULL: none */
    void *session;                    /* the layer's own */
    struct watch watch;
};

/* Takes over `fd`. Nothing is wanted yet. The callbacks get `context`. */
void stream_open(struct stream *s, struct poller *poller, int fd, event_callback_fn on_readable,
                 event_callback_fn on_writable, void *context);
/* Ends the watch, closes the socket, gives the buffers back. May be called twice. */
void stream_close(struct stream *s, struct iobuf_pool *pool);

/* Start or stop waiting for input / for room to write. */
void stream_want_read(struct stream *s, bool want);
void stream_want_write(struct stream *s, bool want);
/* Stops waiting for input, until stream_want_read(). `tell_end`: on_readable runs with EV_CLOSED once the peer's end or its reset is in the
 * kernel, behind input that was not read. */
void stream_pause(struct stream *s, bool tell_end);
/* Has on_readable run in this or the next loop iteration, whatever the socket says: for input that is already in
 * `in`. */
void stream_wake(struct stream *s);

/* Nothing more is sent: the peer sees the end of what was. False: the peer is gone. `out` is empty. */
MUST_CHECK bool stream_end(struct stream *s);

/* Is there input that the kernel no longer has? */
static inline bool stream_holds_input(const struct stream *s)
{
    return iobuf_held(s->in) || (s->layer && s->layer->holds(s));
}

/* Is there output that the socket has not taken yet? */
static inline bool stream_holds_output(const struct stream *s)
{
    return s->out || s->pipe;
}

/* Has the peer sent something that was not read: is it in the layer, or in the kernel? */
bool stream_has_unread(const struct stream *s);
/* The same, or is something here that was read and not consumed? */
bool stream_has_input(const struct stream *s);

enum { STREAM_AGAIN = -1, STREAM_FAILED = -2 };

/* Reads once. Bytes read; 0: the peer's end (`eof` is set); STREAM_AGAIN; STREAM_FAILED with errno. */
ssize_t stream_read(struct stream *s, char *bytes, size_t size);

/* Reads once behind what `in` holds, which is made at least `room` large when it is not there. As
 * stream_read; STREAM_FAILED with ENOBUFS when `in` is full or there is no memory. */
ssize_t stream_read_in(struct stream *s, struct iobuf_pool *pool, size_t room);

/* Keeps `bytes` for later, in `in`. False: no room or no memory. */
MUST_CHECK bool stream_keep(struct stream *s, struct iobuf_pool *pool, struct slice bytes);
/* `n` bytes of `in` are consumed. */
void stream_take(struct stream *s, struct iobuf_pool *pool, size_t n);

enum sent { SENT_ALL, SENT_PART, SENT_FAILED };

/* Writes now what the socket takes and keeps the rest in `out`, wanting to write. SENT_FAILED: the peer is
 * gone or the rest does not fit; then the stream is of no more use. */
enum sent stream_send(struct stream *s, struct iobuf_pool *pool, struct iovec *pieces, int count);
/* Writes more of `out`. SENT_ALL: it is empty and its buffer given back. */
enum sent stream_flush(struct stream *s, struct iobuf_pool *pool);

/* Neither stream has a layer: content may pass without being looked at. */
static inline bool stream_can_splice(const struct stream *from, const struct stream *to)
{
    return !from->layer && !to->layer;
}

/* Reads once, up to `most` bytes, and writes to `to` what it takes, without the bytes leaving the kernel; the
 * rest waits in to->pipe, wanting to write. `to` holds no output. Returns as stream_read, and STREAM_FAILED with
 * ENOBUFS or EINVAL where nothing was read since it cannot be done in this way; `*sent` is set with bytes read. */
ssize_t stream_splice(struct stream *from, struct stream *to, struct iobuf_pool *pool, size_t most,
                      enum sent *sent);

/* Forgets the output that waits: the peer is gone. */
void stream_drop_output(struct stream *s, struct iobuf_pool *pool);

static inline struct iovec iovec_of(struct slice s)
{
    return (struct iovec){(void *)(uintptr_t)s.p, s.n};
}

#endif
