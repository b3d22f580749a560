/* socket_client.h - a client connection on a socket of its own, with or without TLS.
 *
 *   PROXY protocol header, TLS handshake -> HTTP/1.1 (may become HTTP/2), HTTP/2 -> lingering close
 *   opening.c                               http1_head.c, http1.c; http2.h         linger.c
 *
 * Each of them is a struct socket_protocol. Only the handshake or the first bytes tell which
 * version of HTTP a client uses, so the struct has room for both. */
#ifndef WEIR_DOWNSTREAM_SOCKET_CLIENT_H
#define WEIR_DOWNSTREAM_SOCKET_CLIENT_H

#include "downstream/client.h"
#include "net/proxy_header.h"
#include "net/stream.h"

struct socket_client;

/* What a protocol does with a connection on a socket. Each function may close it. */
struct socket_protocol {
    struct client_protocol client;
    /* `closed`: the client's FIN or reset was reported while reading was paused. */
    void (*readable)(struct socket_client *client, bool closed);
    void (*writable)(struct socket_client *client); /* optional (NULL) */
};

/* HTTP/1.1: state of the request under way and of its response. */
struct http1 {
    struct body_reader request;
    uint8_t minor;         /* HTTP/1.minor of the request */
    bool keep_alive;       /* the client accepts another response on this connection */
    bool accepts_trailers; /* TE: trailers */
    bool end_unknown;      /* it is malformed: the start of the next request is unknown */
    bool wants_body;       /* the exchange reads content; else it stays in stream.in */
    bool close;            /* the response announced the close */
    bool chunked;          /* encoding of the response's content */
    bool until_close;      /* it ends with the connection */
    bool response_ended;   /* the server's response was accepted; stream.out may hold some of it */
    bool tunnel;           /* after 101 */
    uint32_t held_content; /* bytes at the start of stream.in that are read content, for end() */
};

struct socket_client {
    struct client client;
    const struct socket_protocol *protocol; /* the same as client.protocol */
    struct stream stream;
    struct downstream downstream;  /* HTTP/1.1; its exchange is set in CLIENT_EXCHANGE */
    struct http1 http1;            /* in CLIENT_EXCHANGE and CLIENT_DRAIN */
    struct http2_client *http2;    /* HTTP/2 */
    uint64_t dropped, dropped_max; /* bytes dropped in DRAIN or LINGER; those that may be */
    uint32_t scanned;              /* bytes of stream.in that request_head_read has scanned */
    uint16_t listener;             /* index in the policy */
    bool unread;                   /* stream.in holds bytes that were not parsed yet */
    bool may_be_http2;             /* its first bytes may be the preface of HTTP/2 */
    bool in_handshake;             /* its TLS handshake is counted in worker->buffers.memory */
};

static inline struct socket_client *socket_client_of(const struct client *client)
{
    return CONTAINER_OF((struct client *)(uintptr_t)client, struct socket_client, client);
}

/* Opens a connection on `fd`, which it takes over. `listener` is the index in the policy.
 * `counted`: the connection is counted for the address of `peer`. Returns false, with `fd` closed,
 * if there is no memory. */
bool socket_client_open(struct worker *worker, int fd, const struct address *peer,
                        unsigned listener, bool counted);

/* Returns the settings of its listener now. Reloads keep listeners in order. */
static inline const struct listen_settings *socket_client_listener(const struct socket_client *c)
{
    return &c->client.worker->policy->listen[c->listener];
}

/* Changes the protocol. */
void socket_client_use(struct socket_client *client, const struct socket_protocol *protocol);
/* Calls the protocol on the events of the socket. */
void socket_client_watch(struct socket_client *client, int fd);
/* Returns the memory of its two buffers, in bytes. */
size_t socket_client_buffers(const struct socket_client *client);

/* Members of struct client_protocol that several protocols share. */
bool socket_client_has_input(const struct client *client);
void socket_client_stop(struct client *client); /* closes it unless a request may have arrived */
bool socket_client_is_verified(const struct client *client);
size_t socket_client_memory(const struct client *client, uint64_t now_us, uint64_t *still_us);
unsigned socket_client_shed(struct client *client); /* closes it */
void socket_client_end(struct client *client);
void socket_client_free(struct client *client);

/* ---- HTTP/1.1 -------------------------------------------------------------------------------- */

extern const struct socket_protocol http1_protocol;
extern const struct downstream_ops http1_ops;

/* http1_head.c: reads a head and begins its exchange. May close the connection. */
void http1_read_head(struct socket_client *client);
/* Refuses a request of which weir has no head, with 400. `why` is static. May close the
 * connection. */
void http1_refuse(struct socket_client *client, const char *why);
/* timeouts.request_header has passed. */
void http1_head_timed_out(struct client *client);
/* Waits for the next request, or starts with one that is already buffered. */
void http1_await_request(struct socket_client *client);

/* ---- lingering close ------------------------------------------------------------------------- */

/* Starts the lingering close after the last response. Shuts down the sending side, then reads
 * and drops input until the client closes, `dropped_max` bytes at most. Closing with unread input
 * would reset the connection, and the reset may destroy the response in transit (RFC 9112 section
 * 9.6). May close the connection. */
void linger_begin(struct socket_client *client, uint64_t dropped_max);
/* Enters CLIENT_DRAIN: the rest of the request, whose response was sent, is read and dropped. May
 * close the connection. */
void linger_begin_drain(struct socket_client *client);
/* Reads and drops in CLIENT_DRAIN. `receive`: also from the socket. Returns whether the request has
 * ended; the next one may follow. Otherwise may close the connection. */
bool linger_drain(struct socket_client *client, bool receive);
/* Arms the deadline in CLIENT_DRAIN or CLIENT_LINGER. It is shorter if the worker stops. */
void linger_arm(struct client *client);
void linger_init(struct worker *worker);

/* ---- proxy_header_reader.c, for opening.c ---------------------------------------------------- */

enum proxy_header_result {
    RECEIVE_PARTIAL, /* incomplete: call again when readable; `in` holds the bytes received */
    RECEIVE_WHOLE,   /* complete; `in` is empty again */
    RECEIVE_BAD,     /* no header, a malformed one, or a truncated one */
    RECEIVE_CLOSED   /* closed or failed before the first byte */
};

/* Reads the PROXY protocol header from the start of a connection. Consumes no byte after it. */
enum proxy_header_result proxy_header_receive(struct stream *stream, struct iobuf_pool *pool,
                                              struct proxy_header *header);

#endif
