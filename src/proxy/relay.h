/* relay.h - moves content between an exchange's client (its downstream) and its server (its link),
 * with back-pressure.
 *
 * Content moves one piece at a time: weir reads nothing from one side while the other has unsent
 * bytes. So a connection uses at most one IOBUF_LARGE per direction, for content of any size.
 * Chunked content is decoded and written with new chunk lines: framing is never passed through. */
#ifndef WEIR_PROXY_RELAY_H
#define WEIR_PROXY_RELAY_H

#include "base/slice.h"
#include "http/response.h"

struct exchange;

enum relay {
    RELAY_SOURCE,    /* continue when the source has more */
    RELAY_SINK,      /* continue when the sink has sent its buffered bytes */
    RELAY_ENDED,     /* the sink has accepted all content and may still buffer some of it */
    RELAY_CLOSED,    /* the source ended or failed before the end of the content */
    RELAY_BAD,       /* the framing is invalid: *why */
    RELAY_TOO_LARGE, /* more than request.max bytes; the piece that exceeds it was not sent */
    RELAY_GONE,      /* the sink failed */
    RELAY_NO_MEMORY
};

/* Sends `head` (may be empty) and one piece of the request's content to the server. `receive`: as
 * for read_body() in downstream.h. The link must have no unsent bytes. */
enum relay relay_request(struct exchange *x, struct slice head, bool receive, const char **why);

/* Reads one piece of the request's content and discards it. Never returns RELAY_SINK or
 * RELAY_GONE. */
enum relay relay_drop_request(struct exchange *x, const char **why);

/* Encoded bytes in the worker's receive buffer that follow a response head. */
struct unread {
    char *bytes;
    size_t size;
};

/* Sends a final response head and the first piece of its content to the client. The content is
 * `unread`, or else the bytes in link->stream.in; nothing is read from the socket. RELAY_BAD and
 * RELAY_TOO_LARGE (of the head): nothing was sent. */
enum relay relay_response_head(struct exchange *x, const struct response *response,
                               struct unread unread, const char **why);

/* Sends one piece of the response's content to the client. The downstream must have no pending
 * output. */
enum relay relay_response(struct exchange *x, const char **why);

#endif
