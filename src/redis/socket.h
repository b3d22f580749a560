/* socket.h - a connection to Redis as a socket: by address alone, and with what keeps it honest. */
#ifndef WEIR_REDIS_SOCKET_H
#define WEIR_REDIS_SOCKET_H

#include <hiredis/async.h>

#include "net/address.h"

/* Starts to connect. NULL, or its `err` is set: it cannot even be tried. */
redisAsyncContext *redis_socket_dial(const struct address *address);

/* Small writes leave at once, and a peer that is gone is noticed: nothing on unix sockets. */
void redis_socket_options(int fd, const struct address *address);

/* The error with which a server has closed a connection that could not be written to any more, such as that it has too many.
 * False: there is none. */
bool redis_socket_last_words(int fd, char *words, size_t size);

#endif
