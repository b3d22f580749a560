/* proxy_header_reader.h - takes the PROXY protocol's header off the start of a connection, and not a byte more: what
 * follows belongs to whoever reads the stream next. */
#ifndef WEIR_PROXY_PROXY_HEADER_READER_H
#define WEIR_PROXY_PROXY_HEADER_READER_H

#include "net/proxy_header.h"
#include "net/stream.h"

enum proxy_header_result {
    RECEIVE_PARTIAL, /* goes on when the stream is readable; `in` holds what came */
    RECEIVE_WHOLE,   /* `in` is empty again */
    RECEIVE_BAD,     /* no header, a malformed one, or its end did not come */
    RECEIVE_CLOSED   /* closed or failed before its first byte */
};

enum proxy_header_result proxy_header_receive(struct stream *stream, struct iobuf_pool *pool,
                                              struct proxy_header *header);

#endif
