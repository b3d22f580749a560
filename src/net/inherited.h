/* inherited.h - listening sockets that systemd passes to the process at start (socket activation,
 * sd_listen_fds(3)). systemd keeps them open when weir restarts, so connections wait in their
 * queues and none is refused. */
#ifndef WEIR_NET_INHERITED_H
#define WEIR_NET_INHERITED_H

#include "net/address.h"

struct inherited_socket {
    int fd;                 /* -1: taken */
    char *name;             /* FileDescriptorName= */
    struct address address; /* that it is bound to */
};

struct inherited {
    struct inherited_socket *sockets;
    unsigned count;
};

/* Receives the sockets, makes them non-blocking, and removes them from the environment. There are
 * none in builds without libsystemd. On failure (out of memory, or a socket that does not listen
 * for streams) returns false and sets `*why` (static text). Call inherited_clear() in any case. */
MUST_CHECK bool inherited_receive(struct inherited *inherited, const char **why);

/* Finds the socket for `wanted`: the one called `name`; or else the one bound to this address; or
 * else, for 0.0.0.0, the one bound to [::] with the same port, which also accepts IPv4. Sets
 * `*wanted` to its address. Returns its descriptor, which the caller then owns; -1: none. */
int inherited_take(struct inherited *inherited, const char *name, struct address *wanted);

/* Returns the first socket that was not taken; NULL: none. */
const struct inherited_socket *inherited_left(const struct inherited *inherited);

/* Closes the sockets that were not taken. */
void inherited_clear(struct inherited *inherited);

#endif
