/* listener.h - listening sockets. Each worker has its own socket on the same address
 * (SO_REUSEPORT), so that the kernel distributes connections. */
#ifndef WEIR_NET_LISTENER_H
#define WEIR_NET_LISTENER_H

#include "net/address.h"

enum {
    LISTENER_BACKLOG = 4096,
    UNSENT_MAX = 128 * 1024 /* 0.1 s at 10 Mbit/s */
};

/* Opens `count` non-blocking listening sockets for `address` into `fds`: all or none. If the port
 * is 0, the kernel chooses one and `address` is updated. A Unix socket is opened once and shared
 * with dup(): a stale file is replaced, one in use is refused. On failure, returns false and sets
 * errno and `*why`, the name of the failed call. */
MUST_CHECK bool listener_open(struct address *address, unsigned count, int *fds, const char **why);

/* Returns what to do about this errno of listener_open(), beginning with "; ". "": unknown. */
const char *listener_remedy(int error);

/* Removes the file of a Unix socket. Does nothing for other addresses. */
void listener_unlink(const struct address *address);

/* Sets TCP_NODELAY on a TCP socket; accepted sockets have that of their listening one. Does nothing
 * for Unix sockets. */
void socket_set_options(int fd, const struct address *peer);

/* Lets the kernel store at most UNSENT_MAX bytes that it cannot send yet, for a TCP connection with
 * several responses: the next one waits behind these bytes. Does nothing for Unix sockets. */
void socket_limit_unsent(int fd);

#endif
