/* message_body.h - the content of one HTTP/1.1 message on a stream: reads and decodes it, or
 * encodes and writes it.
 *
 * Content moves one piece at a time, decoded in place:
 *
 *   body_read() -> piece -> body_write() of another stream, or another protocol -> body_consume()
 *
 * body_splice() moves content that weir neither decodes nor encodes through a kernel pipe:
 *   - content of a known length, while at least SPLICE_MIN bytes are left;
 *   - content that ends with the connection, after its first SPLICE_MIN bytes. */
#ifndef WEIR_UPSTREAM_MESSAGE_BODY_H
#define WEIR_UPSTREAM_MESSAGE_BODY_H

#include "base/text.h"
#include "http/chunked.h"
#include "http/framing.h"
#include "net/stream.h"

enum { SPLICE_MIN = 128 * 1024 };

/* State of the content that is read from a stream. */
struct body_reader {
    enum framing_kind kind;
    bool ended;     /* all content was read */
    uint64_t left;  /* FRAMING_LENGTH: bytes not read yet */
    uint64_t bytes; /* content bytes read so far */
    struct chunked chunked;
    struct iobuf *trailers; /* trailers that arrived in several pieces; NULL: none */
};

void body_reader_begin(struct body_reader *reader, const struct framing *framing);
/* Frees what the reader stores. Call it before the reader is begun again. */
static inline void body_reader_end(struct body_reader *reader, struct iobuf_pool *buffers)
{
    if (reader->trailers != NULL)
        iobuf_put(buffers, &reader->trailers);
}

/* Buffers of the worker, used during one call. */
struct body_io {
    struct iobuf_pool *buffers;
    char *receive;           /* IOBUF_READ_MAX bytes */
    struct fields *trailers; /* those of the last piece; NULL: trailers are dropped */
};

enum body_status {
    BODY_READ,   /* `piece` is set; it may be empty if only framing was read */
    BODY_AGAIN,  /* nothing to read now */
    BODY_CLOSED, /* the stream ended or failed before the end of the content */
    BODY_BAD     /* the framing is invalid: `*why`, a static text */
};

/* A piece of content. The bytes are valid until body_consume(). */
struct content_piece {
    char *bytes;
    size_t size;
    bool last;                /* the content ends with this piece */
    struct fields *trailers;  /* of the last piece, by trailers_parse(); NULL: none to forward */
    size_t encoded, consumed; /* private: bytes received; those of this message */
    bool kept;                /* private: they are in stream.in */
};

/* Reads the next piece: from stream.in, else, if `readable` is set, from the socket (one read). */
enum body_status body_read(struct body_reader *reader, struct stream *from, bool readable,
                           const struct body_io *io, struct content_piece *piece, const char **why);

/* Decodes `size` bytes in io.receive that follow a head, as body_read() does. */
enum body_status body_read_after_head(struct body_reader *reader, char *bytes, size_t size,
                                      const struct body_io *io, struct content_piece *piece,
                                      const char **why);

/* Releases the piece, and keeps the bytes of the next message that came with it in stream.in.
 * Returns false if there is no memory. */
MUST_CHECK bool body_consume(struct stream *from, const struct content_piece *piece,
                             const struct body_io *io);

/* Returns whether body_consume() has nothing to do. */
static inline bool body_is_consumed(const struct content_piece *piece)
{
    return !piece->kept && piece->consumed == piece->encoded;
}

/* Writes a head (may be empty) and a piece of content in one call. Trailers are written only if the
 * content is chunked. Returns as stream_send(). */
enum sent body_write(struct stream *to, struct iobuf_pool *buffers, struct slice head,
                     const struct content_piece *piece, bool chunked);

/* Moves several pieces without copying them to user space. `to` must have no unsent bytes. Returns
 * false if that is not possible now; then nothing was moved. Otherwise sets `*sent`, and `*status`
 * to BODY_READ, BODY_AGAIN (the socket has no more) or BODY_CLOSED. */
bool body_splice(struct body_reader *reader, struct stream *from, struct stream *to,
                 struct iobuf_pool *buffers, enum body_status *status, enum sent *sent);

#endif
