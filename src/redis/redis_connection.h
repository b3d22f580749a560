/* redis_connection.h - a connection to one server for everything except limit decisions: queries to
 * sentinels and cluster nodes, and pub/sub.
 *
 * It connects, logs in, sends commands, and passes every reply and pushed message to the
 * callbacks in order, until either side closes the connection. Callers set their own timeouts. */
#ifndef WEIR_REDIS_REDIS_CONNECTION_H
#define WEIR_REDIS_REDIS_CONNECTION_H

#include <event2/event.h>

#include "base/macros.h"
#include "policy/redis_settings.h"
#include "redis/failure.h"
#include "redis/redis_reply.h"

struct redis_connection;

struct redis_connection_callbacks {
    /* Runs from the event loop; may free the connection. An AUTH error is passed on like any
     * reply, a successful AUTH reply is not. The reply is freed afterwards, except for what
     * redis_reply_move() has taken. */
    void (*received)(void *context, struct redis_reply *reply);
    /* The connection is closed: free it. */
    void (*lost)(void *context, const char *why);
    void *context;
};

/* Starts to connect, with TLS if `settings` say so; they must outlive the connection. `password`
 * NULL: no login; `username` NULL: the default user. Returns NULL with errno (0: no memory) if the
 * attempt fails immediately. No callback runs from inside. */
struct redis_connection *redis_connection_new(struct event_base *base,
                                              const struct redis_settings *settings,
                                              const struct address *address, const char *username,
                                              const char *password,
                                              const struct redis_connection_callbacks *callbacks);

/* Sends a command; also allowed before the connection is established. `sizes` NULL: the arguments
 * end with a NUL. Returns false if out of memory. */
MUST_CHECK bool redis_connection_send(struct redis_connection *connection, int argc,
                                      const char *const *argv, const size_t *sizes);

/* Returns the cause, for a caller that has waited for too long. */
const char *redis_connection_timeout(const struct redis_connection *connection);
/* Returns the class of the cause: in lost(), or after a wait (`timed_out`). CONNECT if it is none
 * of TLS or of the format of replies. */
enum redis_failure redis_connection_failure(const struct redis_connection *connection,
                                            bool timed_out);

/* Also allowed from inside received() and lost(). NULL is allowed. */
void redis_connection_free(struct redis_connection *connection);

#endif
