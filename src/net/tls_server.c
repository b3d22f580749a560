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
    struct server_certificate {
        char *path;
        struct tls_dates dates;
    } * certificates; /* one per certificate */
    /* A host name of the first certificate, for clients that send no known name; NULL: none. */
    char *name;
    struct tls_clients *clients; /* NULL: certificates of clients are not requested */
    struct tls_tickets *tickets; /* shared with earlier servers of the listener */
};

struct tls_server *tls_server_new(void)
{
    struct tls_server *server = calloc(1, sizeof *server);

    if (!server || !(server->tickets = tls_tickets_new())) {
        free(server);
        return NULL;
    }
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
    tls_clients_free(server->clients);
    tls_tickets_drop(server->tickets);
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
    if (!SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1) ||
        !tls_tickets_apply(&server->tickets, ctx)) {
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
static bool grow_certificates(struct tls_server *server)
{
    SSL_CTX **contexts = realloc(server->contexts, (server->count + 1) * sizeof *contexts);

    if (contexts)
        server->contexts = contexts;
    struct server_certificate *certificates =
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

const char *tls_server_host(const struct tls_server *server)
{
    return server->name;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    SSL_CTX *ctx = grow_certificates(server) ? context_new(server) : NULL;

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

/* ---- settings -------------------------------------------------------------------------------- */

/* Returns whether OpenSSL knows the name of a cipher, or of a set of ciphers, of TLS 1.2. */
static bool is_cipher(SSL_CTX *ctx, struct slice name)
{
    char text[64];

    if (name.n && name.p[0] == '@') /* @STRENGTH, @SECLEVEL: OpenSSL checks the whole list */
        return true;
    if (name.n && memchr("!-+", name.p[0], 3))
        name = (struct slice){name.p + 1, name.n - 1};
    if (name.n == 0 || name.n >= sizeof text)
        return false;
    snprintf(text, sizeof text, "%.*s", SLICE_ARG(name));
    return SSL_CTX_set_cipher_list(ctx, text) == 1;
}

/* Copies the next name of a list. OpenSSL separates names by ":", "," or " ". */
static bool next_cipher(const char **rest, struct slice *name)
{
    *rest += strspn(*rest, ":, ");
    *name = (struct slice){*rest, strcspn(*rest, ":, ")};
    *rest += name->n;
    return name->n > 0;
}

/* Returns a cipher of the context without encryption or without authentication; NULL: none. */
static const char *unsafe_cipher(const SSL_CTX *ctx)
{
    const STACK_OF(SSL_CIPHER) *ciphers = SSL_CTX_get_ciphers(ctx);

    for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); i++) {
        const SSL_CIPHER *cipher = sk_SSL_CIPHER_value(ciphers, i);
        if (SSL_CIPHER_get_cipher_nid(cipher) == NID_undef ||
            SSL_CIPHER_get_auth_nid(cipher) == NID_auth_null)
            return SSL_CIPHER_get_name(cipher);
    }
    return NULL;
}

const char *tls_prohibited_by_http2(const struct tls_server *server)
{
    const STACK_OF(SSL_CIPHER) *ciphers = SSL_CTX_get_ciphers(server->contexts[0]);

    for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); i++) {
        const SSL_CIPHER *cipher = sk_SSL_CIPHER_value(ciphers, i);
        int key = SSL_CIPHER_get_kx_nid(cipher);
        if (!SSL_CIPHER_is_aead(cipher) ||
            (key != NID_kx_ecdhe && key != NID_kx_dhe && key != NID_kx_any))
            return SSL_CIPHER_get_name(cipher);
    }
    return NULL;
}

static enum tls_fault set_ciphers(struct tls_server *server, const char *list,
                                  char why[static TLS_WHY_MAX])
{
    SSL_CTX *ctx = server->contexts[0];
    const char *rest = list, *unsafe;
    struct slice name;

    while (next_cipher(&rest, &name))
        if (!is_cipher(ctx, name)) {
            snprintf(
                why, TLS_WHY_MAX,
                "%.*s is no cipher of TLS 1.2 that OpenSSL knows; \"openssl ciphers -v -tls1_2\""
                " lists them",
                name.n < 64 ? (int)name.n : 64, name.p);
            return TLS_BAD_CIPHERS;
        }
    for (unsigned i = 0; i < server->count; i++)
        if (SSL_CTX_set_cipher_list(server->contexts[i], list) != 1 ||
            SSL_CTX_set_dh_auto(server->contexts[i], 1) != 1) {
            snprintf(why, TLS_WHY_MAX, "OpenSSL finds no cipher for this list");
            return TLS_BAD_CIPHERS;
        }
    unsafe = unsafe_cipher(ctx);
    if (unsafe)
        snprintf(why, TLS_WHY_MAX,
                 "%s is without encryption or authentication; exclude it with !%s", unsafe, unsafe);
    return unsafe ? TLS_BAD_CIPHERS : TLS_GOOD;
}

enum tls_fault tls_server_set(struct tls_server *server, const struct tls_server_settings *settings,
                              char why[static TLS_WHY_MAX])
{
    enum tls_fault fault = TLS_GOOD;

    ERR_clear_error();
    if (settings->ciphers)
        fault = set_ciphers(server, settings->ciphers, why);
    if (fault == TLS_GOOD && settings->client_ca)
        fault = tls_clients_new(settings, &server->clients, why);
    for (unsigned i = 0; i < server->count && fault == TLS_GOOD; i++) {
        SSL_CTX *ctx = server->contexts[i];
        if ((settings->min_1_3 && !SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION)) ||
            (server->clients && !tls_clients_apply(server->clients, ctx))) {
            snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
            fault = TLS_BAD_CA;
        }
    }
    ERR_clear_error();
    return fault;
}

const struct tls_clients *tls_server_clients(const struct tls_server *server)
{
    return server->clients;
}

bool tls_server_same_clients(const struct tls_server *one, const struct tls_server *other)
{
    return tls_clients_same(one ? one->clients : NULL, other ? other->clients : NULL);
}

void tls_server_keep_sessions(struct tls_server *next, const struct tls_server *now)
{
    if (!next || !now || next == now || !tls_server_same_clients(next, now))
        return;
    struct tls_tickets *own = next->tickets;
    next->tickets = tls_tickets_hold(now->tickets);
    tls_tickets_drop(own);
}

void tls_server_wipe_old_keys(struct tls_server *server)
{
    if (server)
        tls_tickets_wipe_old(server->tickets);
}

const char *tls_server_crl(const struct tls_server *server, int64_t *until_s)
{
    return tls_clients_crl(server ? server->clients : NULL, until_s);
}

/* ---- connections ----------------------------------------------------------------------------- */

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

const struct tls_server *tls_server_of(const struct stream *s)
{
    const struct tls_session *t = s->layer ? s->session : NULL;
    return t ? t->server : NULL;
}

SSL *tls_server_ssl(struct tls_server *server)
{
    return SSL_new(server->contexts[0]);
}

bool tls_accept(struct stream *s, struct tls_server *server)
{
    struct tls_session *t = tls_layer_begin(s, tls_server_ssl(server));

    if (!t)
        return false;
    SSL_set_accept_state(t->ssl);
    t->server = tls_server_hold(server);
    return true;
}
