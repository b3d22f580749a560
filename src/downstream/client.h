/* client.h - a client connection from accept to close: TLS, PROXY protocol header, HTTP/1.1 with
 * keep-alive. It runs one exchange at a time, as the exchange's downstream (http1.c).
 *
 *   PROXY_HEADER -> HANDSHAKE -> HEAD         if the listener uses the PROXY protocol, or TLS
 *   HEAD -> EXCHANGE -+-> IDLE -> HEAD        the next request (pipelined bytes wait in stream.in)
 *     \        \      +-> DRAIN -> IDLE       early response: drop the rest of the request body
 *      \        \     `-> LINGER -> CLOSED    last response sent; read until the client closes
 *       `--------`---------------> CLOSED
 *
 * A newly accepted connection is `silent` until its first byte arrives. */
#ifndef WEIR_DOWNSTREAM_CLIENT_H
#define WEIR_DOWNSTREAM_CLIENT_H

#include "downstream/downstream_worker.h"
#include "net/address.h"
#include "net/stream.h"
#include "proxy/downstream.h"

enum client_state {
    CLIENT_PROXY_HEADER,
    CLIENT_HANDSHAKE,
    CLIENT_HEAD,
    CLIENT_EXCHANGE,
    CLIENT_IDLE,
    CLIENT_DRAIN,
    CLIENT_LINGER,
    CLIENT_CLOSED
};

/* HTTP/1.1: state of the request under way and of its response. */
struct http1 {
    struct body_reader request;
    uint8_t minor;         /* HTTP/1.minor of the request */
    bool keep_alive;       /* the client accepts another response on this connection */
    bool accepts_trailers; /* TE: trailers */
    bool expects_continue; /* Expect: 100-continue */
    bool continued;        /* 100 (Continue) was sent */
    bool end_unknown;      /* it is malformed: the start of the next request is unknown */
    bool wants_body;       /* the exchange reads content; else it stays in stream.in */
    bool close;            /* the response announced the close */
    bool chunked;          /* encoding of the response's content */
    bool until_close;      /* it ends with the connection */
    bool response_ended;   /* the server's response was accepted; stream.out may hold some of it */
    bool tunnel;           /* after 101 */
};

struct client;

/* What a protocol does with a connection in CLIENT_HEAD, CLIENT_EXCHANGE and CLIENT_IDLE. Each
 * function may close it. */
struct client_protocol {
    /* `closed`: the client's FIN or reset was reported while reading was paused. */
    void (*readable)(struct client *client, bool closed);
    void (*writable)(struct client *client);
    /* In CLIENT_DRAIN: the rest of the request was dropped. NULL: never enters that state. */
    void (*drained)(struct client *client);
    void (*head_timed_out)(struct client *client);        /* timeouts.request_header has passed */
    void (*idle_timed_out)(struct client *client);        /* timeouts.keepalive has passed */
    void (*stop)(struct client *client);                  /* begins the graceful end */
    void (*cut)(struct client *client, enum cause cause); /* ends all requests by force */
    /* Optional (NULL). Returns whether weir holds unsent output, and every request waits for the
     * client to take its response. `*taken`: as in struct downstream_ops, exactly. */
    bool (*awaits_reader)(const struct client *client, uint64_t *taken);
    /* Returns the memory of the buffers of all requests, in bytes. Raises `*still_us` to the time
     * for which the one of them has not moved that has stood still longest. */
    size_t (*memory)(const struct client *client, uint64_t now_us, uint64_t *still_us);
    /* Resets the requests with buffers, with CAUSE_MEMORY_LIMIT; without requests, closes the
     * connection. Returns the number of requests. */
    unsigned (*shed)(struct client *client);
    void (*end)(struct client *client); /* called by client_close(); NULL: nothing */
};

struct client {
    uint32_t magic;
    enum client_state state;
    const struct client_protocol *protocol;
    struct worker *worker;
    struct downstream downstream; /* downstream.exchange is set in CLIENT_EXCHANGE */
    struct client_origin origin;
    struct stream stream;
    struct deadline deadline;
    TAILQ_ENTRY(client) link;   /* the list of its state, or worker->closed */
    struct http1 http1;         /* in CLIENT_EXCHANGE and CLIENT_DRAIN */
    uint32_t scanned;           /* bytes of stream.in that request_head_read has scanned */
    uint32_t opened_ms;         /* time of accept; monotonic, wraps around */
    uint32_t since_ms;          /* time when it became idle or lingering; the same clock */
    struct {                    /* of slow_clients.c */
        uint64_t taken;         /* the client's count at the last look */
        uint32_t paid_until_ms; /* what it took pays for this time */
        uint32_t sweep;         /* of the last look at which it awaited its reader */
        bool is_slow;
    } slow;
    uint64_t dropped;               /* bytes dropped in DRAIN or LINGER */
    struct http2_connection *http2; /* NULL: HTTP/1.1; then `http1` and `downstream` are used */
    uint16_t listener;              /* index in the policy */
    bool unread;                    /* stream.in holds bytes that were not parsed yet */
    bool may_be_http2;              /* its first bytes may be the preface of HTTP/2 */
    bool silent;                    /* no byte was received yet */
    bool counted;                   /* counted in the connections of its peer's address */
};

/* Opens a connection on `fd`, which it takes over. `listener` is the index in the policy.
 * `counted`: the connection is counted for the address of `peer`. Returns false, with `fd` closed,
 * if there is no memory. */
bool client_open(struct worker *worker, int fd, const struct address *peer, unsigned listener,
                 bool counted);

void client_close(struct client *client);

/* Begins a graceful stop: closes idle connections now, others after their response. */
void clients_stop(struct worker *worker);
/* Closes all connections: timeouts.shutdown has passed. */
void clients_cut(struct worker *worker);
/* Returns whether the next response must be the last: all slots are taken, other connections
 * wait, and this one has been open for at least 1 s. */
bool client_gives_way(const struct client *client);
/* Returns the connection to close to make room, or NULL. The order is:
 * - the oldest one that has not sent a byte;
 * - the one that has been idle longest;
 * - the one that has lingered longest;
 * - if `for_slot`, the one whose head has been incomplete longest;
 * - if `for_slot`, the one whose client takes its responses most slowly (slow_clients.c).
 * New and recently served connections are not closed (see client_lists.c). */
struct client *client_to_evict(struct worker *worker, bool for_slot);
/* Returns whether any connection is open. */
bool clients_any(const struct worker *worker);
/* Closes the connection to make room, and counts the eviction. */
void client_evict(struct client *client);

/* Recycles the structs of connections closed in this loop iteration. */
void clients_free_closed(struct worker *worker);

/* Creates and frees worker->downstream. False: no memory or descriptor; call clients_free(). */
MUST_CHECK bool clients_init(struct worker *worker);
void clients_free(struct worker *worker);

#endif
