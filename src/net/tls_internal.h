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
    struct tls_resumption *resumption;
    uint64_t begun_us, offered_us; /* its start; verified_us of the session that it offers */

    /* both sides: */
    int verify_error; /* X509_V_ERR_ code of the first error in the peer's certificate; 0: none */
    /* What is wrong with the server's certificate, or the subject of the client's; NULL: nothing.
     * malloc'ed. */
    char *verdict;
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
/* Writes a name as RFC 4514 does, in ASCII, cut to `size` bytes with the NUL. */
void tls_name_print(const X509_NAME *name, char *text, size_t size);
/* Converts to seconds since 1970. Returns false if the time is malformed. */
MUST_CHECK bool tls_seconds_of(const ASN1_TIME *time, int64_t *seconds);
/* Reads a certificate. `until_s`: see struct tls_certificate. The caller frees the result. Returns
 * NULL if out of memory. */
struct tls_certificate *tls_certificate_new(X509 *certificate, int64_t until_s);
/* Returns whether the file can be read. If not, sets `why`. */
MUST_CHECK bool tls_can_be_read(const char *path, char why[static TLS_WHY_MAX]);
/* Writes why OpenSSL rejects a file that should contain `wanted`. */
void tls_describe_error(char why[static TLS_WHY_MAX], const char *wanted);

struct tls_clients; /* tls_verify.c */

/* Returns a connection in the role of the server, which the caller frees; NULL: no memory. */
SSL *tls_server_ssl(struct tls_server *server);
/* Returns how the server verifies its clients; NULL: it does not. */
const struct tls_clients *tls_server_clients(const struct tls_server *server);
/* tls_failure.c: returns why a handshake has failed, from the X509_V_ERR_ code of the peer's
 * certificate (0: none) and an OpenSSL error (0: the connection was closed). */
enum tls_failure tls_failure_of(int verify_error, unsigned long fault);

/* ---- tls_tickets.c: keys of session tickets -------------------------------------------------- */

/* Keys of a listener's tickets, which change with time. Reference-counted; any thread. */
struct tls_tickets;

/* Returns NULL if out of memory. */
struct tls_tickets *tls_tickets_new(void);
struct tls_tickets *tls_tickets_hold(struct tls_tickets *tickets);
void tls_tickets_drop(struct tls_tickets *tickets); /* NULL is allowed */
/* Wipes keys whose tickets have all expired. Handshakes do so too. */
void tls_tickets_wipe_old(struct tls_tickets *tickets);
/* Lets a context use the keys that `*tickets` points to at a handshake. `tickets` must outlive it.
 * Returns false if out of memory. */
MUST_CHECK bool tls_tickets_apply(struct tls_tickets **tickets, SSL_CTX *ctx);

/* ---- tls_verify.c: how a listener verifies its clients --------------------------------------- */

/* Reads client_ca and client_crl of the settings. */
MUST_CHECK enum tls_fault tls_clients_new(const struct tls_server_settings *settings,
                                          struct tls_clients **clients,
                                          char why[static TLS_WHY_MAX]);
/* NULL is allowed, also below. The contexts must be freed before. */
void tls_clients_free(struct tls_clients *clients);
/* Lets the context request certificates. Returns false if out of memory. */
MUST_CHECK bool tls_clients_apply(struct tls_clients *clients, SSL_CTX *ctx);
/* Returns whether both verify clients in the same way. */
bool tls_clients_same(const struct tls_clients *one, const struct tls_clients *other);
/* Returns when the first certificate of the client's verified chain, or revocation list of their
 * issuers, expires, in seconds since 1970; INT64_MAX: there is none. Lists that have expired do not
 * count: OpenSSL has accepted the client without them. */
int64_t tls_verified_until(const SSL *ssl, const struct tls_clients *clients);
/* Returns the path of client_crl (NULL: none), and the time at which its first list expires. */
const char *tls_clients_crl(const struct tls_clients *clients, int64_t *until_s);

#endif
