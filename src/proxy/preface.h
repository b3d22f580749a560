/* preface.h - takes the PROXY protocol's header off the start of a connection, and not a byte more: what
 * follows belongs to whoever reads the stream next. */
#ifndef WEIR_PROXY_PREFACE_H
#define WEIR_PROXY_PREFACE_H

#include "net/proxy_header.h"
#include "net/stream.h"

enum preface {
    PREFACE_PARTIAL, /* goes on when the stream is readable; `in` holds what came */
    PREFACE_WHOLE,   /* `in` is empty again */
    PREFACE_BAD,     /* no header, a malformed one, or its end did not come */
    PREFACE_CLOSED   /* closed or failed before its first byte */
};

enum preface preface_receive(struct stream *stream, struct iobuf_pool *pool, struct proxy_header *header);

#endif
