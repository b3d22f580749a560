/* link.h - the interface between an exchange and its use of a server; the mirror of downstream.h.
 *
 * A protocol sends requests to a server and reads its responses. A link is one exchange's use of a
 * server: with HTTP/1.1 (http1_link.c) a connection. An exchange has no access to the connection,
 * its socket or the syntax of messages. The one exception is the request head: it is serialised as
 * HTTP/1.1 and kept until the response starts, so that any server can get it again. What a
 * protocol decides by itself: whether a connection is used again, and how the end of a message is
 * marked.
 *
 *              exchange calls (struct link_ops)         protocol calls (struct link_owner_ops)
 *   request    send_head()        head, first content   connected(), connect_failed()
 *              send_body()        content, trailers     writable()     output was sent
 *                                                       broken()       sending has failed
 *   response   read_head()        interim, final, 101   readable()     a head, content, its end
 *              read_body()        next piece                           or an error can be read
 *              consume_body()     the piece is used     timed_out()    deadline of the exchange
 *              want_read()
 *   end        release()          always the last call
 *
 * Request. The protocol accepts everything that it is given. If the server does not take it at
 * once, it keeps the rest (at most one piece of IOBUF_READ_MAX and a head), sets `pending`, and
 * calls writable() when some or all of it was sent. While `pending` is set, the exchange sends no
 * more. If sending fails, a response may still arrive: a server may respond before it has read the
 * request, and close.
 *
 * Response. While want_read(true) is in effect, as it is at first, the protocol calls readable()
 * whenever something can be read. It receives no more than it can keep within a bound (HTTP/1.1:
 * one buffer; the rest stays in the kernel).
 *
 * Calls of the protocol into the exchange may end it: release() was then called. The functions of
 * link_ops never call into the exchange. */
#ifndef WEIR_UPSTREAM_LINK_H
#define WEIR_UPSTREAM_LINK_H

#include "base/deadline.h"
#include "net/address.h"
#include "upstream/message_body.h"

/* Why there is no connection. */
enum link_failure {
    LINK_FAILED_CONNECT,   /* no server was left to try, or it refused the connection */
    LINK_FAILED_TLS,       /* the TLS handshake failed */
    LINK_FAILED_TIMEOUT,   /* no connection, or no TLS handshake, within connect_timeout */
    LINK_FAILED_CLOSED,    /* the server closed the connection before it took a request: during the
                              TLS handshake, or before its HTTP/2 SETTINGS */
    LINK_FAILED_NO_SERVER, /* no server passes its health checks, or no name is resolved */
    LINK_FAILED_NO_MEMORY,
    LINK_FAILED_NO_DESCRIPTORS,
    LINK_FAILED_NO_PORTS, /* no local port is free for a connection to this address */
    LINK_FAILURES
};

/* Returns what `error`, an errno of socket() or connect() to the address, means. CONNECT: the
 * failure is of the server or the path to it. */
enum link_failure link_failure_of(int error, const struct address *to);

struct link;

/* What uses a link, and the events of the link. Each may release the link. */
struct link_owner {
    const struct link_owner_ops *ops;
};

struct link_owner_ops {
    /* `link` replaces the one from upstream_take(). */
    void (*connected)(struct link_owner *owner, struct link *link);
    /* The link was closed. */
    void (*connect_failed)(struct link_owner *owner, enum link_failure failure);
    void (*readable)(struct link_owner *owner);
    void (*writable)(struct link_owner *owner);
    /* Sending has failed; the output was dropped. */
    void (*broken)(struct link_owner *owner);
    /* The deadline of `queue.response` has passed. */
    void (*timed_out)(struct link_owner *owner);
};

enum link_sent {
    LINK_SENT,
    LINK_PENDING, /* the rest is kept; `pending` is set */
    LINK_BROKEN   /* sending has failed; the output was dropped */
};

/* Result of read_head(). */
enum link_head {
    LINK_HEAD,  /* a head was read */
    LINK_AGAIN, /* nothing to read now, or the head is incomplete */
    LINK_ENDED, /* the server has ended the link; see loss() and fault() */
    LINK_BAD,   /* the head is malformed or too large: `*why`, a static text */
    LINK_NO_MEMORY
};

/* What a server has done with a request that it did not answer. */
enum link_loss {
    LINK_LOST,        /* unknown: it may have processed the request */
    LINK_CLOSED_IDLE, /* it closed a reused connection, probably before it received the request */
    LINK_GOING_AWAY,  /* HTTP/2: it has not processed the request, and closes the connection */
    LINK_REFUSED,     /* HTTP/2: it has not processed the request */
    LINK_OBJECTED,    /* HTTP/2: a stream error, of which the request may be the reason */
    LINK_HEAD_TOO_LARGE, /* HTTP/2: the server's settings do not permit the header; not sent */
    LINK_NOT_SENT        /* HTTP/2: weir has no memory for a stream */
};

/* What send_head() needs of a request. */
struct link_request {
    struct slice head; /* serialised as HTTP/1.1; used during the call only */
    enum method method;
    enum framing_kind content;  /* FRAMING_CHUNKED: of unknown length */
    uint64_t never_indexed;     /* see struct fields */
    uint64_t response_head_max; /* maximum size of the header of the response, in bytes */
};

/* The socket of a link and the state of the response's content, for moves within the kernel. */
struct link_splice {
    struct stream *stream;
    struct body_reader *reader;
};

struct link_ops {
    /* The server can state that it has not processed a request: LINK_GOING_AWAY, LINK_REFUSED. */
    bool refuses;

    /* Sends a request's head and the first piece of its content (may be empty; NULL: the request
     * has no content). */
    enum link_sent (*send_head)(struct link *link, const struct link_request *request,
                                const struct content_piece *first);
    /* Sends a piece of content (may be empty), and its trailers if it is the last one. Call only
     * while `pending` is not set. In a tunnel, `last` ends the sending direction alone. */
    enum link_sent (*send_body)(struct link *link, const struct content_piece *piece);

    /* true: readable() is called whenever something can be read. false: it is not called, and the
     * server is slowed down. */
    void (*want_read)(struct link *link, bool want);
    /* Reads the next head: of an interim response, a 101 or the final response. `receive`: also
     * from the socket, else only what was received before. Of a final response, `framing` is set;
     * FRAMING_CHUNKED: the length is unknown. The head's slices are valid until the next call for
     * this link. After a final head, read_body() follows at once, or release(). */
    enum link_head (*read_head)(struct link *link, bool receive, struct response_head *head,
                                struct framing *framing, const char **why);
    /* Reads the next piece of the response's content, decoded. Returns as body_read(); an empty
     * last piece if the content has ended. */
    enum body_status (*read_body)(struct link *link, bool receive, struct content_piece *piece,
                                  const char **why);
    /* Releases the piece of the last read_body(). Returns false if there is no memory. */
    bool (*consume_body)(struct link *link, const struct content_piece *piece);
    /* Returns whether there is unread input: used to be fair when a deadline has passed. */
    bool (*has_input)(const struct link *link);
    /* Call when the response has ended and the request has not, and for each readable() after it.
     * Returns whether the server may still take the rest of the request. */
    bool (*takes_rest)(struct link *link);

    /* The 101 was accepted: from now on both bodies are a tunnel's bytes. Optional (NULL): the
     * protocol has no tunnels. */
    void (*begin_tunnel)(struct link *link);

    /* Optional (NULL): what content can be spliced from or to. spliced() records what was sent to
     * the server; `last`: the content ends with it. */
    struct link_splice (*splice)(struct link *link);
    enum link_sent (*spliced)(struct link *link, enum sent sent, bool last);

    /* After LINK_ENDED: what the server has done with the request. */
    enum link_loss (*loss)(const struct link *link);
    /* Returns the memory of the link's buffers, in bytes. */
    size_t (*memory)(const struct link *link);
    /* Returns why the link has failed (static text), or NULL. */
    const char *(*fault)(const struct link *link);

    /* See link_release(). */
    void (*release)(struct link *link, bool complete);
};

struct upstream_worker;
struct server;

struct link {
    const struct link_ops *ops;
    struct upstream_worker *worker;
    struct server *server;
    struct link_owner *owner;
    struct deadline deadline; /* when ready: armed by the owner, in `queue.response` */
    bool ready;               /* send_head() may be called; else connected() follows */
    bool reused;              /* its connection has served a request before */
    enum {
        REQUEST_UNNOTED,
        REQUEST_NOTED, /* counted for ejection: upstream_note_answer() */
        REQUEST_FAILED /* counted as a failure, too: upstream_note_failure() */
    } outcome;
    bool in_flight;      /* its request is counted: server_stats_begin(), */
    bool error_counted;  /* and its failure */
    bool pending;        /* accepted output was not sent yet; set by the protocol */
    bool response_begun; /* HTTP/1.1: a head is incomplete; HTTP/2: one was received */
};

/* Releases the link: the exchange is over and does not use it again. `complete`: both messages were
 * transferred completely. */
void link_release(struct link *link, bool complete);

#endif
