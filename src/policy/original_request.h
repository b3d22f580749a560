/* original_request.h - the request that another proxy asks a decision about.
 *
 * The proxy names it in fields of its own request: nginx (auth_request), Traefik (ForwardAuth),
 * Caddy (forward_auth), Envoy (ext_authz over HTTP). The request is rebuilt as a head and parsed
 * like one that a client sent, so that the same rules and checks apply to it. */
#ifndef WEIR_POLICY_ORIGINAL_REQUEST_H
#define WEIR_POLICY_ORIGINAL_REQUEST_H

#include "http/head.h"

/* The one place where the request is read. Other fields of this kind are ignored: proxies pass on
 * fields that they do not set, so a client could choose its own rule. */
enum request_from {
    REQUEST_FROM_FORWARDED, /* X-Forwarded-Method, -Proto, -Host, -Uri, -For */
    REQUEST_FROM_ORIGINAL,  /* X-Original-Method, X-Original-URI; Host */
    REQUEST_FROM_REQUEST    /* the request itself */
};

/* Memory for one rebuilt head. */
struct original_room {
    struct request_head head;
    char bytes[(64 << 10) + 64];
};

/* Returns the head of the request that `asked` is about, in `room` or `asked` itself. All other
 * fields of `asked` are kept, as fields of the client, except those about the connection and the
 * content. Returns NULL and the reason `*why` (static text) if a field is missing, occurs twice or
 * is malformed; the response is 400. */
struct request_head *original_request(enum request_from from, struct request_head *asked,
                                      struct original_room *room, const char **why);

#endif
