/* answer.h - responses of the admin listener. A function that sends a response takes ownership
 * of the request. */
#ifndef WEIR_ADMIN_ANSWER_H
#define WEIR_ADMIN_ANSWER_H

#include <event2/buffer.h>
#include <event2/http.h>

#include <stdbool.h>

#include "base/macros.h"
#include "base/text.h"

/* Returns the path of the target. */
struct slice request_path(const struct evhttp_request *request);

/* Sends a response with the content of `body`, and frees it. A HEAD request gets only the length.
 * `body` NULL (no memory): sends no content. */
void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body);

/* Returns a buffer with a document of json_writer_growing(), which is freed, and an end of line.
 * Returns NULL if the document has failed, or if out of memory. */
struct evbuffer *buffer_of_json(struct text *json);
/* Sends such a document, with 200; if memory ran out, a problem document with 500. */
void answer_json(struct evhttp_request *request, struct text *json);

/* Sends one line of plain text. */
void answer_line(struct evhttp_request *request, int status, const char *line);

/* Sends application/problem+json (RFC 9457) with the reason phrase as its title, and Retry-After if
 * the status is 503. */
void answer_problem(struct evhttp_request *request, int status, const char *detail);

/* Returns true if the request's method is one of `methods` (EVHTTP_REQ_*). Otherwise sends 405
 * with `allow` as the Allow field. */
MUST_CHECK bool answer_methods(struct evhttp_request *request, unsigned methods, const char *allow);

/* For resources that support only GET and HEAD. */
#define answer_reads(request)                                                                      \
    answer_methods((request), EVHTTP_REQ_GET | EVHTTP_REQ_HEAD, "GET, HEAD")

#endif
