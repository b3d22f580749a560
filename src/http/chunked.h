/* chunked.h - incremental, strict decoder of the chunked transfer coding (RFC 9112 section 7.1).
 *
 * - Lines end with CRLF only.
 * - Extensions are checked, limited in size and dropped.
 * - Trailers are checked and limited in size (TRAILERS_MAX).
 * - Chunk sizes are refused before they can overflow. */
#ifndef WEIR_HTTP_CHUNKED_H
#define WEIR_HTTP_CHUNKED_H

#include "http/head.h"

enum {
    CHUNK_EXTENSIONS_MAX = 1024, /* bytes of extensions in one chunk's line */
    /* bytes of extensions in the whole message (CVE-2023-39326) */
    CHUNK_EXTENSIONS_TOTAL_MAX = 16 * 1024
};

struct chunked {
    uint64_t left;    /* remaining bytes of the current chunk's data */
    uint32_t counted; /* bytes of the current element with a size limit */
    uint32_t extensions_total;
    uint32_t trailers; /* bytes of the trailer section in the last call */
    uint8_t state;
    uint8_t digits;
};

enum chunked_result { CHUNKED_MORE, CHUNKED_END, CHUNKED_BAD };

void chunked_begin(struct chunked *c);

/* Decodes `bytes[0 .. *size)` in place. On return, `bytes[0 .. *content)` is decoded content and
 * `*size` is the number of coded bytes consumed.
 *
 * - CHUNKED_MORE: all bytes are consumed.
 * - CHUNKED_END: bytes up to the end of the message are consumed; the rest is untouched and belongs
 *   to the next message.
 * - CHUNKED_BAD: `*why` is the reason (static text); the content before the error is decoded.
 *
 * Bytes of the trailer section follow the content: `bytes[*content .. *content + c->trailers)`.
 * Those of all calls are its field lines and the empty line that ends the message.
 *
 * Content and trailers never overlap the unconsumed bytes. */
enum chunked_result chunked_decode(struct chunked *c, char *bytes, size_t *size, size_t *content,
                                   const char **why);

#endif
