/* downstream.h - the interface between a client's protocol and an exchange.
 *
 * A protocol (HTTP/1.1: http1.c) reads requests from a client connection and serialises responses.
 * It embeds one struct downstream per request under way: HTTP/1.1 one per connection, HTTP/2 one
 * per stream. An exchange uses its downstream alone; it has no access to the connection, its
 * socket or the syntax of messages. What a protocol decides by itself: when a connection is
 * closed, what happens to the unread rest of a request, how the end of a message is marked.
 *
 *              protocol calls (exchange.h)                exchange calls (struct downstream_ops)
 *   request    exchange_begin()         head parsed       want_body()    read content, or pause
 *              exchange_refuse()        head malformed    read_body()    next piece of content
 *              exchange_body_ready()    content, its end  consume_body() the piece is used
 *                                       or an error       splice_body()  optional
 *   response   exchange_writable()      output was sent   send_interim() 1xx
 *                                                         send_head()    status, fields, first content
 *                                                         send_body()    content, end, trailers
 *                                                         splice_from()  optional
 *   end        exchange_client_gone()   client left       end()          always the last call
 *              exchange_cut()           ended by force
 *
 * Request. The protocol parses the head into a struct request_head whose slices lie in
 * `head->whole`, one block of memory of any form that is valid during exchange_begin(). Content
 * that arrives before the exchange wants it stays with the protocol, within a bound (HTTP/1.1: one
 * buffer, or the kernel; HTTP/2: the stream's window). When want_body(true) was called and content,
 * its end or an error is there, the protocol calls exchange_body_ready(). The exchange then takes
 * one piece at a time with read_body() and consume_body(), also at other moments; HTTP/2 returns
 * window as pieces are consumed. The last piece may carry trailers. HTTP/1.1 sends them only to
 * clients that accept them (RFC 9110 section 6.5.1).
 *
 * Response. The protocol accepts everything that it is given. If the client does not take it at
 * once, it keeps the rest (at most one piece of IOBUF_READ_MAX and a head), sets `pending`, and
 * calls exchange_writable() when some or all of it was sent. While `pending` is set, the exchange
 * sends no more.
 *
 * Calls of the protocol into the exchange may end it: end() was then called, and the protocol must
 * not use its exchange again. The functions of downstream_ops never call into the exchange. */
#ifndef WEIR_PROXY_DOWNSTREAM_H
#define WEIR_PROXY_DOWNSTREAM_H

#include "http/response.h"
#include "net/address.h"
#include "upstream/message_body.h"

struct downstream;
struct exchange;
struct tls_certificate; /* net/tls_certificate.h */
struct worker;

/* The client connection that requests came on, shared by all of its requests. */
struct client_origin {
    struct peer peer;          /* address of the socket, or from the PROXY protocol header */
    char peer_ip[IP_TEXT_MAX]; /* the same as text, which each request contains */
    uint8_t peer_ip_size;      /* 0: it has no IP address */
    bool peer_unknown;         /* the PROXY header has no source address and is not LOCAL */
    bool secure;               /* TLS */
    /* The client's, verified; NULL: none. Owned by the connection. */
    struct tls_certificate *certificate;
    enum http_version version; /* of the requests */
    bool decides;              /* decision listener: its requests are decided and not forwarded */
    bool serves_limits;        /* listener of rate_limit_service */
};

/* Sets the peer and its text. */
static inline void client_origin_set_peer(struct client_origin *origin,
                                          const struct address *address)
{
    struct text text = text_over(origin->peer_ip, sizeof origin->peer_ip);

    origin->peer = peer_of_address(address);
    if (origin->peer.has_ip)
        ip_format(&origin->peer.ip, &text);
    origin->peer_ip_size = (uint8_t)text.n;
}

enum downstream_sent {
    DOWNSTREAM_SENT,
    DOWNSTREAM_PENDING,  /* the rest is kept; `pending` is set */
    DOWNSTREAM_GONE,     /* the client is gone, or there is no memory; only end() may follow */
    DOWNSTREAM_TOO_LARGE /* send_head(): the head cannot be serialised; nothing was sent */
};

/* How an exchange has ended. */
enum downstream_end {
    /* The response was sent completely. An unread rest of the request may be dropped. */
    DOWNSTREAM_COMPLETE,
    /* The same, but the rest of the request is refused: HTTP/1.1 reads no further request. */
    DOWNSTREAM_REFUSED,
    /* The client is gone, or the response must not look complete. */
    DOWNSTREAM_ABORTED
};

struct downstream_ops {
    /* Sends a final response, or a 101, and the first `count` pieces of its content. `last`: there
     * is no more content. After a 101 both bodies are a tunnel's bytes; `last` of send_body() then
     * ends the sending direction alone. At most DOWNSTREAM_PIECES_MAX pieces. */
    enum downstream_sent (*send_head)(struct downstream *d, const struct response *response,
                                      const struct iovec *content, int count, bool last);
    /* Sends an image that a send_head() has stored, with bytes overwritten. Returns false if the
     * image does not fit this connection; then nothing was sent. Optional (NULL). */
    bool (*send_image)(struct downstream *d, const struct response_image *image,
                       enum downstream_sent *sent);
    /* Sends an interim response. A protocol without them ignores it. */
    enum downstream_sent (*send_interim)(struct downstream *d, const struct response *response);
    /* Sends a piece of content (may be empty), and its trailers if it is the last one. Call only
     * while `pending` is not set. */
    enum downstream_sent (*send_body)(struct downstream *d, const struct content_piece *piece);

    /* Returns whether the client takes content now. If not, sets `pending`, and exchange_writable()
     * follows when it does. Call only while `pending` is not set. */
    bool (*takes)(struct downstream *d);

    /* true: exchange_body_ready() is called whenever there is content, its end or an error. false:
     * stop; it is not called, and the client is slowed down. Initially false. */
    void (*want_body)(struct downstream *d, bool want);
    /* Reads the next piece of content, decoded. `receive`: also from the socket, else only what was
     * received before. Returns as body_read(); BODY_CLOSED: the client is gone. */
    enum body_status (*read_body)(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **why);
    /* Releases the piece of the last read_body(). Returns false if there is no memory.
     * Call it also if the piece could not be used: its bytes would otherwise be read again, as the
     * next message. */
    bool (*consume_body)(struct downstream *d, const struct content_piece *piece);
    /* Returns whether there is unread input: used to be fair when a deadline has passed. */
    bool (*has_input)(const struct downstream *d);

    /* Returns a count of the bytes that the client has taken. Only its growth is meaningful. While
     * the connection's socket is full, it counts the bytes of the connection: those given to the
     * kernel or, if `exactly` is set, those that the client's kernel has received, which costs a
     * system call. Otherwise HTTP/2 counts the stream's content that its windows have let
     * through. */
    uint64_t (*taken)(const struct downstream *d, bool exactly);

    /* Optional (NULL): moves content within the kernel. splice_body: from the client to `to`; sets
     * `moved->size` and `moved->last`. splice_from: from `from`, with its state in `reader`, to the
     * client. Otherwise as body_splice(). */
    bool (*splice_body)(struct downstream *d, struct stream *to, enum body_status *status,
                        enum sent *sent, struct content_piece *moved);
    bool (*splice_from)(struct downstream *d, struct body_reader *reader, struct stream *from,
                        enum body_status *status, enum downstream_sent *sent);

    /* The exchange is over and does not use `d` again. */
    void (*end)(struct downstream *d, enum downstream_end how);
};

enum { DOWNSTREAM_PIECES_MAX = 20 };

struct downstream {
    const struct downstream_ops *ops;
    struct worker *worker;
    const struct client_origin *origin;
    struct exchange *exchange; /* NULL: none; set and cleared by the exchange */
    bool pending;              /* accepted output was not sent yet; set by the protocol */
};

#endif
