/* relay_halves.h - the two directions of RELAY: relay_request.c and relay_response.c. Each function
 * handles one event of its direction. */
#ifndef WEIR_PROXY_RELAY_HALVES_H
#define WEIR_PROXY_RELAY_HALVES_H

#include "proxy/step.h"

/* The link is ready: sends the request header and the content received so far. */
enum step request_begin(struct exchange *x);
/* The client has sent content, or the end of it. */
enum step request_readable(struct exchange *x);
/* The client has sent no content in time. Also for CONTENT. */
enum step request_late(struct exchange *x);
/* Returns false if the content was slower than body_min_rate over request_body or more. The time in
 * which the server did not read does not count. */
MUST_CHECK bool request_keeps_rate(struct exchange *x, uint64_t now_us);
/* The server has taken pending output. */
enum step request_writable(struct exchange *x);
/* Sending to the server has failed. */
enum step request_broken(struct exchange *x);
/* Reads and discards content that no server will read. */
enum step request_drop(struct exchange *x);

/* Starts to read content before the decision: in CONTENT and SERVICE. Answers Expect:
 * 100-continue. */
enum step content_begin(struct exchange *x);
/* Reads a piece into request.kept. STEP_NEXT: all was read, or more than `most` bytes; the piece
 * after them is in request.ahead. */
enum step content_read(struct exchange *x, size_t most);

/* The server has sent something, or has closed the connection. */
enum step response_readable(struct exchange *x);
/* The client has taken pending output. */
enum step response_writable(struct exchange *x);

#endif
