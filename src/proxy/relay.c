#include "proxy/relay.h"

#include <errno.h>

enum { SPLICES_AT_ONCE = 4 /* per call, so that other connections are served */ };

void message_body_begin(struct message_body *message_body, const struct framing *framing, bool chunked_out,
                        uint64_t max)
{
    *message_body = (struct message_body){.kind = framing->kind,
                                          .chunked_out = chunked_out,
                                          .ended = framing->kind == FRAMING_NONE,
                                          .left = framing->kind == FRAMING_LENGTH ? framing->length : 0,
                                          .max = max};
    if (framing->kind == FRAMING_CHUNKED)
        chunked_begin(&message_body->chunked);
}

/* A piece of encoded bytes and the result of decoding it. */
struct piece {
    char *bytes;
    size_t size;    /* encoded bytes */
    size_t taken;   /* encoded bytes that belong to this message */
    size_t content; /* decoded bytes, at bytes[0] */
    bool kept;      /* the piece is in from.in */
};

/* Finds the next encoded bytes. RELAY_ENDED: found, or `from` ended where the content ends with
 * it. */
static enum relay fetch(struct message_body *message_body, struct stream *from, bool readable,
                        const struct relay_io *io, struct piece *piece)
{
    if (iobuf_held(from->in)) {
        *piece = (struct piece){
            .bytes = from->in->bytes + from->in->start, .size = iobuf_held(from->in), .kept = true};
        return RELAY_ENDED;
    }
    *piece = (struct piece){.bytes = io->receive};
    if (!readable)
        return RELAY_SOURCE;
    /* Never reads past a known length, so that no bytes of the next message need to be copied. */
    size_t want = message_body->kind == FRAMING_LENGTH && message_body->left < IOBUF_READ_MAX
                      ? (size_t)message_body->left
                      : IOBUF_READ_MAX;
    ssize_t n = stream_read(from, io->receive, want);
    if (n > 0) {
        piece->size = (size_t)n;
        return RELAY_ENDED;
    }
    if (n == 0 && message_body->kind == FRAMING_UNTIL_CLOSE) {
        message_body->ended = true;
        return RELAY_ENDED;
    }
    return n == STREAM_AGAIN ? RELAY_SOURCE : RELAY_CLOSED;
}

/* Decodes a piece: finds its bytes of this message and, of those, its content. RELAY_ENDED:
 * success. */
static enum relay decode(struct message_body *message_body, struct piece *piece, const char **why)
{
    enum chunked_result result;

    switch (message_body->kind) {
    case FRAMING_NONE: break;
    case FRAMING_LENGTH:
        piece->taken = piece->content =
            piece->size < message_body->left ? piece->size : (size_t)message_body->left;
        message_body->left -= piece->taken;
        message_body->ended = message_body->left == 0;
        break;
    case FRAMING_UNTIL_CLOSE: piece->taken = piece->content = piece->size; break;
    case FRAMING_CHUNKED:
        piece->taken = piece->size;
        result = chunked_decode(&message_body->chunked, piece->bytes, &piece->taken, &piece->content, why);
        if (result == CHUNKED_BAD)
            return RELAY_BAD;
        message_body->ended = result == CHUNKED_END;
    }
    message_body->bytes += piece->content;
    return message_body->max && message_body->bytes > message_body->max ? RELAY_TOO_LARGE : RELAY_ENDED;
}

/* Keeps bytes of the next message that came in the same read. False: no memory. */
static bool keep_rest(struct stream *from, const struct piece *piece, const struct relay_io *io)
{
    if (piece->kept)
        stream_take(from, io->buffers, piece->taken);
    else if (piece->taken < piece->size)
        return stream_keep(from, io->buffers,
                           (struct slice){piece->bytes + piece->taken, piece->size - piece->taken});
    return true;
}

static enum relay send_piece(struct message_body *message_body, struct stream *to, const struct piece *piece,
                             struct slice ahead, const struct relay_io *io)
{
    char line_bytes[24];
    struct text line = text_over(line_bytes, sizeof line_bytes);
    struct iovec out[4];
    int count = 0;
    struct slice tail = SLICE_NONE;

    if (ahead.n)
        out[count++] = iovec_of(ahead);
    if (message_body->chunked_out && piece->content) {
        text_hex(&line, piece->content);
        text_literal(&line, "\r\n");
        out[count++] = iovec_of(text_slice(&line));
        tail = SLICE("\r\n");
    }
    if (piece->content)
        out[count++] = (struct iovec){piece->bytes, piece->content};
    if (message_body->chunked_out && message_body->ended)
        tail = piece->content ? SLICE("\r\n0\r\n\r\n") : SLICE("0\r\n\r\n");
    if (tail.n)
        out[count++] = iovec_of(tail);

    enum sent sent = stream_send(to, io->buffers, out, count);
    if (sent == SENT_FAILED)
        return RELAY_GONE;
    if (message_body->ended)
        return RELAY_ENDED;
    return sent == SENT_PART ? RELAY_SINK : RELAY_SOURCE;
}

/* Decodes a piece (it may be empty), sends it after `head`, keeps the bytes of the next
 * message. */
static enum relay pass_on(struct message_body *message_body, struct stream *from, struct stream *to,
                          struct slice head, struct piece *piece, const struct relay_io *io, const char **why)
{
    enum relay result = piece->size && !message_body->ended ? decode(message_body, piece, why) : RELAY_ENDED;
    if (result != RELAY_ENDED)
        return result;
    result = send_piece(message_body, to, piece, head, io);
    /* Also if `to` failed: the piece is consumed, and the bytes after it are the next message. */
    if (!keep_rest(from, piece, io))
        return RELAY_NO_MEMORY;
    return result;
}

enum relay relay_begin(struct message_body *message_body, struct stream *from, struct stream *to,
                       struct slice head, struct unread unread, const struct relay_io *io, const char **why)
{
    struct piece piece = {.bytes = unread.bytes, .size = unread.size};

    if (unread.size == 0 && !message_body->ended && iobuf_held(from->in))
        (void)fetch(message_body, from, false, io, &piece);
    return pass_on(message_body, from, to, head, &piece, io, why);
}

/* True if weir does not need to decode or re-encode the content and there is enough for
 * splice(2). */
static bool may_splice(const struct message_body *message_body, const struct stream *from,
                       const struct stream *to)
{
    if (message_body->chunked_out || iobuf_held(from->in) || !stream_can_splice(from, to))
        return false;
    if (message_body->kind == FRAMING_LENGTH)
        return message_body->left >= SPLICE_MIN &&
               (!message_body->max || message_body->left <= message_body->max - message_body->bytes);
    return message_body->kind == FRAMING_UNTIL_CLOSE && message_body->bytes >= SPLICE_MIN &&
           !message_body->max;
}

/* Like relay_move(), for up to SPLICES_AT_ONCE pieces. False: read and send must be used
 * instead. */
static bool splice_pieces(struct message_body *message_body, struct stream *from, struct stream *to,
                          const struct relay_io *io, enum relay *result)
{
    *result = RELAY_SOURCE;
    for (unsigned i = 0; i < SPLICES_AT_ONCE && !message_body->ended; i++) {
        enum sent sent = SENT_ALL;
        size_t most = message_body->kind == FRAMING_LENGTH && message_body->left < PIPE_BYTES
                          ? (size_t)message_body->left
                          : PIPE_BYTES;
        ssize_t n = stream_splice(from, to, io->buffers, most, &sent);
        if (n == STREAM_FAILED && (errno == ENOBUFS || errno == EINVAL))
            return false;
        /* splice(2) stops at a TCP urgent byte (RFC 9293 section 3.8.5), and the socket stays
         * readable. recv(2) skips that byte. */
        if (n == STREAM_AGAIN && i == 0)
            return false;
        if (n == 0 && message_body->kind == FRAMING_UNTIL_CLOSE)
            message_body->ended = true;
        else if (n <= 0) {
            *result = n == STREAM_AGAIN ? RELAY_SOURCE : RELAY_CLOSED;
            return true;
        }
        message_body->bytes += (uint64_t)n;
        if (message_body->kind == FRAMING_LENGTH)
            message_body->ended = (message_body->left -= (uint64_t)n) == 0;
        *result = sent == SENT_FAILED   ? RELAY_GONE
                  : message_body->ended ? RELAY_ENDED
                  : sent == SENT_PART   ? RELAY_SINK
                                        : RELAY_SOURCE;
        if (sent != SENT_ALL)
            return true;
    }
    return true;
}

enum relay relay_move(struct message_body *message_body, struct stream *from, struct stream *to,
                      bool readable, const struct relay_io *io, const char **why)
{
    struct piece piece;

    if (message_body->ended)
        return RELAY_ENDED;
    enum relay fetched;
    if (readable && may_splice(message_body, from, to) && splice_pieces(message_body, from, to, io, &fetched))
        return fetched;
    fetched = fetch(message_body, from, readable, io, &piece);
    if (fetched != RELAY_ENDED)
        return fetched;
    return pass_on(message_body, from, to, SLICE_NONE, &piece, io, why);
}

enum relay relay_drop(struct message_body *message_body, struct stream *from, bool readable,
                      const struct relay_io *io, const char **why)
{
    struct piece piece;

    if (message_body->ended)
        return RELAY_ENDED;
    enum relay fetched = fetch(message_body, from, readable, io, &piece);
    if (fetched != RELAY_ENDED)
        return fetched;
    if ((fetched = decode(message_body, &piece, why)) != RELAY_ENDED)
        return fetched;
    if (!keep_rest(from, &piece, io))
        return RELAY_NO_MEMORY;
    return message_body->ended ? RELAY_ENDED : RELAY_SOURCE;
}
