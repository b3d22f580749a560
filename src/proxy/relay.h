/* relay.h - moves content between an exchange's client (its downstream) and its server (its link),
 * with back-pressure.
 *
 * Content moves one piece at a time: weir reads nothing from one side while the other has unsent
 * bytes. So a connection uses at most one IOBUF_LARGE per direction, for content of any size.
 * Chunked content is decoded and written with new chunk lines: framing is never passed through.
 *
 * If the method is idempotent or the server can refuse requests (HTTP/2), weir keeps the first
 * KEPT_CONTENT_MAX bytes of the content until the response starts. If there are more, it keeps
 * none. */
#ifndef WEIR_PROXY_RELAY_H
#define WEIR_PROXY_RELAY_H

#include "http/response.h"
#include "net/iobuf.h"
#include "proxy/exchange_state.h"

struct exchange;

enum { KEPT_CONTENT_MAX = IOBUF_READ_MAX };

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

/* Sends the request's head and the content that was received before to the server; in a retry,
 * the kept content. */
enum relay relay_request_head(struct exchange *x, const char **why);
/* Returns true while the server does not have all content that was read in CONTENT. */
static inline bool relay_has_kept(const struct exchange *x)
{
    return x->request.forwarded < iobuf_held(x->request.kept) || x->request.ahead;
}
/* Sends one piece of the request's content to the server. The link must have no pending output. */
enum relay relay_request(struct exchange *x, const char **why);

/* Reads one piece of the request's content and keeps it: in CONTENT and SERVICE. RELAY_ENDED: all
 * was read, or more than `most` bytes. Never returns RELAY_SINK or RELAY_GONE. Trailers are dropped
 * (RFC 9110 section 6.5.1). */
enum relay relay_keep_request(struct exchange *x, size_t most, const char **why);

/* Reads one piece of the request's content and discards it; request.max does not apply. Returns
 * RELAY_SOURCE, RELAY_ENDED, RELAY_CLOSED, or RELAY_BAD or RELAY_NO_MEMORY: the downstream reads no
 * further request. */
enum relay relay_drop_request(struct exchange *x, const char **why);

/* Sends a final response head, which was just read, and the first piece of its content to the
 * client; nothing is read from the socket. RELAY_TOO_LARGE: the head is too large.
 * If nothing was sent, the progress of the response is MESSAGE_HEAD again. */
enum relay relay_response_head(struct exchange *x, struct response *response, const char **why);

/* Sends one piece of the response's content to the client. The downstream must have no pending
 * output. */
enum relay relay_response(struct exchange *x, const char **why);

#endif
