/* client_tls.h - options upstreams.NAME.tls and redis.tls: TLS from weir to a server. */
#ifndef WEIR_POLICY_CLIENT_TLS_H
#define WEIR_POLICY_CLIENT_TLS_H

#include <stdbool.h>
#include <stdint.h>

struct client_tls {
    bool on, verify;
    bool no_alpn;                               /* the protocol is not HTTP */
    char *ca, *server_name, *certificate, *key; /* as written; NULL: not set */
    struct tls_client *client;                  /* TLS context from these files; owned */
    char *certificate_path;                     /* path of `certificate`; set only with expires_s */
    int64_t expires_s;                          /* certificate expiry, Unix time; 0: none */
};

#endif
