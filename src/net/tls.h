/* tls.h - TLS between a stream and its socket, as client or server (OpenSSL 3).
 *
 * - TLS 1.2 and newer, only ephemeral keys and AEADs
 * - ALPN http/1.1, and h2 where a listener offers it
 * - session tickets
 * - no renegotiation */
#ifndef WEIR_NET_TLS_H
#define WEIR_NET_TLS_H

#include "net/stream.h"

enum {
    TLS_WHY_MAX = 200,
    /* Counted for a client's handshake from its first byte on, since a few bytes suffice: OpenSSL
     * allocates what a ClientHello claims to have, up to 128 KiB, and a buffer for one record. */
    TLS_HANDSHAKE_BYTES = 160 * 1024
};

enum tls_fault {
    TLS_GOOD,
    TLS_BAD_CERTIFICATE,
    TLS_BAD_KEY,
    TLS_BAD_CA,
    TLS_BAD_CRL,
    TLS_BAD_CIPHERS
};

/* Validity of the certificates of a PEM file: from the latest notBefore to the earliest notAfter,
 * in seconds since 1970. */
struct tls_dates {
    int64_t from_s, until_s;
};

/* Reads the dates from a file of certificates. Blocks. Returns false if the file cannot be read or
 * contains no certificate. */
MUST_CHECK bool tls_read_dates(const char *path, struct tls_dates *dates);

/* ---- server side ----------------------------------------------------------------------------- */

/* Certificates of a listener. Reference-counted; shared by threads. */
struct tls_server;

/* Returns NULL if out of memory. */
struct tls_server *tls_server_new(void);
struct tls_server *tls_server_hold(struct tls_server *server); /* NULL is allowed, also below */
void tls_server_drop(struct tls_server *server);

/* Adds a certificate (with its chain) and a key, both PEM files. The first certificate is the
 * default, for clients that send no server name or an unknown one. If several match a name, the
 * first is used. On failure, returns which file is invalid and sets `why`. Call before threads
 * share the server. */
MUST_CHECK enum tls_fault tls_server_add(struct tls_server *server, const char *certificate,
                                         const char *key, char why[static TLS_WHY_MAX]);

/* Returns the path, as given, and the dates of certificate number `index`. Returns false if there
 * is none. */
bool tls_server_certificate(const struct tls_server *server, unsigned index, const char **path,
                            struct tls_dates *dates);

/* Returns a host name of the first certificate without wildcard, valid as long as the server. NULL
 * if there is none. */
const char *tls_server_host(const struct tls_server *server);

struct tls_server_settings {
    const char *client_ca;  /* PEM file of the authorities of client certificates; NULL: none */
    const char *client_crl; /* PEM file of revocation lists; NULL: none */
    bool client_optional;   /* accept clients without a certificate */
    bool min_1_3;           /* refuse TLS 1.2 */
    const char *ciphers;    /* of TLS 1.2, as OpenSSL lists them; NULL: default */
};

/* Applies settings to all certificates of the server; call after tls_server_add(). On failure,
 * returns which setting is invalid and sets `why`. Blocks: reads the files. */
MUST_CHECK enum tls_fault tls_server_set(struct tls_server *server,
                                         const struct tls_server_settings *settings,
                                         char why[static TLS_WHY_MAX]);

/* Returns the name of a cipher of the server that HTTP/2 prohibits (RFC 9113 section 9.2.2), since
 * it has no ephemeral key or no AEAD; NULL: none. */
const char *tls_prohibited_by_http2(const struct tls_server *server);

/* Returns whether both verify their clients by the same files and in the same way. NULL is
 * allowed. */
bool tls_server_same_clients(const struct tls_server *one, const struct tls_server *other);
/* Lets `next` resume the sessions of `now`, if both verify their clients in the same way. Call
 * before threads share `next`, unless it is `now`: then nothing changes. */
void tls_server_keep_sessions(struct tls_server *next, const struct tls_server *now);
/* Wipes the keys of tickets that have all expired. Handshakes do so too; call it for the time
 * between them. Any thread. NULL is allowed. */
void tls_server_wipe_old_keys(struct tls_server *server);
/* Returns the path of client_crl, as given, and the time at which its first list expires, in
 * seconds since 1970. Returns NULL if there is none. */
const char *tls_server_crl(const struct tls_server *server, int64_t *until_s);

/* Offers HTTP/2 (ALPN h2) before HTTP/1.1. Call before threads share the server. */
void tls_server_offer_http2(struct tls_server *server);
/* Returns whether the handshake, which is done, has chosen HTTP/2. */
bool tls_chose_http2(const struct stream *stream);

/* Starts TLS on the stream as server. No events are wanted yet. Returns false if out of memory. */
MUST_CHECK bool tls_accept(struct stream *stream, struct tls_server *server);

/* Returns the server whose handshake the stream has begun; NULL: none. */
const struct tls_server *tls_server_of(const struct stream *stream);

struct tls_certificate;
/* Returns the client's verified certificate after the handshake; the caller frees it. `*has`:
 * whether it has sent one. NULL with `*has` set: out of memory. */
struct tls_certificate *tls_client_certificate(const struct stream *stream, bool *has);

/* Why a handshake with a client failed: the name in metrics, and what to do; NULL: not logged, as
 * operators can do nothing about it. */
/* clang-format off */
#define TLS_FAILURES(X)                                                                            \
    X(TLS_FAILURE_NO_CERTIFICATE, "no_certificate",                                                \
      "it sent no certificate; give it one, or set client_certificate: optional")                  \
    X(TLS_FAILURE_EXPIRED, "expired", "its certificate has expired; renew it")                     \
    X(TLS_FAILURE_NOT_YET_VALID, "not_yet_valid",                                                  \
      "its certificate is not valid yet; check the clocks of both machines")                       \
    X(TLS_FAILURE_REVOKED, "revoked",                                                              \
      "its certificate is revoked in client_crl; issue a new one")                                 \
    X(TLS_FAILURE_UNKNOWN_CA, "unknown_ca",                                                        \
      "no authority in client_ca has issued its certificate; add the authority, or let the "       \
      "client send its intermediate certificates too")                                             \
    X(TLS_FAILURE_CRL_EXPIRED, "crl_expired",                                                      \
      "the revocation list of its issuer has expired; replace client_crl and reload")              \
    X(TLS_FAILURE_CRL_MISSING, "crl_missing",                                                      \
      "client_crl has no revocation list of its issuer; add the list and reload")                  \
    X(TLS_FAILURE_BAD_CERTIFICATE, "bad_certificate",                                              \
      "its certificate is not for TLS clients, is malformed, or has more than 8 intermediate "     \
      "ones above it; issue one with the extended key usage clientAuth")                           \
    X(TLS_FAILURE_MEMORY, "memory_limit",                                                          \
      "buffers and handshakes have reached size_limits.memory; raise it, or against a flood lower " \
      "size_limits.connections_per_ip")                                                            \
    X(TLS_FAILURE_TOO_MANY, "too_many",                                                            \
      "its address begins more than size_limits.handshakes_per_ip; if it is a proxy, add it to "   \
      "identity.trusted_proxies, which are not counted")                                           \
    X(TLS_FAILURE_DISPLACED, "displaced",                                                          \
      "a newer one took its place: those of admin listeners may use an eighth of "                 \
      "size_limits.memory; block its address, or bind the listener to a private one")              \
    X(TLS_FAILURE_ALERT, "client_alert", NULL)                                                     \
    X(TLS_FAILURE_PLAIN_HTTP, "plain_http", NULL)                                                  \
    X(TLS_FAILURE_PROTOCOL, "protocol", NULL)                                                      \
    X(TLS_FAILURE_CLOSED, "closed", NULL)                                                          \
    X(TLS_FAILURE_TIMEOUT, "timeout", NULL)                                                        \
    X(TLS_FAILURE_OTHER, "other", NULL)
/* clang-format on */

enum tls_failure {
#define X(name, label, remedy) name,
    TLS_FAILURES(X)
#undef X
        TLS_FAILURE_COUNT
};

struct tls_failure_row {
    const char *label, *remedy;
};
extern const struct tls_failure_row tls_failure_table[TLS_FAILURE_COUNT];

struct address;
struct log_throttle;
/* Logs the failure of a handshake with `peer` if it has a remedy, and its element of `throttles`
 * allows it. `subject`: that of the client's certificate, in ASCII; NULL: none. */
void tls_failure_log(struct log_throttle *throttles, enum tls_failure failure,
                     const struct address *peer, const struct address *listener,
                     const char *subject);

/* After TLS_FAILED: returns why, and the subject of the certificate that is refused, in ASCII
 * (NULL: none), which is valid as long as the stream. */
enum tls_failure tls_accept_failure(const struct stream *stream, const char **subject);

/* ---- client side ----------------------------------------------------------------------------- */

struct tls_client_settings {
    /* PEM file of certificate authorities; NULL: those of the system */
    const char *ca;
    const char *certificate, *key; /* PEM files of the client certificate; NULL: none */
    bool verify;                   /* verify the server's certificate: chain, dates and name */
    bool no_alpn;                  /* the protocol is not HTTP/1.1: offer none */
};

/* Settings of TLS connections to servers: certificate authorities and client certificate. Shared by
 * threads. */
struct tls_client;

/* Reads the files. If the result is not TLS_GOOD, it identifies the invalid file and
 * `why` gives the reason. */
MUST_CHECK enum tls_fault tls_client_new(const struct tls_client_settings *settings,
                                         struct tls_client **client, char why[static TLS_WHY_MAX]);
/* Trusts a further PEM file of authorities. Blocks. Returns false if it is not usable. */
MUST_CHECK bool tls_client_trust(struct tls_client *client, const char *ca);
/* NULL is allowed. Streams that use the client may continue. */
void tls_client_free(struct tls_client *client);

/* One thread's session with one server, for resumption. Zero-initialized; must outlive the streams
 * that use it. */
struct tls_resumption {
    void *session;        /* last session that the server offered */
    uint64_t verified_us; /* start of the connection that verified the session's server */
};
void tls_resumption_clear(struct tls_resumption *resumption);

/* Starts TLS on the stream as client; waits for reading. The server's certificate must be valid for
 * `host`, a name (sent as SNI) or an IP address. `host` must outlive the stream. Returns false if
 * out of memory. */
MUST_CHECK bool tls_connect(struct stream *stream, struct tls_client *client, const char *host,
                            struct tls_resumption *resumption);

/* Offers HTTP/2 (ALPN h2), and HTTP/1.1 after it if `http1` is set. Call after tls_connect() and
 * before the handshake. Returns false if out of memory. */
MUST_CHECK bool tls_client_offer_http2(struct stream *stream, bool http1);

/* Writes the reason of TLS_FAILED, for the log. */
void tls_connect_failure(const struct stream *stream, char why[static TLS_WHY_MAX]);

/* Returns whether that reason is only that the server closed the connection. */
bool tls_connect_was_closed(const struct stream *stream);

enum tls_problem {
    TLS_PROBLEM_OTHER,
    TLS_PROBLEM_UNTRUSTED, /* the certificate's authority is unknown, or the certificate is refused */
    TLS_PROBLEM_NAME,      /* it is for another name */
    TLS_PROBLEM_DATES,     /* it has expired or is not valid yet */
    TLS_PROBLEM_NOT_TLS    /* the server does not use TLS */
};
/* Returns the class of that reason. */
enum tls_problem tls_connect_problem(const struct stream *stream);

/* ---- both sides ------------------------------------------------------------------------------ */

/* Returns why a TLS stream failed (static text), if the peer or OpenSSL gave a reason. NULL
 * otherwise, and for a stream without TLS. */
const char *tls_fault_of(const struct stream *stream);

enum tls_handshake { TLS_AGAIN, TLS_DONE, TLS_FAILED };

/* Continues the handshake. Call each time on_readable is called, until the handshake is done. A
 * client also calls it at the start. */
enum tls_handshake tls_handshake(struct stream *stream);

/* Server: after TLS_FAILED. If the client has sent an HTTP/1 request without TLS, ends TLS on the
 * stream, so that a plain response can be sent, and returns true. The first bytes of the request
 * are lost. */
bool tls_end_for_plain_http(struct stream *stream);
/* Server: after TLS_FAILED, ends TLS on the stream, so that what the client still sends can be read
 * and dropped: closing earlier could destroy the alert on its way. */
void tls_end(struct stream *stream);

#endif
