/* proxy_header.h - the PROXY protocol header, versions 1 and 2, with which a load balancer passes
 * on the client's address (haproxy.org/download/2.8/doc/proxy-protocol.txt). Bytes in, address out:
 * no I/O, no allocation.
 *
 * Parsing is strict: a parser that reads a different address than the proxy wrote would let clients
 * choose their identity. */
#ifndef WEIR_NET_PROXY_HEADER_H
#define WEIR_NET_PROXY_HEADER_H

#include "net/address.h"

enum {
    PROXY_HEADER_V1_MAX = 107,  /* line including CRLF, as specified */
    PROXY_HEADER_MAX = 4 * 1024 /* version 2, including TLVs */
};

enum proxy_header_scan {
    PROXY_HEADER_PARTIAL, /* valid so far; all bytes belong to the header */
    PROXY_HEADER_WHOLE,
    PROXY_HEADER_BAD
};

struct proxy_header {
    size_t size; /* size of the header in bytes; the client's data follows */
    /* Length 0: no address (LOCAL, UNKNOWN, UNSPEC); use the peer of the socket. */
    struct address source;
    bool local; /* LOCAL: a connection of the proxy itself, e.g. a health check */
};

/* Parses the header at the start of `bytes`. Sets `*header` if it is complete. */
enum proxy_header_scan proxy_header_scan(struct slice bytes, struct proxy_header *header);

#endif
