/* relay.h - moves message content from one stream to another, with strict framing and
 * back-pressure.
 *
 *   from.in or socket -> receive buffer (decoded in place) -> socket or to.out
 *   from socket       -> pipe (splice)                     -> to socket
 *
 * The pipe carries content that weir does not decode or re-encode:
 *   - content of a known length, while at least SPLICE_MIN bytes are left;
 *   - content that ends with the connection, after its first SPLICE_MIN bytes.
 *
 * Content moves one piece at a time: weir reads nothing while `to` has unsent bytes. So a
 * connection uses at most one IOBUF_LARGE per direction, for content of any size. Chunked
 * content is decoded and written with new chunk lines: framing is never passed through. */
#ifndef WEIR_PROXY_RELAY_H
#define WEIR_PROXY_RELAY_H

#include "base/text.h"
#include "http/chunked.h"
#include "http/framing.h"
#include "net/stream.h"

enum { SPLICE_MIN = 128 * 1024 };

/* State of one message body: the request's or the response's. */
struct message_body {
    enum framing_kind kind; /* framing of the received message */
    bool chunked_out;       /* send it chunked */
    bool ended;             /* all content was read and accepted by the other stream */
    uint64_t left;          /* FRAMING_LENGTH: bytes not read yet */
    uint64_t max;           /* maximum content length in bytes; 0: no limit */
    uint64_t bytes;         /* content bytes read so far */
    struct chunked chunked;
};

void message_body_begin(struct message_body *message_body, const struct framing *framing, bool chunked_out,
                        uint64_t max);

enum relay {
    RELAY_SOURCE,    /* continue when `from` is readable */
    RELAY_SINK,      /* continue when `to` has sent its buffered bytes */
    RELAY_ENDED,     /* `to` has accepted all content and may still buffer some of it */
    RELAY_CLOSED,    /* `from` ended or failed before the end of the content */
    RELAY_BAD,       /* the framing is invalid: *why */
    RELAY_TOO_LARGE, /* more than message_body->max bytes; the piece that exceeds it was not sent */
    RELAY_GONE,      /* `to` failed */
    RELAY_NO_MEMORY
};

/* Buffers of the worker, used during one call. */
struct relay_io {
    struct iobuf_pool *buffers;
    char *receive; /* IOBUF_READ_MAX bytes */
};

/* Encoded bytes in relay_io.receive that follow a header. */
struct unread {
    char *bytes;
    size_t size;
};

/* Sends `head` and the first piece of content in one write. The content is `unread`, or else
 * the bytes in `from.in`; nothing is read from the socket. Otherwise like relay_move(). */
enum relay relay_begin(struct message_body *message_body, struct stream *from, struct stream *to,
                       struct slice head, struct unread unread, const struct relay_io *io, const char **why);

/* Moves one piece of content from `from.in`. If that is empty and `readable` is set, reads once
 * from the socket, or splices several pieces. `to` must have no unsent bytes. */
enum relay relay_move(struct message_body *message_body, struct stream *from, struct stream *to,
                      bool readable, const struct relay_io *io, const char **why);

/* Like relay_move(), but discards the content. Never returns RELAY_SINK or RELAY_GONE. */
enum relay relay_drop(struct message_body *message_body, struct stream *from, bool readable,
                      const struct relay_io *io, const char **why);

#endif
