#include "upstream/message_body.h"

#include <errno.h>

#include "http/trailers.h"

enum { SPLICES_AT_ONCE = 4 /* per call, so that other connections are served */ };

void body_reader_begin(struct body_reader *reader, const struct framing *framing)
{
    *reader = (struct body_reader){.kind = framing->kind,
                                   .ended = framing->kind == FRAMING_NONE,
                                   .left = framing->kind == FRAMING_LENGTH ? framing->length : 0};
    if (framing->kind == FRAMING_CHUNKED)
        chunked_begin(&reader->chunked);
}

/* ---- trailers ------------------------------------------------------------------------------- */

/* Takes the part of the trailer section that chunked_decode() has found after the content. A
 * section in one part is parsed where it is. */
static enum body_status read_trailer_part(struct body_reader *reader, struct content_piece *piece,
                                          const struct body_io *io, const char **why)
{
    struct slice part = {piece->bytes + piece->size, reader->chunked.trailers};

    bool none = !reader->trailers && (*part.p == '\r' || *part.p == '\n'); /* the empty line */

    if (none || !io->trailers)
        return BODY_READ;
    if (!reader->ended && !reader->trailers &&
        !(reader->trailers = iobuf_get(io->buffers, TRAILERS_MAX + TRAILERS_MAX / 2))) {
        *why = "no memory for trailers";
        return BODY_BAD;
    }
    if (reader->trailers) {
        iobuf_append(reader->trailers, part);
        part = iobuf_slice(reader->trailers);
    }
    if (!reader->ended)
        return BODY_READ;
    if (!trailers_parse(part, io->trailers, why))
        return BODY_BAD;
    piece->trailers = trailers_any(io->trailers) ? io->trailers : NULL;
    return BODY_READ;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Finds the next encoded bytes. BODY_READ: found, or the stream ended where the content ends with
 * it. */
static enum body_status find_encoded(struct body_reader *reader, struct stream *from, bool readable,
                                     const struct body_io *io, struct content_piece *piece)
{
    if (iobuf_held(from->in)) {
        *piece = (struct content_piece){.bytes = from->in->bytes + from->in->start,
                                        .encoded = iobuf_held(from->in),
                                        .kept = true};
        return BODY_READ;
    }
    *piece = (struct content_piece){.bytes = io->receive};
    if (!readable)
        return BODY_AGAIN;
    /* Never reads past a known length, so that no bytes of the next message need to be copied. */
    size_t want = reader->kind == FRAMING_LENGTH && reader->left < IOBUF_READ_MAX
                      ? (size_t)reader->left
                      : IOBUF_READ_MAX;
    ssize_t n = stream_read(from, io->receive, want);
    if (n > 0) {
        piece->encoded = (size_t)n;
        return BODY_READ;
    }
    if (n == 0 && reader->kind == FRAMING_UNTIL_CLOSE) {
        reader->ended = true;
        return BODY_READ;
    }
    return n == STREAM_AGAIN ? BODY_AGAIN : BODY_CLOSED;
}

/* Decodes a piece: finds its bytes of this message and, of those, its content. */
static enum body_status decode_piece(struct body_reader *reader, struct content_piece *piece,
                                     const struct body_io *io, const char **why)
{
    enum chunked_result result;

    switch (reader->kind) {
    case FRAMING_NONE: break;
    case FRAMING_LENGTH:
        piece->consumed = piece->size =
            piece->encoded < reader->left ? piece->encoded : (size_t)reader->left;
        reader->left -= piece->consumed;
        reader->ended = reader->left == 0;
        break;
    case FRAMING_UNTIL_CLOSE: piece->consumed = piece->size = piece->encoded; break;
    case FRAMING_CHUNKED:
        piece->consumed = piece->encoded;
        result =
            chunked_decode(&reader->chunked, piece->bytes, &piece->consumed, &piece->size, why);
        if (result == CHUNKED_BAD)
            return BODY_BAD;
        reader->ended = result == CHUNKED_END;
        if (reader->chunked.trailers && read_trailer_part(reader, piece, io, why) != BODY_READ)
            return BODY_BAD;
    }
    reader->bytes += piece->size;
    piece->last = reader->ended;
    return BODY_READ;
}

enum body_status body_read(struct body_reader *reader, struct stream *from, bool readable,
                           const struct body_io *io, struct content_piece *piece, const char **why)
{
    enum body_status status = find_encoded(reader, from, readable, io, piece);

    if (status != BODY_READ)
        return status;
    piece->last = reader->ended;
    return piece->encoded && !reader->ended ? decode_piece(reader, piece, io, why) : BODY_READ;
}

enum body_status body_read_after_head(struct body_reader *reader, char *bytes, size_t size,
                                      const struct body_io *io, struct content_piece *piece,
                                      const char **why)
{
    *piece = (struct content_piece){.bytes = bytes, .encoded = size, .last = reader->ended};
    return reader->ended ? BODY_READ : decode_piece(reader, piece, io, why);
}

bool body_consume(struct stream *from, const struct content_piece *piece, const struct body_io *io)
{
    if (piece->kept)
        stream_take(from, io->buffers, piece->consumed);
    else if (piece->consumed < piece->encoded)
        return stream_keep(
            from, io->buffers,
            (struct slice){piece->bytes + piece->consumed, piece->encoded - piece->consumed});
    return true;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Gathers the head, the chunk line and the content. Returns their number. */
static int list_pieces(struct iovec *out, struct slice head, struct text *line,
                       struct slice content, bool chunked)
{
    int count = 0;

    if (head.n)
        out[count++] = iovec_of(head);
    if (chunked && content.n) {
        text_hex(line, content.n);
        text_literal(line, "\r\n");
        out[count++] = iovec_of(text_slice(line));
    }
    if (content.n)
        out[count++] = iovec_of(content);
    return count;
}

/* Sends `count` of `out`, the last chunk and the trailers. */
static enum sent send_trailers(struct stream *to, struct iobuf_pool *buffers, struct iovec *out,
                               int count, struct slice tail, const struct fields *trailers)
{
    char bytes[TRAILERS_TEXT_MAX + 16];
    struct text lines = text_over(bytes, sizeof bytes);

    tail.n -= 2; /* the empty line */
    text_put(&lines, tail);
    trailers_write(&lines, trailers);
    text_literal(&lines, "\r\n");
    out[count++] = iovec_of(text_slice(&lines));
    return lines.failed ? SENT_FAILED : stream_send(to, buffers, out, count);
}

enum sent body_write(struct stream *to, struct iobuf_pool *buffers, struct slice head,
                     const struct content_piece *piece, bool chunked)
{
    struct slice content = {piece->bytes, piece->size};
    char line_bytes[24];
    struct text line = text_over(line_bytes, sizeof line_bytes);
    struct iovec out[4];
    int count = list_pieces(out, head, &line, content, chunked);

    if (chunked && piece->last) {
        struct slice tail = content.n ? SLICE("\r\n0\r\n\r\n") : SLICE("0\r\n\r\n");
        if (piece->trailers)
            return send_trailers(to, buffers, out, count, tail, piece->trailers);
        out[count++] = iovec_of(tail);
    } else if (chunked && content.n)
        out[count++] = iovec_of(SLICE("\r\n"));
    return stream_send(to, buffers, out, count);
}

/* ---- splicing ------------------------------------------------------------------------------- */

/* True if weir does not need to decode the content and there is enough for splice(2). */
static bool may_splice(const struct body_reader *reader, const struct stream *from,
                       const struct stream *to)
{
    if (iobuf_held(from->in) || !stream_can_splice(from, to))
        return false;
    if (reader->kind == FRAMING_LENGTH)
        return reader->left >= SPLICE_MIN;
    return reader->kind == FRAMING_UNTIL_CLOSE && reader->bytes >= SPLICE_MIN;
}

bool body_splice(struct body_reader *reader, struct stream *from, struct stream *to,
                 struct iobuf_pool *buffers, enum body_status *status, enum sent *sent)
{
    if (!may_splice(reader, from, to))
        return false;
    *status = BODY_READ;
    *sent = SENT_ALL;
    for (unsigned i = 0; i < SPLICES_AT_ONCE && !reader->ended; i++) {
        size_t most = reader->kind == FRAMING_LENGTH && reader->left < PIPE_BYTES
                          ? (size_t)reader->left
                          : PIPE_BYTES;
        ssize_t n = stream_splice(from, to, buffers, most, sent);
        if (n == STREAM_FAILED && (errno == ENOBUFS || errno == EINVAL))
            return i > 0;
        /* splice(2) stops at a TCP urgent byte (RFC 9293 section 3.8.5), and the socket stays
         * readable. recv(2) skips that byte. */
        if (n == STREAM_AGAIN && i == 0)
            return false;
        if (n == 0 && reader->kind == FRAMING_UNTIL_CLOSE) {
            reader->ended = true;
            return true;
        }
        if (n <= 0) {
            *status = n == STREAM_AGAIN ? BODY_AGAIN : BODY_CLOSED;
            return true;
        }
        reader->bytes += (uint64_t)n;
        if (reader->kind == FRAMING_LENGTH)
            reader->ended = (reader->left -= (uint64_t)n) == 0;
        if (*sent != SENT_ALL)
            return true;
    }
    return true;
}
