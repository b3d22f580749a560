/* proxy_header.h - the header that a load balancer writes ahead of a connection to name its client: PROXY
 * protocol, versions 1 and 2 (haproxy.org/download/2.8/doc/proxy-protocol.txt). Bytes in, an address out: no
 * I/O, no allocation.
 *
 * Strict: whoever understands another address than the proxy wrote lets clients choose their identity. */
#ifndef WEIR_NET_PROXY_HEADER_H
#define WEIR_NET_PROXY_HEADER_H

#include "net/address.h"

enum {
    PROXY_HEADER_V1_MAX = 107,  /* the line with its CRLF, as the specification has it */
    PROXY_HEADER_MAX = 4 * 1024 /* of version 2, with its TLVs */
};

enum proxy_header_scan {
    PROXY_HEADER_PARTIAL, /* so far good, and every byte belongs to the header */
    PROXY_HEADER_WHOLE,
    PROXY_HEADER_BAD
};

struct proxy_header {
    size_t size;           /* its bytes; what follows is the client's */
    struct address source; /* length 0: it names none (LOCAL, UNKNOWN, UNSPEC); the socket's peer counts */
    bool local;            /* LOCAL: the connection is the proxy's own, such as a health check */
};

/* Reads the header at the start of `bytes`. `header` is set when it is WHOLE. */
enum proxy_header_scan proxy_header_scan(struct slice bytes, struct proxy_header *header);

#endif
