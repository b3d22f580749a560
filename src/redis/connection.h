/* redis_connection.h - a conversation with one server beside the path of decisions: what sentinels and cluster nodes
 * are asked about themselves, and what is published on a channel.
 *
 * It connects, logs in, says what it is told and passes every answer and pushed message on, in order, until
 * either side hangs up. Patience is its user's. */
#ifndef WEIR_REDIS_CONNECTION_H
#define WEIR_REDIS_CONNECTION_H

#include <event2/event.h>
#include <hiredis/hiredis.h>

#include "base/macros.h"
#include "net/address.h"

struct redis_connection;

struct redis_connection_callbacks {
    /* From the event loop; may free the talk. Errors to the login come as answers like any other, its
     * success does not. */
    void (*received)(void *context, const redisReply *reply);
    /* It is over: free it. */
    void (*lost)(void *context, const char *why);
    void *context;
};

/* Starts to connect. `password` NULL: no login; `username` NULL: the default user. NULL: it cannot even be tried.
 * Nothing is heard from inside. */
struct redis_connection *redis_connection_new(struct event_base *base, const struct address *address,
                                              const char *username, const char *password,
                                              const struct redis_connection_callbacks *callbacks);

/* At any time, also before it is connected. False: no memory. */
MUST_CHECK bool redis_connection_send(struct redis_connection *connection, int argc, const char *const *argv);

/* Also from inside received() and lost(). NULL is allowed. */
void redis_connection_free(struct redis_connection *connection);

#endif
