/* tls_internal.h - interface between the TLS files. Private to them; requires OpenSSL. */
#ifndef WEIR_NET_TLS_INTERNAL_H
#define WEIR_NET_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "net/tls.h"

struct tls_session {
    SSL *ssl; /* its app data points to this struct */
    event_callback_fn on_readable, on_writable;
    void *context; /* callbacks and context of the stream's owner */
    /* Reading waits until the socket is writable, and the reverse. */
    bool read_wants_write, write_wants_read;
    bool handshaken;
    bool ended;        /* the peer's close_notify was received */
    bool failed;       /* OpenSSL may only be called to free this connection */
    bool write_failed; /* the socket accepts no more; received data can still be read */
    bool ending;       /* close_notify waits until the socket accepts it */
    bool end_sent;
    unsigned long fault; /* OpenSSL error code of `failed`; 0: the connection was closed */

    struct tls_server *server; /* server side: a counted reference */
    /* client side: */
    const char *host; /* name that the certificate must be valid for */
    /* First error in the server's certificate; NULL: none so far. malloc'ed. */
    char *verdict;
    int verify_error; /* X509_V_ERR_ code of `verdict` */
    struct tls_resumption *resumption;
};

/* Creates a context: TLS 1.2 and newer, ephemeral keys and AEADs, no renegotiation, non-blocking.
 * Returns NULL if out of memory. */
SSL_CTX *tls_context_new(const SSL_METHOD *method);

/* Makes the stream use TLS through `ssl`. Takes ownership of `ssl`, also on failure; `ssl` may be
 * NULL, which fails. Returns NULL if out of memory. */
struct tls_session *tls_layer_begin(struct stream *stream, SSL *ssl);

/* Loads a certificate with its chain, and its key, from PEM files. */
MUST_CHECK enum tls_fault tls_load_pair(SSL_CTX *ctx, const char *certificate, const char *key,
                                        char why[static TLS_WHY_MAX]);
/* Returns whether the file can be read. If not, sets `why`. */
MUST_CHECK bool tls_can_be_read(const char *path, char why[static TLS_WHY_MAX]);
/* Writes why OpenSSL rejects a file that should contain `wanted`. */
void tls_describe_error(char why[static TLS_WHY_MAX], const char *wanted);

#endif
