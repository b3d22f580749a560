/* health_http2.h - a health check over HTTP/2: one request on a session of its own.
 *
 * For gRPC: a call of grpc.health.v1.Health/Check (doc/health-checking.md in
 * github.com/grpc/grpc). */
#ifndef WEIR_UPSTREAM_HEALTH_HTTP2_H
#define WEIR_UPSTREAM_HEALTH_HTTP2_H

#include "net/iobuf.h"

struct health_http2;

#define HEALTH_GRPC_PATH "/grpc.health.v1.Health/Check"

/* Begins a session and opens a stream for `request`, a head of HTTP/1.1. Output is appended to
 * `*out`, which is taken from `pool`. `grpc`: the service to ask for, at most HEALTH_SERVICE_MAX
 * bytes; NULL: the request has no content. `secure`: over TLS. Returns NULL if there is no
 * memory. */
MUST_CHECK struct health_http2 *health_http2_begin(struct iobuf_pool *pool, struct iobuf **out,
                                                   struct slice request, const char *grpc,
                                                   bool secure);
/* Processes input, and produces output. */
void health_http2_receive(struct health_http2 *h, struct slice bytes);
/* Returns the status of the response; 0: none yet. `*why`: the failure (static text), or NULL. */
unsigned health_http2_status(const struct health_http2 *h, const char **why);
/* Returns whether the result of a gRPC call is known. `*why`: NULL if the service is SERVING, else
 * the failure (static text). */
bool health_http2_serving(const struct health_http2 *h, const char **why);
void health_http2_free(struct health_http2 *h); /* NULL is allowed */

#endif
