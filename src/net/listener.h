/* listener.h - listening sockets. Every worker has its own on the same address (SO_REUSEPORT), so that the
 * kernel spreads connections. */
#ifndef WEIR_NET_LISTENER_H
#define WEIR_NET_LISTENER_H

#include "net/address.h"

enum { LISTENER_BACKLOG = 4096 };

/* Opens `count` non-blocking listening sockets for `address` into `fds`: all of them or none. With port 0 the
 * kernel chooses, and `address` is updated. A unix socket is opened once and shared (dup): a stale file is
 * replaced, a live one is refused. False: `*why` says which call failed, errno why. */
MUST_CHECK bool listener_open(struct address *address, unsigned count, int *fds, const char **why);

/* Removes the file of a unix socket; nothing for others. */
void listener_unlink(const struct address *address);

/* Options for an accepted or a connecting TCP socket: TCP_NODELAY. Nothing for unix sockets. */
void socket_set_options(int fd, const struct address *peer);

#endif
