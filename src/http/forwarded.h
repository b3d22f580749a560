/* forwarded.h - the Forwarded field (RFC 7239): whom a request came from, as proxies tell each other. */
#ifndef WEIR_HTTP_FORWARDED_H
#define WEIR_HTTP_FORWARDED_H

#include "base/text.h"
#include "http/head.h"

/* What weir says of the request as it came. */
struct forwarded_element {
    struct slice peer_ip; /* without brackets or port; empty (a unix peer): "unknown" */
    struct slice host;    /* may be empty */
    struct slice scheme;
};

/* One Forwarded line: what stands in those of `received` (NULL: believe none), then weir's own element. Where
 * one of them would swallow what is put behind it, none is kept. */
void forwarded_write(struct text *out, const struct fields *received,
                     const struct forwarded_element *element);

#endif
