/* http2_upstream_internal.h - shared by http2_pool.c, http2_connection.c, http2_link.c and
 * http2_response.c. */
#ifndef WEIR_UPSTREAM_HTTP2_UPSTREAM_INTERNAL_H
#define WEIR_UPSTREAM_HTTP2_UPSTREAM_INTERNAL_H

#include "base/magic.h"
#include "http2/client_session.h"
#include "upstream/http2_upstream.h"
#include "upstream/upstream_internal.h"

enum {
    HTTP2_LINK_MAGIC = 0x48324c4b,
    HTTP2_UPSTREAM_STREAMS_MAX = 100,      /* of a connection; a server may allow fewer */
    HTTP2_UPSTREAM_WINDOW = IOBUF_READ_MAX /* of content per stream: fits one buffer */
};

struct http2_connection {
    struct connection *connection;
    struct http2_session *session; /* NULL: not up yet */
    struct server *server;
    struct http2_links links;
    TAILQ_ENTRY(http2_connection) entry;       /* server->http2.connections */
    TAILQ_ENTRY(http2_connection) dirty_entry; /* http2_upstreams->dirty, if `dirty` */
    bool probe;                                /* dialed to probe the server */
    bool open;                                 /* the server's SETTINGS were received */
    bool draining;                             /* no more links; closed with the last one */
    bool lost;                                 /* the socket has failed or ended */
    bool used;                                 /* it has carried a link */
    bool dirty;                                /* output or events are pending */
    bool pinged;                               /* no input since a PING was sent */
    const char *why;      /* the server's fault that ended the session; static text, or NULL */
    uint64_t received_us; /* time of the last input */
    uint64_t answered_us; /* time of the last head of a response */
};

/* A link: one exchange's use of a server, by a stream. */
struct http2_link {
    uint32_t magic;
    struct link link;
    struct http2_connection *connection; /* NULL: it waits, or the connection was lost */
    struct http2_stream *stream;         /* NULL: not opened yet, or closed */
    TAILQ_ENTRY(http2_link) entry; /* server->http2.waiting, connection->links, or ended links */
    TAILQ_ENTRY(http2_link) ready_entry; /* http2_upstreams->ready, if is_ready */
    bool is_ready;                       /* readable() is due */
    bool wants_read;
    bool sent;          /* send_head() was called */
    bool released;      /* by its owner */
    uint64_t opened_us; /* of this loop iteration, like the deadline of the response */

    /* request */
    struct iobuf *out;          /* content that the session has not taken */
    struct iobuf *out_trailers; /* that follow it, as trailers_parse() reads them */
    uint64_t out_never_indexed; /* of these, see struct fields */
    bool out_last;              /* the request ends after them */

    /* response */
    enum method method;
    const struct response_head *head; /* that is being reported by the session, or NULL */
    struct framing framing;           /* its framing */
    struct iobuf *heads;              /* heads that the owner has not read, as HTTP/1.1 */
    struct slice arriving;            /* content that is being reported by the session */
    struct iobuf *in;                 /* content that the owner has not read */
    struct iobuf *trailers;           /* as trailers_parse() reads them */
    uint64_t never_indexed;           /* of `heads` and `trailers`, see struct fields */
    bool body_ended;
    enum link_loss loss; /* how the stream has ended before the response did */
    const char *why;     /* static text, or NULL */
    bool malformed;      /* `why` is a fault of the server */
};

/* Of a worker; created with the first connection. */
struct http2_upstreams {
    struct http2_scratch *scratch;
    struct http2_connections dirty;
    unsigned dirty_count;
    struct http2_links ready, ended; /* ended: in this loop iteration */
    struct free_list free_links;
    struct request_head request;
    char receive[IOBUF_LARGE]; /* io.receive is used by exchanges meanwhile */
};

/* ---- http2_pool.c ---------------------------------------------------------------------------- */

/* Gives waiting links to connections with room, and dials further ones. */
void http2_serve(struct server *server);
/* Fails the waiting links if no connection is left to wait for. */
void http2_fail_waiting(struct server *server, enum link_failure failure);
/* The server has chosen HTTP/1.1: gives the connection to a waiting link, or pools it. */
void http2_becomes_http1(struct http2_connection *h);
/* Takes a connection off its server and frees it. Its session has ended. */
void http2_connection_free(struct http2_connection *h);

/* ---- http2_connection.c ---------------------------------------------------------------------- */

extern const struct connection_events http2_connection_events;
/* Closes a connection without links, after a last write. */
void http2_connection_close(struct http2_connection *h);
/* A deadline of queue.http2_silence has passed. */
void http2_silence_passed(struct deadline *deadline);

/* ---- http2_output.c -------------------------------------------------------------------------- */

/* Returns what the worker's connections share; created with the first. NULL: no memory. */
struct http2_upstreams *http2_upstreams_of(struct upstream_worker *worker);
/* Queues the connection for http2_upstreams_flush(). */
void http2_upstream_touch(struct http2_connection *h);
/* Writes output early if much is held, so that the buffer has room for other streams. */
void http2_upstream_push(struct http2_connection *h);
/* Writes output. Returns whether all of it was written. */
bool http2_upstream_write(struct http2_connection *h);

/* ---- http2_link.c ---------------------------------------------------------------------------- */

extern const char http2_link_too_large[]; /* text for logs */
/* Returns a link that waits; NULL: no memory. */
struct http2_link *http2_link_new(struct server *server, struct link_owner *owner);
/* Ends the link's use by its owner; it is freed after the loop iteration. */
void http2_link_end(struct http2_link *l);
/* Makes the link ready on a connection with room. */
void http2_link_attach(struct http2_link *l, struct http2_connection *h);
/* The connection was lost. readable() follows. */
void http2_link_lose(struct http2_link *l);
/* Calls readable() of the links for which it is due. */
void http2_links_report(struct http2_upstreams *u);

/* Makes readable() due if there is something to read. */
void http2_link_make_ready(struct http2_link *l);
/* Calls readable() if the owner reads. Returns false if it has released the link. */
bool http2_link_report(struct http2_link *l);
/* Appends to a buffer of the link, which is taken from the pool when it is needed. Returns false if
 * there is no room or no memory. */
MUST_CHECK bool http2_link_append(struct http2_link *l, struct iobuf **buffer, struct slice bytes);

static inline struct http2_link *http2_link_of(struct link *link)
{
    struct http2_link *l = CONTAINER_OF(link, struct http2_link, link);
    MAGIC_CHECK(l, HTTP2_LINK_MAGIC);
    return l;
}

static inline struct iobuf_pool *http2_link_buffers(const struct http2_link *l)
{
    return l->link.worker->io.buffers;
}

static inline void http2_link_touch(struct http2_link *l)
{
    if (l->connection)
        http2_upstream_touch(l->connection);
}

/* Events of the session. */
void http2_link_on_writable(struct http2_stream *stream);
void http2_link_on_closed(struct http2_stream *stream, bool complete);

/* ---- http2_response.c ------------------------------------------------------------------------ */

/* See struct link_ops. */
enum link_head http2_link_read_head(struct link *link, bool receive, struct response_head *head,
                                    struct framing *framing, const char **why);
enum body_status http2_link_read_body(struct link *link, bool receive, struct content_piece *piece,
                                      const char **why);
bool http2_link_consume_body(struct link *link, const struct content_piece *piece);

/* Events of the session. */
void http2_link_on_interim(struct http2_stream *stream, struct response_head *head);
void http2_link_on_response(struct http2_stream *stream, struct response_head *head,
                            const struct framing *framing, bool end);
void http2_link_on_content(struct http2_stream *stream, struct slice bytes);
void http2_link_on_content_end(struct http2_stream *stream, struct slice trailers);

#endif
