/* http2_upstream.h - HTTP/2 to servers: a connection carries the links of many exchanges.
 *
 *   http2_pool.c        a server's connections, and the links that wait for one
 *   http2_connection.c  a connection: its session (http2/client_session.h), input, output, end
 *   http2_link.c        a link: a stream of a connection
 *   http2_response.c    its response
 *
 *   connection_dial() -> TCP, TLS with ALPN -> preface -> the server's SETTINGS: open -> links
 *
 * A link waits in its server's list until a connection has room for a stream. A connection is open
 * when the server's SETTINGS have arrived: until then weir cannot tell whether the
 * server uses HTTP/2, nor how many streams it allows. If the open connections are full, weir dials
 * another one. After a GOAWAY a connection gets no more links, and is closed with its last one. */
#ifndef WEIR_UPSTREAM_HTTP2_UPSTREAM_H
#define WEIR_UPSTREAM_HTTP2_UPSTREAM_H

#include "upstream/link.h"

struct connection;
struct http2_connection;
struct pool;
struct server;
struct upstream_tries;
struct upstream_worker;

/* Returns a link for `owner`: ready, or waiting; connected() or connect_failed() then follow. With
 * protocol auto it may be one of HTTP/1.1. NULL with errno: no connection could be dialed. */
struct link *http2_take(struct server *server, struct link_owner *owner, bool fresh,
                        struct upstream_tries *tries);

/* Dials a connection, also to probe an ejected server. NULL with errno on failure. */
struct connection *http2_dial(struct server *server, bool probe);

/* The connection gets no more links, and is closed with its last one. */
void http2_connection_idle(struct http2_connection *h);

/* Has the server's open connections without links closed by the next flush. Returns whether there
 * were any. */
bool http2_retire_idle(struct server *server);
/* Closes the connections of a pool that has no links. */
void http2_close_all(struct pool *pool);

void http2_upstreams_init(struct upstream_worker *worker, struct deadlines *deadlines);
void http2_upstreams_free(struct upstream_worker *worker);
/* Writes the output of this loop iteration, and calls the owners of links that can read. */
void http2_upstreams_flush(struct upstream_worker *worker);
void http2_upstreams_free_ended(struct upstream_worker *worker);

#endif
