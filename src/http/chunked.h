/* chunked.h - the chunked transfer coding (RFC 9112 section 7.1), decoded strictly and in pieces of any size.
 *
 * CRLF only; extensions are bounded, their grammar is checked and they are dropped; trailers are bounded,
 * checked and dropped; sizes are refused before they could overflow. */
#ifndef WEIR_HTTP_CHUNKED_H
#define WEIR_HTTP_CHUNKED_H

#include "http/head.h"

enum {
    CHUNK_EXTENSIONS_MAX = 1024,            /* bytes of extensions in one chunk's line */
    CHUNK_EXTENSIONS_TOTAL_MAX = 16 * 1024, /* and over the whole message: CVE-2023-39326 */
    CHUNK_TRAILERS_MAX = 8 * 1024           /* bytes of all trailer lines */
};

struct chunked {
    uint64_t left;    /* of the current chunk's data */
    uint32_t counted; /* bytes of the current element that has a limit */
    uint32_t extensions_total;
    uint8_t state;
    uint8_t digits;
};

enum chunked_result { CHUNKED_MORE, CHUNKED_END, CHUNKED_BAD };

void chunked_begin(struct chunked *c);

/* Takes coded bytes from `bytes[0 .. *size)` and moves the content to the front of the same memory: on return
 * `*content` bytes of content stand at bytes[0], and `*size` says how many coded bytes were taken: all of
 * them for CHUNKED_MORE; for CHUNKED_END those up to the end of the message (what follows belongs to the next
 * message and is not touched). CHUNKED_BAD: `*why` says why (static text); content before the fault was
 * decoded. Content never overlaps the bytes not taken. */
enum chunked_result chunked_decode(struct chunked *c, char *bytes, size_t *size, size_t *content,
                                   const char **why);

#endif
