/* http2_internal.h - shared by http2.c, http2_request.c and http2_send.c. */
#ifndef WEIR_DOWNSTREAM_HTTP2_INTERNAL_H
#define WEIR_DOWNSTREAM_HTTP2_INTERNAL_H

#include "downstream/http2.h"
#include "http2/session.h"
#include "proxy/send_rate.h"

enum { HTTP2_REQUEST_MAGIC = 0x48325251 };

/* A stream with its request and response. */
struct http2_request {
    uint32_t magic;
    struct downstream downstream;
    struct http2_client *connection;
    struct http2_stream *stream;      /* NULL: closed */
    TAILQ_ENTRY(http2_request) link;  /* connection->requests, or http2_worker->ended */
    TAILQ_ENTRY(http2_request) ready; /* connection->ready, if is_ready */
    struct iobuf *in_first, *in_last; /* content that the exchange has not read */
    struct slice arriving;            /* content that is being reported by the session */
    size_t kept;                /* stored content of a closed stream, in the connection's window */
    struct iobuf *in_trailers;  /* of the request, as text; NULL: none */
    uint64_t in_never_indexed;  /* of these, see struct fields */
    uint64_t content_sent;      /* content bytes that the session has taken */
    struct iobuf *out;          /* content that the session has not taken */
    struct iobuf *out_trailers; /* trailers after it, as text; NULL: none */
    uint64_t out_never_indexed; /* of these */
    bool out_last;              /* the response ends after it */
    bool wants_body, is_ready, ended;
    bool body_ended; /* the content has arrived to its end, */
    bool end_read;   /* and the exchange has read it */
};

TAILQ_HEAD(http2_requests, http2_request);

struct http2_client {
    struct socket_client *client;
    struct http2_worker *shared; /* by the connections of a worker */
    struct http2_session *session;
    struct http2_requests requests, ready; /* ready: exchange_body_ready() is due */
    TAILQ_ENTRY(http2_client) dirty_link;
    uint64_t content_sent;  /* content bytes that the session has taken, of all streams */
    bool dirty;             /* in http2_worker->dirty: output or events are pending */
    bool lost;              /* the socket failed */
    bool left;              /* the client has closed it, and its requests were ended */
    bool stopping;          /* GOAWAY was sent */
    bool idle_over;         /* GOAWAY was sent since the connection was idle */
    uint64_t head_since_us; /* of the header that the deadline is or was for; 0: none yet */
    struct deadline second; /* of the second GOAWAY */
    struct send_rate rate;  /* of the client, while the socket holds output */
};

struct http2_worker {
    struct protocol_worker protocol;
    struct http2_scratch *scratch;
    struct event wake; /* active while output is pending */
    struct deadline_queue unsent, leaving, second;
    struct log_throttle throttle[HTTP2_CAUSE_COUNT];
    TAILQ_HEAD(http2_dirty, http2_client) dirty;
    unsigned dirty_count;
    struct http2_requests ended; /* in this loop iteration */
    struct free_list free_requests;
    char receive[IOBUF_LARGE]; /* worker->receive is used by exchanges meanwhile */
};

/* http2_request.c: returns whether there are requests, and all go on without a stream: the client
 * has its responses, but the servers do not have all content yet. */
bool http2_awaits_servers(const struct http2_client *connection);

/* Members of struct client_protocol: http2_request.c. */
void http2_head_timed_out(struct client *client);
size_t http2_memory(const struct client *client, uint64_t now_us, uint64_t *still_us);
unsigned http2_shed(struct client *client);

/* Queues the connection for the flush of the loop iteration. */
void http2_touch(struct http2_client *connection);
/* Writes output to the socket. Returns false if some is left or the socket has failed. */
bool http2_push(struct http2_client *connection);

/* The session's events of streams; the context is the struct http2_client. */
void http2_on_request(struct http2_stream *stream, struct request_head *head,
                      const struct framing *framing);
void http2_on_refused(struct http2_stream *stream, const struct refusal *refusal,
                      struct slice text);
void http2_on_content(struct http2_stream *stream, struct slice bytes);
void http2_on_content_end(struct http2_stream *stream, struct slice trailers);
void http2_on_writable(struct http2_stream *stream);
void http2_on_closed(struct http2_stream *stream, bool complete);

/* The stream of a downstream. */
struct http2_request *http2_request_of(struct downstream *downstream);
/* Members of struct downstream_ops (proxy/downstream.h). */
enum downstream_sent http2_request_send_head(struct downstream *downstream,
                                             const struct response *response,
                                             const struct iovec *content, int count, bool last);
bool http2_request_send_image(struct downstream *downstream, const struct response_image *image,
                              enum downstream_sent *sent);
enum downstream_sent http2_request_send_interim(struct downstream *downstream,
                                                const struct response *response);
enum downstream_sent http2_request_send_body(struct downstream *downstream,
                                             const struct content_piece *piece);
bool http2_request_takes(struct downstream *downstream);
uint64_t http2_request_taken(const struct downstream *downstream, bool exactly);

/* Calls exchange_body_ready() for the requests that wait for it. */
void http2_report_ready(struct http2_client *connection);

#endif
