/* framing.h - determines where a message's content ends (RFC 9112 section 6). No other code decides
 * this. */
#ifndef WEIR_HTTP_FRAMING_H
#define WEIR_HTTP_FRAMING_H

#include "http/head.h"

enum framing_kind {
    FRAMING_NONE,   /* no content */
    FRAMING_LENGTH, /* `length` bytes, at least 1 */
    FRAMING_CHUNKED,
    FRAMING_UNTIL_CLOSE /* responses only */
};

struct framing {
    enum framing_kind kind;
    uint64_t length; /* for FRAMING_LENGTH */
};

/* Determines the framing of a request. Lenient parsing enables request smuggling, so weir refuses
 * these (RFC 9112 sections 6.1 and 6.3):
 *
 * - both Content-Length and Transfer-Encoding
 * - more than one Content-Length field, or one that is not plain digits up to 2^63-1
 * - Transfer-Encoding other than exactly one `chunked`, or in HTTP/1.0
 * - TRACE with content (RFC 9110 section 9.3.8) */
MUST_CHECK bool request_framing(const struct request_head *head, struct framing *framing,
                                struct refusal *refusal);

/* Determines the framing of a response. `method` is the request's method. Responses to HEAD, and
 * 1xx, 204 and 304 responses, have no content. */
MUST_CHECK bool response_framing(const struct response_head *head, enum method method,
                                 struct framing *framing, struct refusal *refusal);

#endif
