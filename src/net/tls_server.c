/* tls_server.c - TLS server: choice of the certificate by host. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/tls_internal.h"

struct tls_server {
    atomic_uint references;
    bool http2; /* offered */
    unsigned count;
    SSL_CTX **contexts; /* one per certificate */
    struct certificate {
        char *path;
        struct tls_dates dates;
    } * certificates; /* one per certificate */
    /* A host name of the first certificate, for clients that send no known name; NULL: none. */
    char *name;
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
    for (unsigned i = 0; i < server->count; i++) {
        SSL_CTX_free(server->contexts[i]);
        free(server->certificates[i].path);
    }
    free(server->contexts);
    free(server->certificates);
    free(server->name);
    free(server);
}

static bool is_for(const SSL_CTX *ctx, const char *host)
{
    X509 *certificate = SSL_CTX_get0_certificate(ctx);
    return X509_check_host(certificate, host, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
}

static int key_type(const SSL_CTX *ctx)
{
    return EVP_PKEY_base_id(SSL_CTX_get0_privatekey(ctx));
}

/* Also offers certificates for the host with other key types (RSA beside ECDSA). OpenSSL selects
 * one that the client supports. */
static void offer_others(const struct tls_server *server, unsigned chosen, const char *host,
                         SSL *ssl)
{
    for (unsigned i = 0; host && i < server->count; i++) {
        SSL_CTX *other = server->contexts[i];
        STACK_OF(X509) *chain = NULL;
        if (key_type(other) == key_type(server->contexts[chosen]) || !is_for(other, host))
            continue;
        SSL_CTX_get0_chain_certs(other, &chain);
        /* Without override: the first certificate of each key type is kept. */
        (void)SSL_use_cert_and_key(ssl, SSL_CTX_get0_certificate(other),
                                   SSL_CTX_get0_privatekey(other), chain, 0);
    }
    ERR_clear_error();
}

/* RFC 6066 section 3: chooses the first certificate that matches the server name; the first of all
 * if none matches or no name was sent. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    const struct tls_server *server = arg;
    const char *host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;

    for (unsigned i = 0; host && i < server->count; i++)
        if (is_for(server->contexts[i], host)) {
            SSL_set_SSL_CTX(ssl, server->contexts[i]);
            offer_others(server, i, host, ssl);
            return SSL_TLSEXT_ERR_OK;
        }
    offer_others(server, 0, server->name, ssl);
    return SSL_TLSEXT_ERR_NOACK;
}

/* Returns a host name of the certificate that has no wildcard; NULL if none. */
static char *host_of(const SSL_CTX *ctx)
{
    GENERAL_NAMES *names =
        X509_get_ext_d2i(SSL_CTX_get0_certificate(ctx), NID_subject_alt_name, NULL, NULL);
    char *host = NULL;

    for (int i = 0; !host && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_DNS)
            continue;
        const char *text = (const char *)ASN1_STRING_get0_data(name->d.dNSName);
        size_t size = (size_t)ASN1_STRING_length(name->d.dNSName);
        if (size && !memchr(text, '*', size) && !memchr(text, 0, size))
            host = strndup(text, size);
    }
    GENERAL_NAMES_free(names);
    return host;
}

/* RFC 7301 section 3.2: sends a fatal alert to a client that supports only other protocols. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *size,
                           const unsigned char *offered, unsigned offered_size, void *arg)
{
    static const unsigned char spoken[] = "\x02h2\x08http/1.1"; /* preferred first */
    enum { H2_SIZE = 3 };
    const struct tls_server *server = arg;
    unsigned skipped = server->http2 ? 0 : H2_SIZE;
    unsigned char *chosen;
    (void)ssl;

    if (SSL_select_next_proto(&chosen, size, spoken + skipped, sizeof spoken - 1 - skipped, offered,
                              offered_size) != OPENSSL_NPN_NEGOTIATED)
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
    /* use tickets: workers share no session table */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, server);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(ctx, server);
    return ctx;
}

/* Makes room for one more certificate. Returns false if out of memory. */
static bool make_room(struct tls_server *server)
{
    SSL_CTX **contexts = realloc(server->contexts, (server->count + 1) * sizeof *contexts);

    if (contexts)
        server->contexts = contexts;
    struct certificate *certificates =
        realloc(server->certificates, (server->count + 1) * sizeof *certificates);
    if (certificates)
        server->certificates = certificates;
    return contexts && certificates;
}

bool tls_server_certificate(const struct tls_server *server, unsigned index, const char **path,
                            struct tls_dates *dates)
{
    if (!server || index >= server->count || !server->certificates[index].path)
        return false;
    *path = server->certificates[index].path;
    *dates = server->certificates[index].dates;
    return true;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    SSL_CTX *ctx = make_room(server) ? context_new(server) : NULL;

    snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    enum tls_fault fault = ctx ? tls_load_pair(ctx, certificate, key, why) : TLS_BAD_CERTIFICATE;
    if (fault == TLS_GOOD) {
        if (server->count == 0)
            server->name = host_of(ctx);
        server->contexts[server->count] = ctx;
        server->certificates[server->count].path = strdup(certificate);
        if (!tls_read_dates(certificate, &server->certificates[server->count].dates))
            server->certificates[server->count].dates = (struct tls_dates){INT64_MIN, INT64_MAX};
        server->count++;
    } else
        SSL_CTX_free(ctx);
    return fault;
}

void tls_server_offer_http2(struct tls_server *server)
{
    server->http2 = true;
}

bool tls_chose_http2(const struct stream *s)
{
    const struct tls_session *t = s->session;
    const unsigned char *chosen;
    unsigned size;

    SSL_get0_alpn_selected(t->ssl, &chosen, &size);
    return size == 2 && memcmp(chosen, "h2", 2) == 0;
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
