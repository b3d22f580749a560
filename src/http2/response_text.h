/* response_text.h - rewrites the fields of an HTTP/2 response as an HTTP/1.1 head (head_text.h). */
#ifndef WEIR_HTTP2_RESPONSE_TEXT_H
#define WEIR_HTTP2_RESPONSE_TEXT_H

#include "http2/head_text.h"

/* Adds a field. Returns NULL, or why the response is malformed (static text). */
const char *response_text_field(struct head_text *text, struct slice name, struct slice value);

/* Ends the header section and parses the head. Its slices point into the buffers. `method`: of the
 * request. `end_stream`: no content follows. The framing is FRAMING_CHUNKED if content of unknown
 * length follows. Returns NULL, or why the response is malformed (static text). */
const char *response_text_end(struct head_text *text, enum method method, bool end_stream,
                              struct response_head *head, struct framing *framing);

#endif
