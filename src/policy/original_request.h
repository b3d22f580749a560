/* original_request.h - the request that another proxy asks a decision about.
 *
 * The proxy names it in fields of its own request: nginx (auth_request), Traefik (ForwardAuth),
 * Caddy (forward_auth), Envoy (ext_authz over HTTP). Its parts are checked like those that a client
 * sends, so that the same rules apply to it. */
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

/* Turns `head`, the request of the other proxy, into the request that it is about: its method,
 * target and host are replaced. The other fields stay, as fields of the client, except those about
 * the connection and the content. Returns false and the reason `*why` (static text) if a field is
 * missing, occurs twice or is malformed; the response is then 400. */
MUST_CHECK bool original_request(enum request_from from, struct request_head *head,
                                 const char **why);

#endif
