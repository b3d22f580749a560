/* client_internal.h - what the files of a client's connection, client.c, client_lists.c and linger.c, share. */
#ifndef WEIR_PROXY_CLIENT_INTERNAL_H
#define WEIR_PROXY_CLIENT_INTERNAL_H

#include "proxy/client.h"

enum { CLIENT_MAGIC = 0x434c4954 };

/* Monotonic milliseconds; wraps around. */
uint32_t client_now_ms(void);

/* Changes the state, and moves the connection to the worker's list of that state. */
void client_enter(struct client *client, enum client_state state);
/* Puts a new connection into the list of its state; takes one that closes out of its list. */
void client_list_insert(struct client *client);
void client_list_remove(struct client *client);

/* Its first byte, or its end, has come. */
void client_speaks(struct client *client);

/* Waits for the next request, or begins with the one that is here already. */
void client_await_request(struct client *client);

/* The last answer was sent. Ends weir's side, then reads and drops what the client still sends until it closes: closing
 * with unread input would reset the connection, and the reset may destroy the answer on its way (RFC 9112 section 9.6).
 * May close the connection. */
void linger_begin(struct client *client);
/* The answer was sent, and `request` has not ended: reads and drops the rest, then awaits the next request. May close
 * the connection. */
void linger_drain(struct client *client, const struct message_body *request);
/* There is input, in CLIENT_DRAIN or CLIENT_LINGER. */
void linger_readable(struct client *client);
/* The worker stops: what lingers has a short time left. */
void linger_stop(struct worker *worker);
void linger_init(struct worker *worker);

#endif
