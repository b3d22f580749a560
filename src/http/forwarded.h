/* forwarded.h - the Forwarded field (RFC 7239), in which proxies pass on the client's address. */
#ifndef WEIR_HTTP_FORWARDED_H
#define WEIR_HTTP_FORWARDED_H

#include "base/text.h"
#include "http/head.h"

/* weir's own element: the request as received. */
struct forwarded_element {
    struct slice peer_ip; /* without brackets or port; empty (Unix socket): "unknown" */
    struct slice host;    /* may be empty */
    struct slice scheme;
};

/* Writes one Forwarded line: the values in `received`, then weir's own element. `received` may be
 * NULL: its sender is not trusted. If one received value is malformed, so that an appended element
 * could become part of it, all received values are dropped. */
void forwarded_write(struct text *out, const struct fields *received,
                     const struct forwarded_element *element);

#endif
