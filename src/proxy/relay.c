#include "proxy/relay.h"

#include <errno.h>

enum { SPLICES_AT_ONCE = 4 /* then others have their turn */ };

void half_begin(struct half *half, const struct framing *framing, bool chunked_out, uint64_t max)
{
    *half = (struct half){.kind = framing->kind,
                          .chunked_out = chunked_out,
                          .ended = framing->kind == FRAMING_NONE,
                          .left = framing->kind == FRAMING_LENGTH ? framing->length : 0,
                          .max = max};
    if (framing->kind == FRAMING_CHUNKED)
        chunked_begin(&half->chunked);
}

/* A piece of coded bytes, where it is, and what was understood of it. */
struct piece {
    char *bytes;
    size_t size;    /* coded bytes there */
    size_t taken;   /* of them, by this message */
    size_t content; /* decoded, at bytes[0] */
    bool kept;      /* it lies in from.in */
};

/* Finds the next coded bytes. RELAY_ENDED means "there are some" here. */
static enum relay fetch(struct half *half, struct stream *from, bool readable,
                        const struct relay_means *means, struct piece *piece)
{
    if (iobuf_held(from->in)) {
        *piece = (struct piece){
            .bytes = from->in->bytes + from->in->start, .size = iobuf_held(from->in), .kept = true};
        return RELAY_ENDED;
    }
    *piece = (struct piece){.bytes = means->receive};
    if (!readable)
        return RELAY_SOURCE;
    /* Never beyond a known length, so that nothing of the next message has to be copied aside. */
    size_t want =
        half->kind == FRAMING_LENGTH && half->left < IOBUF_READ_MAX ? (size_t)half->left : IOBUF_READ_MAX;
    ssize_t n = stream_read(from, means->receive, want);
    if (n > 0) {
        piece->size = (size_t)n;
        return RELAY_ENDED;
    }
    if (n == 0 && half->kind == FRAMING_UNTIL_CLOSE) {
        half->ended = true;
        return RELAY_ENDED;
    }
    return n == STREAM_AGAIN ? RELAY_SOURCE : RELAY_CLOSED;
}

/* Understands a piece: how much of it belongs to this message, and what of that is content. RELAY_ENDED: it
 * may go on. */
static enum relay decode(struct half *half, struct piece *piece, const char **why)
{
    enum chunked_result result;

    switch (half->kind) {
    case FRAMING_NONE: break;
    case FRAMING_LENGTH:
        piece->taken = piece->content = piece->size < half->left ? piece->size : (size_t)half->left;
        half->left -= piece->taken;
        half->ended = half->left == 0;
        break;
    case FRAMING_UNTIL_CLOSE: piece->taken = piece->content = piece->size; break;
    case FRAMING_CHUNKED:
        piece->taken = piece->size;
        result = chunked_decode(&half->chunked, piece->bytes, &piece->taken, &piece->content, why);
        if (result == CHUNKED_BAD)
            return RELAY_BAD;
        half->ended = result == CHUNKED_END;
    }
    half->bytes += piece->content;
    return half->max && half->bytes > half->max ? RELAY_TOO_LARGE : RELAY_ENDED;
}

/* What follows the message in the same read is the next one's. */
static bool keep_rest(struct stream *from, const struct piece *piece, const struct relay_means *means)
{
    if (piece->kept)
        stream_take(from, means->buffers, piece->taken);
    else if (piece->taken < piece->size)
        return stream_keep(from, means->buffers,
                           (struct slice){piece->bytes + piece->taken, piece->size - piece->taken});
    return true;
}

static enum relay send_piece(struct half *half, struct stream *to, const struct piece *piece,
                             struct slice ahead, const struct relay_means *means)
{
    char line_bytes[24];
    struct text line = text_over(line_bytes, sizeof line_bytes);
    struct iovec out[4];
    int count = 0;
    struct slice tail = SLICE_NONE;

    if (ahead.n)
        out[count++] = iovec_of(ahead);
    if (half->chunked_out && piece->content) {
        text_hex(&line, piece->content);
        text_literal(&line, "\r\n");
        out[count++] = iovec_of(text_slice(&line));
        tail = SLICE("\r\n");
    }
    if (piece->content)
        out[count++] = (struct iovec){piece->bytes, piece->content};
    if (half->chunked_out && half->ended)
        tail = piece->content ? SLICE("\r\n0\r\n\r\n") : SLICE("0\r\n\r\n");
    if (tail.n)
        out[count++] = iovec_of(tail);

    enum sent sent = stream_send(to, means->buffers, out, count);
    if (sent == SENT_FAILED)
        return RELAY_GONE;
    if (half->ended)
        return RELAY_ENDED;
    return sent == SENT_PART ? RELAY_SINK : RELAY_SOURCE;
}

/* Decodes a piece (which may be empty), sends it behind `head`, keeps what belongs to the next message. */
static enum relay pass_on(struct half *half, struct stream *from, struct stream *to, struct slice head,
                          struct piece *piece, const struct relay_means *means, const char **why)
{
    enum relay result = piece->size && !half->ended ? decode(half, piece, why) : RELAY_ENDED;
    if (result != RELAY_ENDED)
        return result;
    result = send_piece(half, to, piece, head, means);
    /* Also when `to` failed: what was decoded is not there any more, and what follows is the next message. */
    if (!keep_rest(from, piece, means))
        return RELAY_NO_MEMORY;
    return result;
}

enum relay relay_begin(struct half *half, struct stream *from, struct stream *to, struct slice head,
                       struct behind behind, const struct relay_means *means, const char **why)
{
    struct piece piece = {.bytes = behind.bytes, .size = behind.size};

    if (behind.size == 0 && !half->ended && iobuf_held(from->in))
        (void)fetch(half, from, false, means, &piece);
    return pass_on(half, from, to, head, &piece, means, why);
}

/* Content that is neither looked at nor changed, and enough of it to be worth a pipe. */
static bool may_splice(const struct half *half, const struct stream *from, const struct stream *to)
{
    if (half->chunked_out || iobuf_held(from->in) || !stream_can_splice(from, to))
        return false;
    if (half->kind == FRAMING_LENGTH)
        return half->left >= SPLICE_MIN && (!half->max || half->left <= half->max - half->bytes);
    return half->kind == FRAMING_UNTIL_CLOSE && half->bytes >= SPLICE_MIN && !half->max;
}

/* As relay_move, for some pieces. False: it has to be done in the ordinary way. */
static bool splice_pieces(struct half *half, struct stream *from, struct stream *to,
                          const struct relay_means *means, enum relay *result)
{
    *result = RELAY_SOURCE;
    for (unsigned i = 0; i < SPLICES_AT_ONCE && !half->ended; i++) {
        enum sent sent = SENT_ALL;
        size_t most =
            half->kind == FRAMING_LENGTH && half->left < PIPE_BYTES ? (size_t)half->left : PIPE_BYTES;
        ssize_t n = stream_splice(from, to, means->buffers, most, &sent);
        if (n == STREAM_FAILED && (errno == ENOBUFS || errno == EINVAL))
            return false;
        /* splice(2) does not get over an urgent byte (RFC 9293 section 3.8.5), before which the socket stays
         * readable for ever: recv(2) leaves it out. */
        if (n == STREAM_AGAIN && i == 0)
            return false;
        if (n == 0 && half->kind == FRAMING_UNTIL_CLOSE)
            half->ended = true;
        else if (n <= 0) {
            *result = n == STREAM_AGAIN ? RELAY_SOURCE : RELAY_CLOSED;
            return true;
        }
        half->bytes += (uint64_t)n;
        if (half->kind == FRAMING_LENGTH)
            half->ended = (half->left -= (uint64_t)n) == 0;
        *result = sent == SENT_FAILED ? RELAY_GONE
                  : half->ended       ? RELAY_ENDED
                  : sent == SENT_PART ? RELAY_SINK
                                      : RELAY_SOURCE;
        if (sent != SENT_ALL)
            return true;
    }
    return true;
}

enum relay relay_move(struct half *half, struct stream *from, struct stream *to, bool readable,
                      const struct relay_means *means, const char **why)
{
    struct piece piece;

    if (half->ended)
        return RELAY_ENDED;
    enum relay fetched;
    if (readable && may_splice(half, from, to) && splice_pieces(half, from, to, means, &fetched))
        return fetched;
    fetched = fetch(half, from, readable, means, &piece);
    if (fetched != RELAY_ENDED)
        return fetched;
    return pass_on(half, from, to, SLICE_NONE, &piece, means, why);
}

enum relay relay_drop(struct half *half, struct stream *from, bool readable, const struct relay_means *means,
                      const char **why)
{
    struct piece piece;

    if (half->ended)
        return RELAY_ENDED;
    enum relay fetched = fetch(half, from, readable, means, &piece);
    if (fetched != RELAY_ENDED)
        return fetched;
    if ((fetched = decode(half, &piece, why)) != RELAY_ENDED)
        return fetched;
    if (!keep_rest(from, &piece, means))
        return RELAY_NO_MEMORY;
    return half->ended ? RELAY_ENDED : RELAY_SOURCE;
}
