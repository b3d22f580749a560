/* client_internal.h - shared by client.c, client_lists.c, linger.c and http1*.c. */
#ifndef WEIR_DOWNSTREAM_CLIENT_INTERNAL_H
#define WEIR_DOWNSTREAM_CLIENT_INTERNAL_H

#include "base/clock.h"
#include "downstream/client.h"

enum { CLIENT_MAGIC = 0x434c4954 };

/* Returns monotonic milliseconds; wraps around. */
static inline uint32_t client_now_ms(void)
{
    return (uint32_t)(clock_cached_us() / 1000);
}

/* Changes the state and moves the connection to the worker's list for that state. */
void client_enter(struct client *client, enum client_state state);
/* Inserts a new connection into the list of its state. */
void client_list_insert(struct client *client);

/* Clears `silent`: the first byte or the end of the stream was received. */
void client_speaks(struct client *client);

/* slow_clients.c: returns the connection to evict because its client takes less than
 * timeouts.send_min_rate, or NULL. Call when slots are short. */
struct client *slow_clients_slowest(struct worker *worker);

/* http1.c: the protocol of a new connection, and the downstream of its request. */
extern const struct client_protocol http1_protocol;
extern const struct downstream_ops http1_ops;

/* http1_head.c: reads a head and begins its exchange. May close the connection. */
void http1_read_head(struct client *client);
/* Refuses a request of which weir has no head, with 400. `why` is static. May close the
 * connection. */
void http1_refuse(struct client *client, const char *why);
/* timeouts.request_header has passed. */
void http1_head_timed_out(struct client *client);
/* Waits for the next request, or starts with one that is already buffered. */
void http1_await_request(struct client *client);

/* Starts the lingering close after the last response. Shuts down the sending side, then reads
 * and drops input until the client closes. Closing with unread input would reset the connection,
 * and the reset may destroy the response in transit (RFC 9112 section 9.6). May close the
 * connection. */
void linger_begin(struct client *client);
/* Reads and drops the rest of the request, whose response was sent. Then awaits the next request.
 * May close the connection. */
void linger_drain(struct client *client);
/* Handles input in CLIENT_DRAIN or CLIENT_LINGER. */
void linger_readable(struct client *client);
/* Shortens the remaining time of lingering connections: the worker stops. */
void linger_stop(struct worker *worker);
void linger_init(struct worker *worker);

#endif
