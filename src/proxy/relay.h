/* relay.h - moves a message's content from one stream to another, strictly framed, with back-pressure.
 *
 *   from.in or socket -> [receive buffer: decode in place] -> socket or to.out
 *
 *   from socket ----> pipe ----> to socket      content of known length and unknown kind, from SPLICE_MIN on
 *
 * One piece at a time: nothing is read while `to` still holds bytes that were not written. So a connection
 * owns at most one IOBUF_LARGE in each direction, whatever the content's size. Chunked content is decoded and
 * written with weir's own chunk lines: framing is never passed through. */
#ifndef WEIR_PROXY_RELAY_H
#define WEIR_PROXY_RELAY_H

#include "base/text.h"
#include "http/chunked.h"
#include "http/framing.h"
#include "net/stream.h"

enum { SPLICE_MIN = 128 * 1024 };

/* One direction of an exchange. */
struct message_body {
    enum framing_kind kind; /* how the content comes in */
    bool chunked_out;       /* how it goes out */
    bool ended;             /* all of it was read (and accepted by the other stream) */
    uint64_t left;          /* FRAMING_LENGTH: bytes not read yet */
    uint64_t max;           /* content that is allowed; 0: any amount */
    uint64_t bytes;         /* content read so far */
    struct chunked chunked;
};

void message_body_begin(struct message_body *message_body, const struct framing *framing, bool chunked_out,
                        uint64_t max);

enum relay {
    RELAY_SOURCE,    /* goes on when `from` is readable */
    RELAY_SINK,      /* goes on when `to` has written what it holds */
    RELAY_ENDED,     /* all content was accepted by `to` (which may still hold some of it) */
    RELAY_CLOSED,    /* `from` ended or failed before the content did */
    RELAY_BAD,       /* the framing is broken: *why */
    RELAY_TOO_LARGE, /* more content than half->max; what is over was not passed on */
    RELAY_GONE,      /* `to` failed */
    RELAY_NO_MEMORY
};

/* What a worker lends for the duration of one call. */
struct relay_io {
    struct iobuf_pool *buffers;
    char *receive; /* IOBUF_READ_MAX bytes */
};

/* Coded bytes that were read into `means->receive` behind a head. */
struct unread {
    char *bytes;
    size_t size;
};

/* The first piece, together with the head before it, in one write: `head` is weir's text, the content is
 * `behind`, or what `from.in` holds. Reads nothing. As relay_move. */
enum relay relay_begin(struct message_body *message_body, struct stream *from, struct stream *to,
                       struct slice head, struct unread unread, const struct relay_io *io, const char **why);

/* Moves one piece: from `from.in`, or when that is empty and `readable`, from one read. Requires that `to`
 * holds nothing. */
enum relay relay_move(struct message_body *message_body, struct stream *from, struct stream *to,
                      bool readable, const struct relay_io *io, const char **why);

/* As relay_move, but drops the content. RELAY_SOURCE, ENDED, CLOSED, BAD or NO_MEMORY. */
enum relay relay_drop(struct message_body *message_body, struct stream *from, bool readable,
                      const struct relay_io *io, const char **why);

#endif
