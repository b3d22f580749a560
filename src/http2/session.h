/* session.h - HTTP/2 sessions (RFC 9113, RFC 7541): bytes in, events out.
 *
 * This directory owns the framing, HPACK, flow control and stream states of a connection, on
 * libnghttp2. It checks messages and rewrites their heads, and it bounds what a peer can make weir
 * do. It has no sockets, events or timers, and is independent of rules and limits.
 *
 *   session.h         the interface, and the server's role; read this first
 *   client_session.h  the client's role: what differs from session.h
 *   session.c         begin and end, GOAWAY, input frame by frame
 *   client_session.c  the same of the client's role; opening streams
 *   received.c        frames received: heads, content, trailers, errors
 *   sent.c            responses, content and trailers
 *   frame_limits.h    bounds on floods of frames
 *   head_text.h       the rewriting of fields as HTTP/1.1, with request_text.c and response_text.c
 *   kept_head.c       a header section that is incomplete between reads
 *   session_memory.h  where libnghttp2 stores a session and its frame buffer
 *
 *   input --http2_session_receive()--> events: request or response, content, content_end, ...
 *   http2_send_head(), http2_send_content() --> output buffer --> the caller's socket
 *
 * Memory: the session stores no content. Content that is sent stays with the caller until the
 * peer's windows and the output buffer have room. Content that is received is passed on at once;
 * the caller reports with http2_consume() what it no longer stores, so it stores at most
 * `initial_window` per stream and HTTP2_CONNECTION_WINDOWS times as much per connection. */
#ifndef WEIR_HTTP2_SESSION_H
#define WEIR_HTTP2_SESSION_H

#include "http2/frame_limits.h"
#include "http2/settings.h"
#include "net/iobuf.h"

#include "http/framing.h"

struct http2_session;
struct http2_stream;

enum {
    HTTP2_CONNECTION_WINDOWS = 16,
    HTTP2_CONTINUATIONS_MAX = 8, /* CONTINUATION frames of one header section */
    HTTP2_PREFACE_SIZE = 24,
    HTTP2_SENT_FIELDS_MAX = RESPONSE_FIELDS_MAX + 64 /* of a response: those of weir too */
};

/* The client's connection preface (RFC 9113 section 3.4): HTTP2_PREFACE_SIZE bytes. */
extern const char http2_preface[];

/* Why weir ended a session, or reset or refused a stream. The first LIMIT_COUNT are the limits of
 * frame_limits.h. */
enum http2_cause {
    HTTP2_CONTINUATIONS = LIMIT_COUNT, /* CVE-2024-27316: more than HTTP2_CONTINUATIONS_MAX */
    HTTP2_HEADER_LIST,      /* a header list of more than twice max_header_list (HPACK bomb) */
    HTTP2_MALFORMED,        /* a malformed message: stream error (RFC 9113 section 8.1.1) */
    HTTP2_TOO_MANY_STREAMS, /* above max_concurrent_streams: REFUSED_STREAM */
    HTTP2_PROTOCOL_ERROR,   /* a connection error (RFC 9113 section 5.4.1) */
    HTTP2_NO_PING_RESPONSE, /* client's role; for the caller */
    HTTP2_NO_MEMORY,
    HTTP2_CAUSE_COUNT,
    HTTP2_NO_CAUSE = HTTP2_CAUSE_COUNT
};

/* Labels for metrics, e.g. "resets", and texts for logs. */
extern const char *const http2_cause_name[HTTP2_CAUSE_COUNT];
extern const char *const http2_cause_text[HTTP2_CAUSE_COUNT];

/* Buffers for one header section; a worker's sessions share them. */
struct http2_scratch;
struct http2_scratch *http2_scratch_new(void); /* NULL: no memory */
void http2_scratch_free(struct http2_scratch *scratch);

/* Reports to the caller. None of these may free the session. All slices are valid only during the
 * call. */
struct http2_events {
    /* Server's role. A valid request. FRAMING_CHUNKED: content of unknown length follows, not in
     * chunks. If the framing is FRAMING_NONE, the request is complete. */
    void (*request)(struct http2_stream *stream, struct request_head *head,
                    const struct framing *framing);
    /* Server's role. A request to be answered with refusal->status. `text`: its head as HTTP/1.1,
     * may be cut. */
    void (*refused)(struct http2_stream *stream, const struct refusal *refusal, struct slice text);
    /* Client's role. A valid interim response (1xx except 101). */
    void (*interim)(struct http2_stream *stream, struct response_head *head);
    /* Client's role. The head of the final response. FRAMING_CHUNKED: content of unknown length
     * follows, not in chunks. FRAMING_NONE: no content follows. `end`: the response is complete,
     * without content_end; otherwise content_end follows, also after FRAMING_NONE. A server that
     * resets the stream with NO_ERROR ends the content too, unless Content-Length states more. */
    void (*response)(struct http2_stream *stream, struct response_head *head,
                     const struct framing *framing, bool end);
    /* Client's role. Optional (NULL). http2_session_capacity() has changed for a reason of the
     * server's: SETTINGS or GOAWAY. */
    void (*capacity)(void *context);
    /* A piece of the content. */
    void (*content)(struct http2_stream *stream, struct slice bytes);
    /* The end of the content. `trailers`: valid field lines and an empty line, as trailers_parse()
     * reads them; empty if there are none. */
    void (*content_end)(struct http2_stream *stream, struct slice trailers);
    /* http2_send_content() or http2_send_trailers() had not taken everything and may be called
     * again. */
    void (*writable)(struct http2_stream *stream);
    /* The stream is closed; it is freed after the call. `complete`: the request and the response
     * were complete. Called only for streams that were reported or opened, and not after
     * http2_stream_detach(). */
    void (*closed)(struct http2_stream *stream, bool complete);
    /* weir has reset a stream, refused one or ended the session because of the peer. `why` is a
     * static text, or NULL. */
    void (*fault)(void *context, enum http2_cause cause, const char *why);
};

/* Begins a session. In the server's role, the client's connection preface (RFC 9113 section 3.4) is
 * part of the input; `client`: the other role, see client_session.h. Output is appended to `*out`,
 * which is taken from `pool` when it is needed; its owner removes what was sent and may return an
 * empty buffer to the pool. Returns NULL if there is no memory. */
MUST_CHECK struct http2_session *http2_session_new(const struct http2_settings *settings,
                                                   bool client, const struct http2_events *events,
                                                   void *context, struct http2_scratch *scratch,
                                                   struct iobuf_pool *pool, struct iobuf **out,
                                                   uint64_t now_us);

/* Frees the session and its streams, without events. NULL is allowed. */
void http2_session_free(struct http2_session *session);

/* Processes input. Server's role: while `*out` holds output that the socket did not accept, call it
 * only if http2_session_takes_input(). A client that does not read must not make weir produce
 * more. */
void http2_session_receive(struct http2_session *session, struct slice bytes, uint64_t now_us);

/* Produces pending output and reports the streams that have become writable or closed. Call it
 * after http2_session_receive(), after `*out` was sent, and before waiting for events if
 * http2_session_has_work(). */
void http2_session_send(struct http2_session *session);
bool http2_session_has_work(const struct http2_session *session);

/* Returns false if many frames wait for room in the output buffer, or the session has failed. */
bool http2_session_takes_input(const struct http2_session *session);

/* Returns whether the session has ended: send `*out`, then close the connection. */
bool http2_session_is_over(const struct http2_session *session);

/* Ends the session gracefully (RFC 9113 section 6.8). The first call sends GOAWAY for no stream in
 * particular and a PING; when the PING returns, or with the second call, GOAWAY names the last
 * stream that weir processes. Further streams are then ignored. */
void http2_session_shut_down(struct http2_session *session);

/* Returns the number of streams that are not closed. */
unsigned http2_session_streams(const struct http2_session *session);
/* Returns whether the peer's first SETTINGS were received. */
bool http2_session_is_open(const struct http2_session *session);
/* Returns when the incomplete header section began, in the time of http2_session_receive(); 0:
 * there is none. */
uint64_t http2_session_head_since(const struct http2_session *session);

void *http2_session_context(const struct http2_session *session);
struct http2_session *http2_stream_session(const struct http2_stream *stream);
/* The caller's pointer, NULL at first. */
void *http2_stream_user(const struct http2_stream *stream);
void http2_stream_set_user(struct http2_stream *stream, void *user);

/* In `content_end`: returns the names of the trailers that are never indexed, see struct fields. */
uint64_t http2_trailers_never_indexed(const struct http2_stream *stream);

struct http2_field {
    struct slice name; /* in any case */
    struct slice value;
};

/* Sends an interim response (1xx except 101). `never_indexed`: see struct fields. Returns false if
 * there is no memory. */
MUST_CHECK bool http2_send_interim(struct http2_stream *stream, unsigned status,
                                   const struct http2_field *fields, unsigned count,
                                   uint64_t never_indexed);
/* Sends the head of the response. `end`: it has no content. The fields are copied; none is
 * connection-specific. Returns false if there is no memory, or if there are HTTP2_SENT_FIELDS_MAX
 * fields or more. */
MUST_CHECK bool http2_send_head(struct http2_stream *stream, unsigned status,
                                const struct http2_field *fields, unsigned count,
                                uint64_t never_indexed, bool end);
/* Sends content as far as windows and output buffer permit, and returns the bytes taken. If they
 * are fewer than bytes.n, `writable` follows: streams that wait take turns. `end`: the content ends
 * with these bytes, and nothing more is to be sent if all are taken. */
size_t http2_send_content(struct http2_stream *stream, struct slice bytes, bool end);
/* Returns whether the windows and the output buffer permit content now. If not, `writable` or
 * `closed` follows. */
MUST_CHECK bool http2_takes_content(struct http2_stream *stream);
/* Ends the content with trailers (RFC 9113 section 8.1), after all content was taken. At least one
 * is to be forwarded (trailers_any()). They are copied. Returns false if they were not taken; then
 * `writable` or `closed` follows. */
MUST_CHECK bool http2_send_trailers(struct http2_stream *stream, const struct fields *trailers);

/* Reports that `size` bytes of received content are not stored any more. */
void http2_consume(struct http2_stream *stream, size_t size);
/* In `closed`: the caller goes on storing the content that http2_consume() was not called for, and
 * reports it with http2_session_consume() later. Returns its size. Without this call, all content
 * of a closed stream counts as consumed. */
size_t http2_stream_keep_content(struct http2_stream *stream);
void http2_session_consume(struct http2_session *session, size_t size);

/* Resets the stream (RFC 9113 section 5.4.2): a response must not look complete, or a request is
 * cancelled. `closed` follows. */
void http2_reset(struct http2_stream *stream);
/* The caller needs no more of the stream: no further events; content that still arrives is dropped.
 * Server's role: if the response is complete and the request is not, the client is asked to stop
 * when it has the response (section 8.1). Client's role: a stream that is not closed is reset. */
void http2_stream_detach(struct http2_stream *stream);

#endif
