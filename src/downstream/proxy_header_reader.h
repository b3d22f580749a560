/* proxy_header_reader.h - reads the PROXY protocol header from the start of a connection. It
 * consumes no byte after the header. */
#ifndef WEIR_DOWNSTREAM_PROXY_HEADER_READER_H
#define WEIR_DOWNSTREAM_PROXY_HEADER_READER_H

#include "net/proxy_header.h"
#include "net/stream.h"

enum proxy_header_result {
    RECEIVE_PARTIAL, /* incomplete: call again when readable; `in` holds the bytes received */
    RECEIVE_WHOLE,   /* complete; `in` is empty again */
    RECEIVE_BAD,     /* no header, a malformed one, or a truncated one */
    RECEIVE_CLOSED   /* closed or failed before the first byte */
};

enum proxy_header_result proxy_header_receive(struct stream *stream, struct iobuf_pool *pool,
                                              struct proxy_header *header);

#endif
