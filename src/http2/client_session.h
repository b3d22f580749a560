/* client_session.h - HTTP/2 sessions in the client's role: towards a server.
 *
 * Everything in session.h applies, except for requests, responses and the shutdown: here weir opens
 * the streams, and events->interim and events->response report the heads of responses. Push is
 * disabled.
 *
 * After http2_session_new(), the connection preface and SETTINGS are the first output. Of the
 * settings, initial_window, max_header_list (for responses) and resets_per_second (resets without a
 * reason, see frame_limits.h) are used. The window of the connection is max_concurrent_streams
 * times initial_window: the caller opens no more streams, so those that are not read do not stop
 * others. Streams may be opened at once, before the server's SETTINGS.
 *
 *   http2_open() --> http2_send_content()*, http2_send_trailers()
 *   events:          interim*, response, content*, content_end, closed
 *
 * A request is complete with `content` false, with `end` of http2_send_content(), or with its
 * trailers. The server may respond before that. If it then wants no more of the request, it resets
 * the stream with NO_ERROR, after content_end (RFC 9113 section 8.1). */
#ifndef WEIR_HTTP2_CLIENT_SESSION_H
#define WEIR_HTTP2_CLIENT_SESSION_H

#include "http2/session.h"

/* Returns how many streams can be opened now: 0 while MAX_CONCURRENT_STREAMS of the server are
 * open. Before the server's first SETTINGS: HTTP2_CAPACITY_UNKNOWN, less the open streams. */
unsigned http2_session_capacity(const struct http2_session *session);
enum { HTTP2_CAPACITY_UNKNOWN = 100 /* RFC 9113 section 6.5.2 recommends no less */ };

/* Returns whether streams can be opened on the session, now or later: no GOAWAY was received, the
 * session has not failed, and stream identifiers are left. If not, close the connection when
 * http2_session_streams() is 0. */
bool http2_session_accepts(const struct http2_session *session);

/* Returns whether the request (as for http2_open()) is within the server's
 * SETTINGS_MAX_HEADER_LIST_SIZE: servers may close the connection because of a larger one. */
bool http2_request_fits(const struct http2_session *session, const struct request_head *head);

/* Opens a stream with a request. `head`: a request in origin-form or with the target "*", and
 * exactly one Host, as request_head_write() writes it; hop-by-hop fields are not sent, except
 * "TE: trailers". `scheme`: "http" or "https" (:scheme). `content`: content or trailers follow.
 * Everything is copied. `user`: as for http2_stream_set_user(). Returns NULL if the capacity is 0,
 * if there is no memory, or if there are HTTP2_SENT_FIELDS_MAX fields or more. */
MUST_CHECK struct http2_stream *http2_open(struct http2_session *session,
                                           const struct request_head *head, struct slice scheme,
                                           bool content, void *user);

/* Ends the session: sends GOAWAY. Streams that are open are finished; the session is over when none
 * is left. */
void http2_client_session_end(struct http2_session *session);

/* Sends a PING. Its acknowledgement is input of the session. Returns false if one was sent since
 * the last frame of another type from the server and the last http2_open(), as gRPC servers close
 * connections for needless PINGs; or if there is no memory. */
bool http2_client_session_ping(struct http2_session *session);

/* ---- in `closed`: why a stream was closed ---------------------------------------------------- */

/* Returns the error code of RST_STREAM or GOAWAY (RFC 9113 section 7), sent or received. */
uint32_t http2_stream_code(const struct http2_stream *stream);
/* Returns whether the server states that it has not processed the request, so that it can be sent
 * again, whatever its method: REFUSED_STREAM, or a GOAWAY with a lower last stream (section
 * 8.7). */
bool http2_stream_unprocessed(const struct http2_stream *stream);
/* Returns whether the server has reset the stream with a code that servers use for requests which
 * they do not accept, for instance one with too many fields: PROTOCOL_ERROR, FRAME_SIZE_ERROR,
 * ENHANCE_YOUR_CALM. */
bool http2_stream_objected(const struct http2_stream *stream);
/* Returns why weir has reset the stream: static text about the fault of the server; or NULL. */
const char *http2_stream_why(const struct http2_stream *stream);

#endif
