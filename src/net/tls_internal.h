/* tls_internal.h - what the files of TLS share. Nobody else includes it, and none without OpenSSL. */
#ifndef WEIR_NET_TLS_INTERNAL_H
#define WEIR_NET_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "net/tls.h"

struct tls_session {
    SSL *ssl; /* its app data is this */
    event_callback_fn on_readable, on_writable;
    void *context;                           /* the stream's owner and its callbacks */
    bool read_wants_write, write_wants_read; /* reading waits until the socket takes bytes, and the reverse */
    bool handshaken;
    bool ended;        /* the peer's close_notify was read */
    bool failed;       /* OpenSSL must not be called again for this connection but to free it */
    bool write_failed; /* the socket takes no more; what it has received can be read */
    bool ending;       /* our close_notify waits until the socket takes it */
    bool end_sent;
    unsigned long fault; /* OpenSSL's word for `failed`; 0: the connection broke */

    struct tls_server *server; /* of a server: held */
    /* of a client */
    const char *host; /* whom the certificate has to be for */
    char *verdict;    /* what is wrong with the server's certificate; NULL: nothing so far. malloc'ed */
    struct tls_resumption *resumption;
};

/* TLS 1.2 and newer, ephemeral keys and AEADs, no renegotiation, no blocking. NULL: no memory. */
SSL_CTX *tls_context_new(const SSL_METHOD *method);

/* Has the stream speak TLS by `ssl`, which it takes over, also on failure (where it may be NULL). NULL: no memory. */
struct tls_session *tls_layer_begin(struct stream *stream, SSL *ssl);

/* A certificate with its chain, and its key, from PEM files. */
MUST_CHECK enum tls_fault tls_load_pair(SSL_CTX *ctx, const char *certificate, const char *key,
                                        char why[static TLS_WHY_MAX]);
/* Can the file be read? Else `why` says why not. */
MUST_CHECK bool tls_can_be_read(const char *path, char why[static TLS_WHY_MAX]);
/* What OpenSSL holds against a file that was to hold `wanted`. */
void tls_describe_error(char why[static TLS_WHY_MAX], const char *wanted);

#endif
