/* tls.h - TLS between a stream and its socket, on the side of the server (OpenSSL 3). TLS 1.2 and newer,
 * ephemeral keys and AEADs only, ALPN http/1.1, tickets, no renegotiation. */
#ifndef WEIR_NET_TLS_H
#define WEIR_NET_TLS_H

#include "net/stream.h"

enum { TLS_WHY_MAX = 200 };

/* The certificates of one listener. Counted references; shared by threads. */
struct tls_server;

/* Was weir built with OpenSSL? Else nothing below works. */
bool tls_is_there(void);

/* NULL: no memory. */
struct tls_server *tls_server_new(void);
struct tls_server *tls_server_hold(struct tls_server *server); /* NULL is allowed, also below */
void tls_server_drop(struct tls_server *server);

enum tls_fault { TLS_GOOD, TLS_BAD_CERTIFICATE, TLS_BAD_KEY };

/* One more certificate (with its chain) and key, both PEM files. The first is for clients that name no host, or
 * one that no certificate is for; of several for a host the first is taken. Otherwise: which file is at fault,
 * and in `why` how. Before threads share the server. */
MUST_CHECK enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                                         char why[static TLS_WHY_MAX]);

/* From here on the stream speaks TLS; nothing is wanted of it now. False: no memory. */
MUST_CHECK bool tls_accept(struct stream *stream, struct tls_server *server);

enum tls_handshake { TLS_AGAIN, TLS_DONE, TLS_FAILED };

/* Goes on with the handshake, each time on_readable is called, until it is done. */
enum tls_handshake tls_handshake(struct stream *stream);

#endif
