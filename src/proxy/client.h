/* client.h - a client's connection, from accept to close: reads heads, holds one exchange at a time, keeps alive.
 *
 *   PREFACE -> HANDSHAKE -> HEAD              where the listener speaks the PROXY protocol, or TLS
 *   HEAD -> EXCHANGE -+-> IDLE -> HEAD        the next request (pipelined bytes wait in stream.in)
 *     \        \      +-> DRAIN -> IDLE       an early answer: what is left of the content is read and dropped
 *      \        \     `-> LINGER -> CLOSED    the last answer was sent; read until the client has seen it
 *       `--------`---------------> CLOSED
 *
 * A connection that was just accepted is `silent` until its first byte. */
#ifndef WEIR_PROXY_CLIENT_H
#define WEIR_PROXY_CLIENT_H

#include "net/address.h"
#include "net/stream.h"
#include "proxy/relay.h"
#include "proxy/worker_internal.h"

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

struct client {
    uint32_t magic;
    enum client_state state;
    struct worker *worker;
    struct exchange *exchange; /* in CLIENT_EXCHANGE */
    struct stream stream;
    struct deadline deadline;
    TAILQ_ENTRY(client) link; /* the list of its state, or list of closed objects */
    struct message_body
        *draining;      /* DRAIN: the rest of a request's content; else NULL: most connections are idle */
    uint32_t scanned;   /* of stream.in, by request_head_read */
    uint32_t opened_ms; /* since when it is open; monotonic, and wraps around */
    uint32_t since_ms;  /* since when it is idle or lingering; the same */
    uint64_t dropped;   /* bytes dropped in DRAIN or LINGER */
    uint16_t listener;  /* its index in the policy */
    bool unread;        /* stream.in holds bytes that no head was looked for in */
    bool silent;        /* it has not sent a byte */
    bool counted;       /* among the connections of its peer's address */
    struct peer peer;   /* the socket's, or whom the PROXY header names */
    bool peer_unknown;  /* the PROXY header names nobody, and the proxy does not speak for itself */
};

/* Takes over `fd`, from the policy's listener of this index; `counted`: among the connections of `peer`.
 * False: no memory; the fd is closed. */
bool client_open(struct worker *worker, int fd, const struct address *peer, unsigned listener, bool counted);

/* How a finished exchange leaves the connection. */
enum client_after {
    CLIENT_KEEP,      /* read the next request, after draining `request` when it has not ended */
    CLIENT_LINGER_ON, /* the last answer was sent whole; close once the client has it */
    CLIENT_CLOSE, /* close at once: nothing more can come, the message must not look whole, or the client is
                     gone */
    CLIENT_RESET  /* the same, with a reset */
};

/* The exchange has ended and no longer exists for the client. `request` tells how much of its content was
 * read. */
void client_exchange_ended(struct client *client, enum client_after after,
                           const struct message_body *request);

void client_close(struct client *client);

/* Stopping: idle connections close now, others after their answer. */
void clients_stop(struct worker *worker);
/* Time is up: everything closes. */
void clients_cut(struct worker *worker);
/* Others wait for a place, and this connection has had its turn: its next answer is to be its last. */
bool client_gives_way(const struct client *client);
/* The connection to close to make room: one that has not sent a byte, else the one that has been idle for longest, else
 * the one that has lingered for longest, else, `for_a_place`, the one whose head has been incomplete for longest. A connection that
 * came, or was served, a moment ago is not closed. NULL: there is none. */
struct client *client_to_evict(const struct worker *worker, bool for_a_place);
/* Is any connection open? */
bool clients_any(const struct worker *worker);
/* Closes it to make room. */
void client_evict(struct client *client);

/* Frees what was closed in this turn; and at the very end the pooled structs. */
void clients_free_closed(struct worker *worker);
void clients_free(struct worker *worker);

void clients_init(struct worker *worker);

#endif
