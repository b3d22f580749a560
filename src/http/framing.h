/* framing.h - where a message's content ends: decided here and nowhere else (RFC 9112 section 6). */
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
    uint64_t length; /* of FRAMING_LENGTH */
};

/* Refused (RFC 9112 sections 6.1 and 6.3; request smuggling lives in leniency): both Content-Length and
 * Transfer-Encoding; more than one Content-Length field, or one that is not plain digits up to 2^63-1;
 * Transfer-Encoding other than exactly one `chunked`, or in HTTP/1.0. */
MUST_CHECK bool request_framing(const struct request_head *head, struct framing *framing,
                                struct refusal *refusal);

/* `method` is the request's: no content after HEAD, in 1xx, 204 and 304. */
MUST_CHECK bool response_framing(const struct response_head *head, enum method method,
                                 struct framing *framing, struct refusal *refusal);

#endif
