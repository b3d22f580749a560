/* http1_head.h - which heads of HTTP/1.1 requests weir accepts. */
#ifndef WEIR_DOWNSTREAM_HTTP1_HEAD_H
#define WEIR_DOWNSTREAM_HTTP1_HEAD_H

#include "http/framing.h"
#include "proxy/cause.h"

struct http1_head_result {
    struct framing framing; /* SCAN_WHOLE */
    enum cause cause;       /* SCAN_REFUSED: this, and the response */
    uint16_t status;
    const char *why; /* static text */
};

/* Parses the head at the start of `bytes`, at most `max` bytes (size_limits.request_header), and
 * determines its framing. `seen` as in request_head_read(). */
enum scan http1_head_parse(struct slice bytes, size_t max, size_t *seen, struct request_head *head,
                           struct http1_head_result *result);

#endif
