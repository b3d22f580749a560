/* head_text.h - rewrites a header section of HTTP/2 as the text of HTTP/1.1: of requests
 * (request_text.c), responses (response_text.c) and trailers.
 *
 * The text is then read by the parsers of http/head.h, like the text of an HTTP/1.1 peer. So there
 * is one definition of what a message means, and what weir forwards is what it understood. The
 * checks here keep every byte of a field inside its line (RFC 9113 section 8.2.1, request
 * smuggling), and refuse what HTTP/1.1 has no text for:
 *
 * - pseudo-fields that are unknown, repeated, missing or after another field (section 8.3)
 * - names with upper-case letters or other than tokens; values with NUL, CR, LF or outer blanks
 * - connection-specific fields, and TE other than "trailers" (section 8.2.2) */
#ifndef WEIR_HTTP2_HEAD_TEXT_H
#define WEIR_HTTP2_HEAD_TEXT_H

#include "base/text.h"
#include "http/framing.h"

enum {
    HEAD_TEXT_LIST_MAX = 64 * 1024, /* largest accepted header list: RFC 9113 section 6.5.2 */
    HEAD_TEXT_MAX = HEAD_TEXT_LIST_MAX + 256,
    HEAD_TEXT_ENTRY = 32 /* bytes that a field counts beside its name and value */
};

enum pseudo_field { PSEUDO_METHOD, PSEUDO_SCHEME, PSEUDO_AUTHORITY, PSEUDO_PATH, PSEUDO_COUNT };

/* A header section under construction. */
struct head_text {
    struct text out;  /* the HTTP/1.1 text */
    struct text side; /* requests: pseudo-fields; after the request line is written: cookies */
    uint32_t pseudo_at[PSEUDO_COUNT], pseudo_size[PSEUDO_COUNT]; /* in `side` */
    uint32_t list_size, list_max; /* decoded size, and the size above which it is refused */
    uint64_t never_indexed;       /* see struct fields */
    uint8_t pseudo;               /* bit per pseudo-field of a request received */
    bool line_written;            /* the first line was written: no more pseudo-fields */
    bool has_authority, has_length;
    bool too_large; /* above list_max; nothing is stored any more */
};

/* Starts a section in the caller's buffers of HEAD_TEXT_MAX bytes each. `list_max`: at most
 * HEAD_TEXT_LIST_MAX. */
void head_text_begin(struct head_text *text, char *out, char *side, uint32_t list_max);

/* Counts a field. Returns false if the section is too large; the field is then not stored. */
bool head_text_count(struct head_text *text, struct slice name, struct slice value);

/* Returns why the field (not a pseudo-field) is malformed (static text), or NULL. */
const char *head_text_fault(struct slice name, struct slice value);

/* Adds a field of a request. Returns NULL, or why the request is malformed (static text). A Host
 * that differs from :authority is malformed (RFC 9113 section 8.3.1). Cookie fields are joined
 * (section 8.2.3). */
const char *request_text_field(struct head_text *text, struct slice name, struct slice value);

enum request_text_end {
    REQUEST_TEXT_GOOD,
    REQUEST_TEXT_MALFORMED, /* a stream error (RFC 9113 section 8.1.1): refusal->why */
    REQUEST_TEXT_REFUSED    /* to be answered with refusal->status */
};

/* Ends the header section and parses the head. Its slices point into the buffers. `end_stream`: no
 * content follows. The framing is FRAMING_CHUNKED if content of unknown length follows: the text
 * then contains Transfer-Encoding, as an HTTP/1.1 client would have sent it. It is FRAMING_CHUNKED
 * also with a Content-Length of 0 whose stream has not ended. */
enum request_text_end request_text_end(struct head_text *text, bool end_stream,
                                       struct request_head *head, struct framing *framing,
                                       struct refusal *refusal);

/* The same for a response. Both return NULL, or why the response is malformed (static text).
 * `method`: of the request. */
const char *response_text_field(struct head_text *text, struct slice name, struct slice value);
const char *response_text_end(struct head_text *text, enum method method, bool end_stream,
                              struct response_head *head, struct framing *framing);

/* Adds a field of a trailer section. Returns NULL, or why the message is malformed (static
 * text). */
const char *trailer_text_field(struct head_text *text, struct slice name, struct slice value);
/* Ends a trailer section. Returns its field lines and an empty line; empty if there are none. */
struct slice trailer_text_end(struct head_text *text);

#endif
