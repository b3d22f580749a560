/* tls_none.c - stubs for builds without OpenSSL. tls_is_there() returns false and the policy
 * refuses any `tls` option. */
#include "config.h"
#include "net/tls.h"

#ifndef HAVE_OPENSSL

bool tls_is_there(void)
{
    return false;
}

struct tls_server *tls_server_new(void)
{
    return NULL;
}

struct tls_server *tls_server_hold(struct tls_server *server)
{
    return server;
}

void tls_server_drop(struct tls_server *server)
{
    (void)server;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    (void)server, (void)certificate, (void)key;
    why[0] = 0;
    return TLS_BAD_CERTIFICATE;
}

bool tls_read_dates(const char *path, struct tls_dates *dates)
{
    (void)path;
    *dates = (struct tls_dates){0};
    return false;
}

bool tls_server_certificate(const struct tls_server *server, unsigned index, const char **path,
                            struct tls_dates *dates)
{
    (void)server, (void)index, (void)path;
    *dates = (struct tls_dates){0};
    return false;
}

void tls_server_offer_http2(struct tls_server *server)
{
    (void)server;
}

bool tls_chose_http2(const struct stream *stream)
{
    (void)stream;
    return false;
}

bool tls_accept(struct stream *stream, struct tls_server *server)
{
    (void)stream, (void)server;
    return false;
}

enum tls_fault tls_client_new(const struct tls_client_settings *settings,
                              struct tls_client **client, char why[static TLS_WHY_MAX])
{
    (void)settings, (void)client;
    why[0] = 0;
    return TLS_BAD_CA;
}

void tls_client_free(struct tls_client *client)
{
    (void)client;
}

void tls_resumption_clear(struct tls_resumption *resumption)
{
    (void)resumption;
}

bool tls_connect(struct stream *stream, struct tls_client *client, const char *host,
                 struct tls_resumption *resumption)
{
    (void)stream, (void)client, (void)host, (void)resumption;
    return false;
}

void tls_connect_failure(const struct stream *stream, char why[static TLS_WHY_MAX])
{
    (void)stream;
    why[0] = 0;
}

enum tls_problem tls_connect_problem(const struct stream *stream)
{
    (void)stream;
    return TLS_PROBLEM_OTHER;
}

const char *tls_fault_of(const struct stream *stream)
{
    (void)stream;
    return NULL;
}

enum tls_handshake tls_handshake(struct stream *stream)
{
    (void)stream;
    return TLS_FAILED;
}

#endif

bool tls_client_offer_http2(struct stream *stream, bool http1)
{
    (void)stream, (void)http1;
    return false;
}
