/* http2.h - HTTP/2 on client connections: a session (http2/session.h) per connection, and a struct
 * downstream per stream.
 *
 *   http2.c          the connection: input, output, deadlines, graceful end
 *   http2_request.c  the downstream of one stream: begin, request, end
 *   http2_send.c     its response
 *
 * Streams of a connection share its output buffer. Output of a loop iteration is written at its
 * end, or when half of the buffer is full. */
#ifndef WEIR_DOWNSTREAM_HTTP2_H
#define WEIR_DOWNSTREAM_HTTP2_H

#include "downstream/socket_client.h"

/* Makes the connection an HTTP/2 one. `bytes` were received: at most IOBUF_LARGE, beginning with
 * the preface, or none. May close the connection. */
void http2_begin(struct socket_client *client, struct slice bytes);

#endif
