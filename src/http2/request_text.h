/* request_text.h - rewrites the fields of an HTTP/2 request as an HTTP/1.1 head (head_text.h). A
 * Host that differs from :authority is malformed (RFC 9113 section 8.3.1). Cookie fields are
 * joined (section 8.2.3). */
#ifndef WEIR_HTTP2_REQUEST_TEXT_H
#define WEIR_HTTP2_REQUEST_TEXT_H

#include "http2/head_text.h"

/* Adds a field. Returns NULL, or why the request is malformed (static text). */
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

#endif
