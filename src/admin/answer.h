/* answer.h - how the admin listener answers. Every function takes the request over where it answers. */
#ifndef WEIR_ADMIN_ANSWER_H
#define WEIR_ADMIN_ANSWER_H

#include <event2/buffer.h>
#include <event2/http.h>

#include "base/slice.h"

/* `body` stays the caller's, for its content to be taken out; a HEAD is told its length alone. NULL: no memory, and none is sent. */
void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body);

/* One line of plain text. */
void answer_line(struct evhttp_request *request, int status, const char *line);

/* application/problem+json (RFC 9457); Retry-After with a 503. */
void answer_problem(struct evhttp_request *request, int status, const char *title, const char *detail);

/* Is the request's method one of `methods` (EVHTTP_REQ_*)? Otherwise it was answered with 405; `allow` names
 * them for the Allow field. */
MUST_CHECK bool answer_methods(struct evhttp_request *request, unsigned methods, const char *allow);

/* Most resources are only read. */
#define answer_reads(request) answer_methods((request), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD, "GET, HEAD")

/* Appends a JSON string. */
void json_string(struct evbuffer *out, struct slice text);

#endif
