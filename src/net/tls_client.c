/* tls_client.c - TLS client: trusted authorities, and checks of the server's certificate. */
#include <dirent.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/text.h"
#include "net/address.h"
#include "net/tls_internal.h"

enum {
    NAMES_LISTED_MAX = 3 /* maximum number of a certificate's names in a message */
};

/* Maximum age of a verification: a resumed session has none, and brings new sessions. */
static const uint64_t verified_max_us = 3600 * (uint64_t)1000000;

struct tls_client {
    SSL_CTX *ctx;
    bool verify;
};

/* ---- trusted authorities --------------------------------------------------------------------- */

/* Loads all files of a directory now. OpenSSL itself would read them while verifying a
 * certificate. */
static bool trust_directory(SSL_CTX *ctx, const char *path)
{
    char file[4096];
    bool any = false;
    DIR *directory = opendir(path);

    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (entry->d_name[0] != '.' &&
            snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < (int)sizeof file)
            any |= SSL_CTX_load_verify_file(ctx, file) == 1;
    if (directory)
        closedir(directory);
    ERR_clear_error();
    return any;
}

/* Loads the system's authorities from one file, where distributions have it; else from a directory.
 * If SSL_CERT_DIR is set, only directories are used. */
static bool trust_system(SSL_CTX *ctx)
{
    const char *files[] = {getenv(X509_get_default_cert_file_env()),
                           X509_get_default_cert_file(),
                           "/etc/ssl/certs/ca-certificates.crt", /* Debian, Arch, Gentoo */
                           "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, Red Hat */
                           "/etc/ssl/ca-bundle.pem",             /* SUSE */
                           "/etc/ssl/cert.pem"};                 /* Alpine */
    const char *directory = getenv(X509_get_default_cert_dir_env());

    for (unsigned i = directory ? COUNT_OF(files) : 0; i < COUNT_OF(files); i++)
        if (files[i] && SSL_CTX_load_verify_file(ctx, files[i]) == 1)
            return true;
    ERR_clear_error();
    return trust_directory(ctx, directory ? directory : X509_get_default_cert_dir());
}

static enum tls_fault load_trust(SSL_CTX *ctx, const char *ca, char why[static TLS_WHY_MAX])
{
    if (!ca && !trust_system(ctx)) {
        snprintf(why, TLS_WHY_MAX,
                 "requires the certificate authorities of the system, and there are none (Debian "
                 "package ca-certificates); set ca to a file");
        return TLS_BAD_CA;
    }
    if (ca && !tls_can_be_read(ca, why))
        return TLS_BAD_CA;
    ERR_clear_error();
    if (ca && SSL_CTX_load_verify_file(ctx, ca) != 1) {
        tls_describe_error(why, "certificate");
        return TLS_BAD_CA;
    }
    /* certificates in that file are trusted, including intermediates and server certificates */
    if (ca)
        X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ctx), X509_V_FLAG_PARTIAL_CHAIN);
    return TLS_GOOD;
}

/* ---- errors in a certificate ----------------------------------------------------------------- */

/* Writes an untrusted name: visible ASCII only, with limited length. */
static void put_shown(struct text *out, const unsigned char *bytes, int n)
{
    for (int i = 0; i < n && i < 64; i++)
        text_char(out, bytes[i] > ' ' && bytes[i] <= '~' ? (char)bytes[i] : '?');
}

/* Writes "a.test, b.test and others". */
static void put_names(struct text *out, X509 *certificate)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int listed = 0, count = names ? sk_GENERAL_NAME_num(names) : 0;

    for (int i = 0; i < count; i++) {
        int type;
        const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
        if (type != GEN_DNS)
            continue;
        if (listed == NAMES_LISTED_MAX) {
            text_literal(out, " and others");
            break;
        }
        text_put(out, listed++ ? SLICE(", ") : SLICE_NONE);
        put_shown(out, ASN1_STRING_get0_data(value), ASN1_STRING_length(value));
    }
    if (!listed)
        text_literal(out, "no host name in its subjectAltName; a common name does not count");
    GENERAL_NAMES_free(names);
}

static void put_time(struct text *out, const ASN1_TIME *time)
{
    struct tm tm;
    char day[16];

    if (ASN1_TIME_to_tm(time, &tm) == 1 && strftime(day, sizeof day, "%Y-%m-%d", &tm))
        text_put(out, slice_of(day));
}

static void put_issuer(struct text *out, X509 *certificate)
{
    char name[80];
    int n = X509_NAME_get_text_by_NID(X509_get_issuer_name(certificate), NID_commonName, name,
                                      sizeof name);

    if (n > 0)
        put_shown(out, (const unsigned char *)name, n);
    else
        text_literal(out, "without a name");
}

static void put_verdict(struct text *out, int error, X509 *certificate, const char *host)
{
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        text_literal(out, "its certificate, or one in its chain, expired on ");
        put_time(out, X509_get0_notAfter(certificate));
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        text_literal(out, "its certificate, or one in its chain, is not valid before ");
        put_time(out, X509_get0_notBefore(certificate));
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        text_printf(out, "its certificate is not valid for %.128s but for ", host);
        put_names(out, certificate);
        text_literal(out, " (tls.server_name says another)");
        break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        text_literal(out, "its certificate is self-signed and not trusted (see tls.ca)");
        break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        text_literal(out,
                     "its certificate is from an authority that is not trusted (see tls.ca): ");
        put_issuer(out, certificate);
        text_literal(out, " (tls.ca names others)");
        break;
    default:
        text_printf(out, "its certificate is refused: %s", X509_verify_cert_error_string(error));
    }
}

/* The first error ends the handshake. The message is written now, while the certificate is
 * available. */
static int on_verified(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_session *t = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);

    if (good)
        return 1;
    if (!t->verify_error)
        t->verify_error = X509_STORE_CTX_get_error(store);
    if (!t->verdict && certificate && (t->verdict = malloc(TLS_WHY_MAX))) {
        struct text out = text_over(t->verdict, TLS_WHY_MAX - 1);
        put_verdict(&out, X509_STORE_CTX_get_error(store), certificate, t->host);
        t->verdict[out.n] = 0;
    }
    return 0;
}

bool tls_connect_was_closed(const struct stream *s)
{
    const struct tls_session *t = s->session;

    return !t->verdict && (ERR_GET_REASON(t->fault) == SSL_R_UNEXPECTED_EOF_WHILE_READING ||
                           !ERR_reason_error_string(t->fault));
}

void tls_connect_failure(const struct stream *s, char why[static TLS_WHY_MAX])
{
    const struct tls_session *t = s->session;

    if (t->verdict)
        snprintf(why, TLS_WHY_MAX, "%s", t->verdict);
    else if (tls_connect_was_closed(s))
        snprintf(why, TLS_WHY_MAX, "it closed the connection during the TLS handshake");
    else
        snprintf(why, TLS_WHY_MAX, "no TLS handshake with it: %s",
                 ERR_reason_error_string(t->fault));
}

enum tls_problem tls_connect_problem(const struct stream *s)
{
    const struct tls_session *t = s->session;

    switch (t->verify_error) {
    case X509_V_OK: break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return TLS_PROBLEM_NAME;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: return TLS_PROBLEM_DATES;
    default: return TLS_PROBLEM_UNTRUSTED;
    }
    return ERR_GET_REASON(t->fault) == SSL_R_WRONG_VERSION_NUMBER ? TLS_PROBLEM_NOT_TLS
                                                                  : TLS_PROBLEM_OTHER;
}

/* ---- session resumption ---------------------------------------------------------------------- */

void tls_resumption_clear(struct tls_resumption *resumption)
{
    SSL_SESSION_free(resumption->session);
    resumption->session = NULL;
}

/* Called when the server offers a session to resume; with TLS 1.3, at any time after the
 * handshake. */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls_session *t = SSL_get_app_data(ssl);

    if (!t || !t->resumption)
        return 0;
    tls_resumption_clear(t->resumption);
    t->resumption->session = session;
    t->resumption->verified_us = SSL_session_reused(ssl) ? t->offered_us : t->begun_us;
    return 1; /* takes ownership of the session */
}

static void resume(struct tls_session *t)
{
    SSL_SESSION *session = t->resumption->session;

    t->begun_us = clock_us();
    t->offered_us = t->resumption->verified_us;
    if (session && t->begun_us - t->offered_us > verified_max_us)
        tls_resumption_clear(t->resumption);
    else if (session)
        (void)SSL_set_session(t->ssl, session);
}

/* ---- clients and their connections ----------------------------------------------------------- */

static enum tls_fault load(struct tls_client *client, const struct tls_client_settings *settings,
                           char why[static TLS_WHY_MAX])
{
    static const unsigned char spoken[] = "\x08http/1.1";
    SSL_CTX *ctx = client->ctx;
    enum tls_fault fault = settings->verify ? load_trust(ctx, settings->ca, why) : TLS_GOOD;

    client->verify = settings->verify;
    if (fault == TLS_GOOD && settings->certificate)
        fault = tls_load_pair(ctx, settings->certificate, settings->key, why);
    SSL_CTX_set_verify(ctx, settings->verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       settings->verify ? on_verified : NULL);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_new_session);
    if (fault == TLS_GOOD && !settings->no_alpn &&
        SSL_CTX_set_alpn_protos(ctx, spoken, sizeof spoken - 1) != 0) {
        snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
        fault = TLS_BAD_CA;
    }
    return fault;
}

enum tls_fault tls_client_new(const struct tls_client_settings *settings, struct tls_client **made,
                              char why[static TLS_WHY_MAX])
{
    struct tls_client *client = calloc(1, sizeof *client);
    enum tls_fault fault = TLS_BAD_CA;

    snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    if (client && (client->ctx = tls_context_new(TLS_client_method())))
        fault = load(client, settings, why);
    if (fault != TLS_GOOD) {
        tls_client_free(client);
        client = NULL;
    }
    *made = client;
    return fault;
}

bool tls_client_trust(struct tls_client *client, const char *ca)
{
    bool good = SSL_CTX_load_verify_file(client->ctx, ca) == 1;

    ERR_clear_error();
    return good;
}

void tls_client_free(struct tls_client *client)
{
    if (client)
        SSL_CTX_free(client->ctx);
    free(client);
}

/* RFC 6066 section 3: an IP address is not sent as server name. RFC 9110 section 4.3.4: a common
 * name is no name of a server. */
static bool expect_host(SSL *ssl, const char *host, bool verify)
{
    struct ip ip;
    bool is_ip = ip_parse(slice_of(host), &ip);

    if (!is_ip && SSL_set_tlsext_host_name(ssl, host) != 1)
        return false;
    if (!verify)
        return true;
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return is_ip ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1
                 : SSL_set1_host(ssl, host) == 1;
}

bool tls_connect(struct stream *s, struct tls_client *client, const char *host,
                 struct tls_resumption *resumption)
{
    struct tls_session *t = tls_layer_begin(s, SSL_new(client->ctx));

    if (!t || !expect_host(t->ssl, host, client->verify))
        return false;
    SSL_set_connect_state(t->ssl);
    t->host = host;
    t->resumption = resumption;
    resume(t);
    stream_want_read(s, true);
    return true;
}

bool tls_client_offer_http2(struct stream *s, bool http1)
{
    static const unsigned char spoken[] = "\x02h2\x08http/1.1"; /* preferred first */
    enum { H2_SIZE = 3 };
    struct tls_session *t = s->session;

    return SSL_set_alpn_protos(t->ssl, spoken, http1 ? sizeof spoken - 1 : H2_SIZE) == 0;
}
