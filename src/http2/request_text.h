/* request_text.h - rewrites the fields of an HTTP/2 request as an HTTP/1.1 head.
 *
 * The text is then read by the parser of http/head.h, like a head from an HTTP/1.1 client. So there
 * is one definition of what a request means, and what weir forwards is what it understood. The
 * checks here keep every byte of a field inside its line (RFC 9113 section 8.2.1, request
 * smuggling), and refuse what HTTP/1.1 has no text for:
 *
 * - pseudo-fields that are unknown, repeated, missing or after another field (section 8.3)
 * - names with upper-case letters or other than tokens; values with NUL, CR, LF or outer blanks
 * - connection-specific fields, and TE other than "trailers" (section 8.2.2)
 * - a Host that differs from :authority (section 8.3.1)
 *
 * Cookie fields are joined (section 8.2.3). */
#ifndef WEIR_HTTP2_REQUEST_TEXT_H
#define WEIR_HTTP2_REQUEST_TEXT_H

#include "base/text.h"
#include "http/framing.h"

enum {
    REQUEST_TEXT_LIST_MAX = 64 * 1024, /* largest accepted header list: RFC 9113 section 6.5.2 */
    REQUEST_TEXT_MAX = REQUEST_TEXT_LIST_MAX + 256,
    REQUEST_TEXT_ENTRY = 32 /* bytes that a field counts beside its name and value */
};

enum pseudo_field { PSEUDO_METHOD, PSEUDO_SCHEME, PSEUDO_AUTHORITY, PSEUDO_PATH, PSEUDO_COUNT };

/* A head under construction. */
struct request_text {
    struct text out;  /* the HTTP/1.1 head */
    struct text side; /* values of pseudo-fields; after the request line is written: cookies */
    uint32_t pseudo_at[PSEUDO_COUNT], pseudo_size[PSEUDO_COUNT]; /* in `side` */
    uint32_t list_size, list_max; /* decoded size, and the size above which it is refused */
    uint8_t pseudo;               /* bit per pseudo-field received */
    bool line_written;            /* the request line was written: no more pseudo-fields */
    bool has_authority, has_length;
    bool too_large; /* above list_max; nothing is stored any more */
};

/* Starts a head in the caller's buffers of REQUEST_TEXT_MAX bytes each. `list_max`: at most
 * REQUEST_TEXT_LIST_MAX. */
void request_text_begin(struct request_text *text, char *out, char *side, uint32_t list_max);

/* Adds a field. Returns NULL, or why the request is malformed (static text). */
const char *request_text_field(struct request_text *text, struct slice name, struct slice value);

/* Checks a field of a trailer section; weir drops trailers. Returns NULL, or why the request is
 * malformed (static text). */
const char *request_text_trailer(struct slice name, struct slice value);

enum request_text_end {
    REQUEST_TEXT_GOOD,
    REQUEST_TEXT_MALFORMED, /* a stream error (RFC 9113 section 8.1.1): refusal->why */
    REQUEST_TEXT_REFUSED    /* to be answered with refusal->status */
};

/* Ends the header section and parses the head. Its slices point into the buffers. `end_stream`: no
 * content follows. The framing is FRAMING_CHUNKED if content of unknown length follows: the text
 * then contains Transfer-Encoding, as an HTTP/1.1 client would have sent it. */
enum request_text_end request_text_end(struct request_text *text, bool end_stream,
                                       struct request_head *head, struct framing *framing,
                                       struct refusal *refusal);

#endif
