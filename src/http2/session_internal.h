/* session_internal.h - shared by the files that implement a session. */
#ifndef WEIR_HTTP2_SESSION_INTERNAL_H
#define WEIR_HTTP2_SESSION_INTERNAL_H

#include <nghttp2/nghttp2.h>
#include <sys/queue.h>

#include "base/magic.h"
#include "http2/client_session.h"
#include "http2/closed_streams.h"
#include "http2/head_text.h"
#include "http2/session_memory.h"

enum { HTTP2_SESSION_MAGIC = 0x48325345, HTTP2_STREAM_MAGIC = 0x48325354, HTTP2_FRAME_HEADER = 9 };

struct http2_scratch {
    struct session_slots slots;
    const struct http2_session *used_by; /* whose head is in the buffers; NULL: none */
    char head[HEAD_TEXT_MAX], side[HEAD_TEXT_MAX];
    struct request_head request;
    struct response_head response;
    nghttp2_nv pairs[HTTP2_SENT_FIELDS_MAX];
    char status[3];
};

struct http2_stream {
    uint32_t magic;
    int32_t id;
    struct http2_session *session;
    void *user;
    TAILQ_ENTRY(http2_stream) link;       /* session->streams */
    TAILQ_ENTRY(http2_stream) event_link; /* session->events_due or session->no_room */
    enum { STREAM_QUIET, STREAM_HAS_EVENT, STREAM_NO_ROOM } queued;
    struct slice piece; /* during http2_send_content(): the content not taken yet */
    uint64_t missing;   /* client's role: bytes of content to come, if Content-Length states them */
    uint32_t unconsumed; /* bytes of content received and not reported by http2_consume() */
    bool piece_ends;     /* the content ends after `piece` */
    bool deferred;       /* nghttp2 waits for http2_send_content() */
    bool end_given;      /* all of what weir sends was handed over */
    bool sent_all;       /* ... and is in the output buffer or sent */
    bool received_all;   /* END_STREAM was received */
    bool final_head;     /* client's role: the head of the final response was received */
    uint8_t method;      /* client's role: enum method of the request */
    bool reported;       /* to the caller */
    bool detached;       /* the caller needs no more events */
    bool own_reset;      /* weir resets it for reasons of its own */
    /* server's role, after the response: the rest of the request is dropped; PINGED: since before
     * the last PING */
    enum { REST_NONE, REST_AWAITED, REST_PINGED } rest;
    bool closed, complete;
    uint32_t code;   /* closed: error code */
    const char *why; /* client's role: the fault for which weir resets the stream; static text */
};

TAILQ_HEAD(http2_stream_list, http2_stream);

/* A header section being received. */
enum section { SECTION_REQUEST, SECTION_RESPONSE, SECTION_TRAILERS };

struct http2_session {
    uint32_t magic;
    bool client; /* the client's role */
    nghttp2_session *ng;
    struct session_memory memory; /* of `ng` */
    const struct http2_events *events;
    void *context;
    struct http2_scratch *scratch;
    struct iobuf_pool *pool;
    struct iobuf **out;
    struct http2_stream_list streams, events_due, no_room;
    struct closed_streams closed; /* server's role */
    struct frame_limits limits;
    uint32_t max_header_list;
    uint64_t now_us;
    bool
        may_ping; /* client's role: since the last http2_client_session_ping() the server has sent a
                      frame other than PING, or a stream was opened */

    /* the frame being received */
    uint8_t header[HTTP2_FRAME_HEADER];
    uint8_t header_size;  /* bytes of `header` received */
    uint8_t preface_left; /* bytes of the preface to come */
    uint8_t continuations;
    bool padded; /* DATA, and the length of its padding is to come */
    uint32_t payload_left;

    /* the header section being received (kept_head.c) */
    struct http2_stream *head_of; /* NULL: none */
    uint64_t head_since_us;       /* when it began */
    enum section section;
    struct head_text text;
    char *kept; /* its bytes between reads */

    /* during http2_send_trailers() */
    const struct http2_stream *trailers_of; /* NULL: nghttp2 has taken them */
    const struct fields *trailers;

    /* what the last part of the input has brought */
    struct http2_stream *headed; /* the head of a request or response */
    struct http2_stream *content_of;
    struct slice content;
    struct http2_stream *ended;
    bool capacity_changed;

    unsigned varying_sent;  /* fields in the table of HPACK, by bit; see hpack_fields.c */
    const char *why;        /* of the next reset by weir; static text, or NULL */
    enum http2_cause cause; /* why weir has ended the session */
    bool open;              /* the peer's first SETTINGS were received */
    bool failed;            /* no more input is processed */
    bool sending;           /* in nghttp2_session_send() */
    bool work;              /* output or events are pending */
    bool rests_pinged;      /* the PING after early responses is not acknowledged yet */
    enum { SHUTDOWN_NONE, SHUTDOWN_NOTICED, SHUTDOWN_DONE } shutdown;
    int32_t last_stream; /* SHUTDOWN_DONE: weir processes no stream after it */
    unsigned stream_count;
};

static inline struct http2_session *http2_session_of(void *user_data)
{
    struct http2_session *session = user_data;
    MAGIC_CHECK(session, HTTP2_SESSION_MAGIC);
    return session;
}

/* Returns a new stream without an identifier; NULL if there is no memory. */
struct http2_stream *http2_stream_new(struct http2_session *session);

/* Sets the callbacks for received and sent frames. */
void http2_received_callbacks(nghttp2_session_callbacks *callbacks);
void http2_sent_callbacks(nghttp2_session_callbacks *callbacks);

/* Reports a fault to the caller. `why`: static text, or NULL. */
void http2_fault(struct http2_session *session, enum http2_cause cause, const char *why);
/* Reports the fault for which weir has reset a stream, and charges it. `stream`: NULL if it is
 * closed. */
void http2_reset_fault(struct http2_session *session, struct http2_stream *stream, uint32_t code);
/* Reports a fault and sends GOAWAY with the code of the cause, mostly ENHANCE_YOUR_CALM. No more
 * input is processed. */
void http2_session_fail(struct http2_session *session, enum http2_cause cause, const char *why);

/* Takes a token of the limit; without one, the session fails. */
void http2_charge(struct http2_session *session, enum frame_limit limit);

/* Opaque data of the PING after early responses. */
extern const uint8_t http2_rests_ping[8];

/* A PING acknowledgement was received. */
void http2_ping_returned(struct http2_session *session, const uint8_t *opaque);

/* The PING after early responses was acknowledged: the client has their ends. Asks it to stop
 * sending the requests (RST_STREAM with NO_ERROR, RFC 9113 section 8.1). */
void http2_end_rests(struct http2_session *session);
/* Reports that content of a detached stream was dropped. */
void http2_drop(struct http2_stream *stream, size_t size);

/* Queues the report that the stream is closed. */
void http2_stream_due(struct http2_stream *stream);
/* Returns the content of a stream, for nghttp2. */
nghttp2_data_provider http2_content_of(struct http2_stream *stream);
/* Returns a field, for nghttp2, which copies it and changes its name to lower case. */
nghttp2_nv http2_pair(struct http2_session *session, struct slice name, struct slice value);
/* Writes :status and the fields to session->scratch->pairs. Returns their number; 0: too many. */
size_t http2_write_pairs(struct http2_session *session, unsigned status,
                         const struct http2_field *fields, unsigned count, uint64_t never_indexed);
/* Returns the bit of a name in fields.never_indexed. */
uint64_t http2_never_indexed_bit(struct slice name);
/* Keeps the fields with these names out of the table of HPACK. */
void http2_never_index(nghttp2_nv *pairs, size_t count, uint64_t names);
/* Frees a stream that is in no list of nghttp2 any more. */
void http2_stream_free(struct http2_stream *stream);

/* Reports what the last part of the input has brought. */
void http2_report_received(struct http2_session *session);

/* Starts a header section (kept_head.c). */
void http2_head_begin(struct http2_session *session, struct http2_stream *stream,
                      enum section section);
/* Makes session->text usable again after http2_head_keep(). */
void http2_head_resume(struct http2_session *session);
/* Keeps an incomplete section until more input arrives. Returns false if there is no memory. */
bool http2_head_keep(struct http2_session *session);
/* Ends the header section, if there is one. */
void http2_head_drop(struct http2_session *session);

#endif
