/* client.h - a client connection of any protocol, from accept to close: slot, list, deadline and
 * origin. How bytes reach it belongs to its protocol (socket_client.h: by a socket of its own).
 *
 *   HEAD -> EXCHANGE -+-> IDLE -> HEAD        the next request
 *     \        \      +-> DRAIN -> IDLE       early response: drop the rest of the request body
 *      \        \     `-> LINGER -> CLOSED    last response sent; read until the client closes
 *       `--------`---------------> CLOSED
 *
 * A newly accepted connection is `silent` until its first byte arrives. */
#ifndef WEIR_DOWNSTREAM_CLIENT_H
#define WEIR_DOWNSTREAM_CLIENT_H

#include "base/clock.h"
#include "downstream/downstream_worker.h"
#include "net/address.h"
#include "proxy/downstream.h"

enum { CLIENT_MAGIC = 0x434c4954 };

enum client_state {
    CLIENT_HEAD, /* or what comes before it: PROXY protocol header, handshake */
    CLIENT_EXCHANGE,
    CLIENT_IDLE,
    CLIENT_DRAIN,
    CLIENT_LINGER,
    CLIENT_CLOSED
};

struct client;

/* What a protocol does with its connections. Each function without const may close it. */
struct client_protocol {
    /* Returns whether input waits that this loop iteration or the next handles. */
    bool (*has_input)(const struct client *client);
    void (*head_timed_out)(struct client *client); /* timeouts.request_header has passed */
    void (*idle_timed_out)(struct client *client); /* timeouts.keepalive has passed */
    void (*stop)(struct client *client);           /* begins the graceful end */
    /* Ends all requests by force; see exchange_cut(). */
    void (*cut)(struct client *client, enum cause cause);
    /* Optional (NULL). Returns whether weir holds unsent output, and every request waits for the
     * client to take its response. `*taken`: as in struct downstream_ops, exactly. */
    bool (*awaits_reader)(const struct client *client, uint64_t *taken);
    /* Returns the memory of the buffers of all requests, in bytes. Raises `*still_us` to the time
     * for which the one of them has not moved that has stood still longest. */
    size_t (*memory)(const struct client *client, uint64_t now_us, uint64_t *still_us);
    /* Resets the requests with buffers, with CAUSE_MEMORY_LIMIT; without requests, closes the
     * connection. Returns the number of requests. */
    unsigned (*shed)(struct client *client);
    /* Optional (NULL). Returns whether the listener would verify the client now as it has done. */
    bool (*is_verified)(const struct client *client);
    /* Called by client_close(): ends what is left, and releases all but the struct. */
    void (*end)(struct client *client);
    void (*free)(struct client *client); /* the loop iteration has ended: releases the struct */
};

struct client {
    uint32_t magic;
    enum client_state state;
    const struct client_protocol *protocol;
    struct worker *worker;
    struct client_origin origin;
    struct deadline deadline;
    TAILQ_ENTRY(client) link;   /* the list of its state, or worker->closed */
    uint32_t opened_ms;         /* time of accept; monotonic, wraps around */
    uint32_t since_ms;          /* time when it became idle or lingering; the same clock */
    struct {                    /* of slow_clients.c */
        uint64_t taken;         /* the client's count at the last look */
        uint32_t paid_until_ms; /* what it took pays for this time */
        uint32_t sweep;         /* of the last look at which it awaited its reader */
        bool is_slow;
    } slow;
    struct timer expiry; /* of verification.c */
    bool ends;           /* serves no further request: its verification has ended */
    bool silent;         /* no byte was received yet */
    bool counted;        /* counted in the connections of its peer's address */
};

/* ---- for protocols --------------------------------------------------------------------------- */

/* Begins a connection of `peer` in a struct that is zeroed except for `protocol`. Its slot was
 * taken (handoff.h). `counted`: it is counted for the address. Its deadline is that of a head. */
void client_begin(struct client *client, struct worker *worker, const struct address *peer,
                  bool counted);
/* Changes the state and moves the connection to the worker's list for that state. */
void client_enter(struct client *client, enum client_state state);
/* Clears `silent`: the first byte or the end of the stream was received. */
void client_speaks(struct client *client);
/* Ends the connection: frees its slot, and its struct after the loop iteration. May be called
 * twice. */
void client_close(struct client *client);
/* Returns whether the next response must be the last: all slots are taken, other connections
 * wait, and this one has been open for at least 1 s. */
bool client_gives_way(const struct client *client);

/* verification.c: ends the connection when origin.certificate expires. Returns false if out of
 * memory. */
MUST_CHECK bool client_await_expiry(struct client *client);

/* Returns monotonic milliseconds; wraps around. */
static inline uint32_t client_now_ms(void)
{
    return (uint32_t)(clock_cached_us() / 1000);
}

/* Returns the time since `since_ms`. */
static inline uint64_t client_since_us(const struct client *client)
{
    return (uint64_t)(client_now_ms() - client->since_ms) * 1000;
}

/* The state of a protocol in a worker begins with this. */
struct protocol_worker {
    struct protocol_worker *next;
    /* Writes the output of a loop iteration and frees what has ended. */
    void (*flush)(struct protocol_worker *protocol);
    void (*free)(struct protocol_worker *protocol);
};

/* Adds the state to the worker, which calls and frees it. */
void clients_add_protocol(struct worker *worker, struct protocol_worker *protocol);

/* ---- of a worker ----------------------------------------------------------------------------- */

/* Begins a graceful stop: closes idle connections now, others after their response. */
void clients_stop(struct worker *worker);
/* Closes all connections: timeouts.shutdown has passed. Those with a request that gets 503 stay
 * open until it is sent, for at most two further calls. */
void clients_cut(struct worker *worker);
/* Returns the connection to close to make room, or NULL. The order is:
 * - the oldest one that has not sent a byte;
 * - the one that has been idle longest;
 * - the one that has lingered longest;
 * - if `for_slot`, the one whose head has been incomplete longest;
 * - if `for_slot`, the one whose client takes its responses most slowly (slow_clients.c).
 * New and recently served connections are not closed (see client.c). */
struct client *client_to_evict(struct worker *worker, bool for_slot);
/* slow_clients.c: returns the connection to evict because its client takes less than
 * timeouts.send_min_rate, or NULL. Call when slots are short. */
struct client *slow_clients_slowest(struct worker *worker);
/* Ends the requests by force, or closes the connection if there is none. */
void client_cut(struct client *client, enum cause cause);
/* Closes the connection to make room, and counts the eviction. */
void client_evict(struct client *client);
/* verification.c; call after a reload. Connections whose listener verifies its clients differently
 * now end: idle ones at once, others after their responses, all after timeouts.shutdown. */
void clients_verify_again(struct worker *worker);
void verification_init(struct worker *worker);
/* Calls `visit` for each connection. It may close the connection, or change its state. */
void clients_for_each(struct worker *worker, void (*visit)(struct client *client, void *context),
                      void *context);
/* Returns whether any connection is open. */
bool clients_any(const struct worker *worker);

/* Writes the output of this loop iteration. */
void clients_flush(struct worker *worker);
/* Recycles the structs of connections closed in this loop iteration. */
void clients_free_closed(struct worker *worker);

/* Creates and frees worker->downstream. False: no memory or descriptor; call clients_free(). */
MUST_CHECK bool clients_init(struct worker *worker);
void clients_free(struct worker *worker);

/* ---- acceptor.c: a worker's listeners -------------------------------------------------------- */

/* All functions run in the worker's own thread, or before it starts and after it has ended. */

/* Creates the listeners for `fds[0 .. policy->listen_count)`; -1: other workers accept for this
 * one. Takes over the sockets. False: no memory, and the sockets stay the caller's. */
MUST_CHECK bool listeners_init(struct worker *worker, const int *fds);
/* Starts accepting, and receiving connections of other workers. */
void listeners_start(struct worker *worker);
/* Opens the connections that other workers passed to this one. */
void listeners_receive(struct worker *worker);
/* Ends the pause in accepting if slots are free again. */
void listeners_resume(struct worker *worker);
/* Ends accepting. Connections that wait in the kernel are opened before, except those of inherited
 * sockets, which the next process accepts. */
void listeners_close(struct worker *worker);
void listeners_free(struct worker *worker);

/* ---- shedding.c: memory is short ------------------------------------------------------------- */

/* Resets requests of the worker's connections with the highest products, until the buffers of the
 * process use less than 95 % of the limit or none of this worker's is left. Logs what it did. */
void clients_shed(struct worker *worker);
/* Frees the memory of closed connections that was not needed since the last call. */
void clients_trim(struct worker *worker);

#endif
