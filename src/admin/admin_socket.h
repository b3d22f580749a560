/* admin_socket.h - the socket of one admin listener, served by evhttp. Bounds the size and the time
 * of requests, and pauses while the process has no file descriptor left. */
#ifndef WEIR_ADMIN_ADMIN_SOCKET_H
#define WEIR_ADMIN_ADMIN_SOCKET_H

#include <event2/event.h>
#include <event2/http.h>

#include "admin/metrics.h"
#include "net/tls.h"

struct admin_socket;

/* Calls `handle` for every request on the listening socket `fd` of admin listener `index` of
 * view->policy, with TLS if the listener has it. `index` is passed on. Takes ownership of `fd`
 * unless it returns NULL: no memory. */
struct admin_socket *
admin_socket_new(struct event_base *base, int fd, const struct admin_view *view, unsigned index,
                 void (*handle)(void *context, unsigned index, struct evhttp_request *request),
                 void *context);
/* Returns the number of failed handshakes of admin listener `index`. */
uint64_t admin_socket_failures(unsigned index, enum tls_failure failure);
/* Closes the socket and all connections. Requests under way must have been answered. */
void admin_socket_free(struct admin_socket *socket);

#endif
