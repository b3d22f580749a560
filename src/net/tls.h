/* tls.h - TLS between a stream and its socket, on either side (OpenSSL 3). TLS 1.2 and newer, ephemeral keys and
 * AEADs only, ALPN http/1.1, tickets, no renegotiation. */
#ifndef WEIR_NET_TLS_H
#define WEIR_NET_TLS_H

#include "net/stream.h"

enum { TLS_WHY_MAX = 200 };

enum tls_fault { TLS_GOOD, TLS_BAD_CERTIFICATE, TLS_BAD_KEY, TLS_BAD_CA };

/* When the certificates of a PEM file are valid: from the latest notBefore to the earliest notAfter, in seconds since 1970. */
struct tls_dates {
    int64_t from_s, until_s;
};

/* Reads them from a file of certificates, which blocks. False: it holds none, or cannot be read. */
MUST_CHECK bool tls_read_dates(const char *path, struct tls_dates *dates);

/* ---- the side of the server --------------------------------------------------------------------------- */

/* The certificates of one listener. Counted references; shared by threads. */
struct tls_server;

/* Was weir built with OpenSSL? Else nothing below works. */
bool tls_is_there(void);

/* NULL: no memory. */
struct tls_server *tls_server_new(void);
struct tls_server *tls_server_hold(struct tls_server *server); /* NULL is allowed, also below */
void tls_server_drop(struct tls_server *server);

/* One more certificate (with its chain) and key, both PEM files. The first is for clients that name no host, or
 * one that no certificate is for; of several for a host the first is taken. Otherwise: which file is at fault,
 * and in `why` how. Before threads share the server. */
MUST_CHECK enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                                         char why[static TLS_WHY_MAX]);

/* The path, as it was given, and the dates of certificate number `index`. False: there are not so many. */
bool tls_server_certificate(const struct tls_server *server, unsigned index, const char **path,
                            struct tls_dates *dates);

/* From here on the stream speaks TLS; nothing is wanted of it now. False: no memory. */
MUST_CHECK bool tls_accept(struct stream *stream, struct tls_server *server);

/* ---- the side of the client --------------------------------------------------------------------------- */

struct tls_client_settings {
    const char *ca;                /* a PEM file of authorities; NULL: those that the system trusts */
    const char *certificate, *key; /* PEM files of the client's own; NULL: none */
    bool verify;                   /* the server's certificate: its chain, its dates, its name */
};

/* What connections to servers are made with: the authorities, the client's own certificate. Shared by threads. */
struct tls_client;

/* Reads the files. Otherwise than TLS_GOOD: which is at fault, and in `why` how. */
MUST_CHECK enum tls_fault tls_client_new(const struct tls_client_settings *settings,
                                         struct tls_client **client, char why[static TLS_WHY_MAX]);
void tls_client_free(struct tls_client *client); /* NULL is allowed. Streams that use it may go on */

/* What one thread keeps of the sessions with one server, to come back with fewer computations. Zeroed at first;
 * outlives the streams that it was given to. */
struct tls_resumption {
    void *session; /* the last that the server offered to resume */
};
void tls_resumption_clear(struct tls_resumption *resumption);

/* From here on the stream speaks TLS with a server that has to be `host` (a name, which is told to the server, or
 * an IP address; it has to last as long as the stream); reading is wanted. False: no memory. */
MUST_CHECK bool tls_connect(struct stream *stream, struct tls_client *client, const char *host,
                            struct tls_resumption *resumption);

/* After TLS_FAILED: what went wrong, for the log. */
void tls_connect_failure(const struct stream *stream, char why[static TLS_WHY_MAX]);

/* ---- both ---------------------------------------------------------------------------------------------- */

/* Why a stream that speaks TLS has failed, where the peer or OpenSSL said so; else NULL, also for a stream without TLS.
 * Static text. */
const char *tls_fault_of(const struct stream *stream);

enum tls_handshake { TLS_AGAIN, TLS_DONE, TLS_FAILED };

/* Goes on with the handshake, each time on_readable is called, until it is done. A client calls it at once as well. */
enum tls_handshake tls_handshake(struct stream *stream);

#endif
