/* socket.h - opens hiredis connections by address, and sets socket options. */
#ifndef WEIR_REDIS_SOCKET_H
#define WEIR_REDIS_SOCKET_H

#include <hiredis/async.h>

#include "net/address.h"

/* Fills the reserve of the process (hiredis_memory.c), before redisAsyncConnect(). Returns false if
 * out of memory: then that function must not be called. */
MUST_CHECK bool hiredis_memory_reserve(void);

/* Starts to connect. Returns NULL or a context whose `err` is set if the attempt fails
 * immediately. */
redisAsyncContext *redis_socket_dial(const struct address *address);

/* Opens a non-blocking socket and starts to connect it. Returns -1 with errno on failure. */
int redis_socket_open(const struct address *address);

/* Returns a duplicate of the context's socket, or -1 with errno. */
int redis_socket_duplicate(const redisAsyncContext *ac);
/* Makes the context use the connected socket `fd` in place of its own. Takes ownership of both,
 * also on failure. Call before the context is attached. Returns NULL if out of memory. */
redisAsyncContext *redis_socket_replace(redisAsyncContext *ac, int fd);

/* Sets TCP_NODELAY and keepalive, so that dead peers are detected. Does nothing for Unix
 * sockets. */
void redis_socket_options(int fd, const struct address *address);

/* Copies the error reply that the server sent before it closed the connection, such as "max
 * number of clients reached". Returns false if there is none. */
bool redis_socket_last_words(int fd, char *words, size_t size);

#endif
