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

#include "downstream/client.h"

/* Per worker: buffers and lists; created with the first connection. */
struct http2_worker;

/* Makes the connection an HTTP/2 one. `bytes` were received: at most IOBUF_LARGE, beginning with
 * the preface, or none. May close the connection. */
void http2_begin(struct client *client, struct slice bytes);

/* Events of a connection with client->http2 set. Each may close it. */
void http2_readable(struct client *client);
void http2_writable(struct client *client);
void http2_head_timed_out(struct client *client);
void http2_idle_passed(struct client *client);

/* Begins the graceful end: GOAWAY, then the end of all streams, then the close. */
void http2_stop(struct client *client);
/* Ends the requests of all streams by force. */
void http2_cut(struct client *client);
/* Frees the session, and ends the requests of its streams as abandoned. Called by
 * client_close(). */
void http2_end(struct client *client);

/* Writes the output of this loop iteration and frees what has ended. Called once per iteration. */
void http2_flush(struct worker *worker);
void http2_worker_free(struct worker *worker);
void http2_init(struct worker *worker);

#endif
