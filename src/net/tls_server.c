/* tls_server.c - the side of the server: certificates by host. */
#include "config.h"

#ifdef HAVE_OPENSSL

#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "net/tls_internal.h"

struct tls_server {
    atomic_uint references;
    unsigned count;
    SSL_CTX **contexts; /* one for each certificate */
};

struct tls_server *tls_server_new(void)
{
    struct tls_server *server = calloc(1, sizeof *server);
    if (server)
        atomic_init(&server->references, 1);
    return server;
}

struct tls_server *tls_server_hold(struct tls_server *server)
{
    if (server)
        atomic_fetch_add_explicit(&server->references, 1, memory_order_relaxed);
    return server;
}

void tls_server_drop(struct tls_server *server)
{
    if (!server || atomic_fetch_sub_explicit(&server->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < server->count; i++)
        SSL_CTX_free(server->contexts[i]);
    free(server->contexts);
    free(server);
}

/* RFC 6066 section 3: the first certificate that is for the host. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    const struct tls_server *server = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;

    for (unsigned i = 0; name && i < server->count; i++) {
        X509 *certificate = SSL_CTX_get0_certificate(server->contexts[i]);
        if (X509_check_host(certificate, name, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1) {
            SSL_set_SSL_CTX(ssl, server->contexts[i]);
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_NOACK;
}

/* RFC 7301 section 3.2: a client that speaks other protocols only is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *size,
                           const unsigned char *offered, unsigned offered_size, void *arg)
{
    static const unsigned char spoken[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)arg;

    if (SSL_select_next_proto(&chosen, size, spoken, sizeof spoken - 1, offered, offered_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *context_new(struct tls_server *server)
{
    static const unsigned char session_context[] = "weir";
    SSL_CTX *ctx = tls_context_new(TLS_server_method());

    if (!ctx)
        return NULL;
    if (!SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets: workers share no table of sessions */
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(ctx, server);
    return ctx;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    SSL_CTX **more = realloc(server->contexts, (server->count + 1) * sizeof *more);
    SSL_CTX *ctx = more ? context_new(server) : NULL;

    if (more)
        server->contexts = more;
    snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    enum tls_fault fault = ctx ? tls_load_pair(ctx, certificate, key, why) : TLS_BAD_CERTIFICATE;
    if (fault == TLS_GOOD)
        server->contexts[server->count++] = ctx;
    else
        SSL_CTX_free(ctx);
    return fault;
}

bool tls_accept(struct stream *s, struct tls_server *server)
{
    struct tls_session *t = tls_layer_begin(s, SSL_new(server->contexts[0]));

    if (!t)
        return false;
    SSL_set_accept_state(t->ssl);
    t->server = tls_server_hold(server);
    return true;
}

#endif
