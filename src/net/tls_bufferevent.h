/* tls_bufferevent.h - TLS of a listener for evhttp, which needs a bufferevent. */
#ifndef WEIR_NET_TLS_BUFFEREVENT_H
#define WEIR_NET_TLS_BUFFEREVENT_H

#include <event2/bufferevent.h>

#include "net/tls.h"

/* So many handshakes are under way at once even if the process has no memory. There are more while
 * they use less than an eighth of size_limits.memory. Then the oldest is closed for a new one. */
enum { TLS_BUFFEREVENTS_ADMITTED = 16 };

/* Returns a bufferevent without a socket, which accepts TLS when it gets one. It holds `server`.
 * `failed` is called once if the handshake fails, also by a timeout of the bufferevent, because the
 * client has closed the connection, or because a new one took its place. `fd` may be closed then.
 * libevent may call it later than it frees the bufferevent. Main thread only. Returns NULL if out
 * of memory. */
struct bufferevent *tls_bufferevent_new(struct event_base *base, struct tls_server *server,
                                        void (*failed)(void *context, evutil_socket_t fd,
                                                       enum tls_failure failure),
                                        void *context);
/* Returns whether a certificate or list has expired by which the client was verified. */
bool tls_bufferevent_has_expired(struct bufferevent *bufferevent);
/* Returns whether the bufferevent uses TLS, and `server` would verify its client as it was
 * verified. */
bool tls_bufferevent_is_verified(struct bufferevent *bufferevent, const struct tls_server *server);

#endif
