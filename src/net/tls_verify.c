/* tls_verify.c - TLS server: verification of the clients' certificates.
 *
 * Every certificate in client_ca is a trust anchor, also one of an intermediate authority. With
 * client_crl, a revocation list is required for the issuer of every certificate of the chain,
 * except for that of the anchor (RFC 5280 section 6.1: it is not part of the path).
 *
 * A client that resumes a session is not verified again. Its ticket therefore ends with the first
 * certificate of the chain, or with the first revocation list of its issuers. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/tls_certificate.h"
#include "net/tls_internal.h"

enum {
    FILE_MAX = 64 << 20,
    CHAIN_BYTES_MAX = 32 * 1024, /* of the client's certificates in a handshake */
    CHAIN_DEPTH_MAX = 8,
    NAMES_BYTES_MAX = 16 * 1024 /* of the authorities' names in a handshake; more: none are sent */
};

struct tls_clients {
    bool optional;
    X509_STORE *store;
    STACK_OF(X509_NAME) * names; /* of the authorities */
    char *crl_path;              /* NULL: no revocation lists */
    STACK_OF(X509_CRL) * lists;  /* the latest of each issuer and scope, which OpenSSL uses */
    unsigned char digest[SHA256_DIGEST_LENGTH]; /* of all that verification depends on */
};

void tls_clients_free(struct tls_clients *clients)
{
    if (!clients)
        return;
    X509_STORE_free(clients->store);
    sk_X509_NAME_pop_free(clients->names, X509_NAME_free);
    sk_X509_CRL_pop_free(clients->lists, X509_CRL_free);
    free(clients->crl_path);
    free(clients);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads a whole file, so that the digest is that of the bytes that are used. Returns NULL and sets
 * `why` on failure. */
static BIO *read_to_memory(const char *path, char why[static TLS_WHY_MAX])
{
    FILE *file = tls_can_be_read(path, why) ? fopen(path, "re") : NULL;
    BIO *memory = file ? BIO_new(BIO_s_mem()) : NULL;
    char bytes[4096];
    size_t n, size = 0;

    while (memory && (n = fread(bytes, 1, sizeof bytes, file)) > 0) {
        size += n;
        if (size <= FILE_MAX && BIO_write(memory, bytes, (int)n) == (int)n)
            continue;
        snprintf(why, TLS_WHY_MAX,
                 size > FILE_MAX ? "is larger than 64 MiB" : "cannot be used: no memory");
        BIO_free(memory);
        memory = NULL;
    }
    if (file)
        fclose(file);
    return memory;
}

/* Returns whether PEM_read_bio_*() has returned NULL because there is nothing more in the file. */
static bool at_end_of_pem(void)
{
    unsigned long error = ERR_peek_last_error();
    return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

static void digest_add(EVP_MD_CTX *digest, BIO *memory)
{
    char *bytes;
    long size = BIO_get_mem_data(memory, &bytes);

    EVP_DigestUpdate(digest, &size, sizeof size); /* a boundary between two files */
    EVP_DigestUpdate(digest, bytes, (size_t)size);
}

static bool add_authority(struct tls_clients *clients, X509 *certificate)
{
    X509_NAME *name = X509_NAME_dup(X509_get_subject_name(certificate));
    bool good = name && sk_X509_NAME_push(clients->names, name) > 0;

    if (!good)
        X509_NAME_free(name);
    return good && X509_STORE_add_cert(clients->store, certificate) == 1;
}

static bool load_authorities(struct tls_clients *clients, BIO *memory, char why[static TLS_WHY_MAX])
{
    unsigned count = 0;
    bool good = true;
    X509 *certificate;

    ERR_clear_error();
    while (good && (certificate = PEM_read_bio_X509(memory, NULL, NULL, NULL))) {
        good = add_authority(clients, certificate);
        X509_free(certificate);
        count++;
    }
    if (good && count && at_end_of_pem()) {
        ERR_clear_error();
        return true;
    }
    tls_describe_error(why, "certificate");
    return false;
}

static int compare_extensions(const X509_CRL *one, const X509_CRL *other, int nid)
{
    int at = X509_CRL_get_ext_by_NID(one, nid, -1);
    int other_at = X509_CRL_get_ext_by_NID(other, nid, -1);

    if (at < 0 || other_at < 0)
        return (at >= 0) - (other_at >= 0);
    return ASN1_OCTET_STRING_cmp(X509_EXTENSION_get_data(X509_CRL_get_ext(one, at)),
                                 X509_EXTENSION_get_data(X509_CRL_get_ext(other, other_at)));
}

/* Compares what two lists are about: their issuer, its key, and their scope (RFC 5280 sections
 * 5.2.1 and 5.2.5). */
static int compare_subjects(const X509_CRL *one, const X509_CRL *other)
{
    int issuers = X509_NAME_cmp(X509_CRL_get_issuer(one), X509_CRL_get_issuer(other));
    int keys = compare_extensions(one, other, NID_authority_key_identifier);

    return issuers ? issuers
           : keys  ? keys
                   : compare_extensions(one, other, NID_issuing_distribution_point);
}

static int compare_lists(const X509_CRL *const *one, const X509_CRL *const *other)
{
    int subjects = compare_subjects(*one, *other);

    return subjects ? subjects
                    : ASN1_TIME_compare(X509_CRL_get0_lastUpdate(*one),
                                        X509_CRL_get0_lastUpdate(*other));
}

/* Keeps the latest of several lists about the same. OpenSSL would use an earlier one if the latest
 * has expired. */
static void drop_superseded(STACK_OF(X509_CRL) * lists)
{
    sk_X509_CRL_set_cmp_func(lists, compare_lists);
    sk_X509_CRL_sort(lists);
    for (int i = sk_X509_CRL_num(lists) - 1; i > 0; i--)
        if (compare_subjects(sk_X509_CRL_value(lists, i - 1), sk_X509_CRL_value(lists, i)) == 0)
            X509_CRL_free(sk_X509_CRL_delete(lists, i - 1));
}

/* Returns when the first list of `issuer` (NULL: of all) expires that has not expired at `now_s`;
 * INT64_MAX: none does. */
static int64_t lists_until(const struct tls_clients *clients, const X509_NAME *issuer,
                           int64_t now_s)
{
    int64_t until_s = INT64_MAX, one_s;

    for (int i = 0; i < sk_X509_CRL_num(clients->lists); i++) {
        const X509_CRL *crl = sk_X509_CRL_value(clients->lists, i);
        const ASN1_TIME *next = X509_CRL_get0_nextUpdate(crl);
        if ((!issuer || X509_NAME_cmp(X509_CRL_get_issuer(crl), issuer) == 0) && next &&
            tls_seconds_of(next, &one_s) && one_s > now_s && one_s < until_s)
            until_s = one_s;
    }
    return until_s;
}

static bool read_all_lists(STACK_OF(X509_CRL) * lists, BIO *memory)
{
    X509_CRL *crl;

    ERR_clear_error();
    while ((crl = PEM_read_bio_X509_CRL(memory, NULL, NULL, NULL)))
        if (sk_X509_CRL_push(lists, crl) <= 0) {
            X509_CRL_free(crl);
            return false;
        }
    return sk_X509_CRL_num(lists) > 0 && at_end_of_pem();
}

static bool store_lists(X509_STORE *store, STACK_OF(X509_CRL) * lists)
{
    for (int i = 0; i < sk_X509_CRL_num(lists); i++)
        if (X509_STORE_add_crl(store, sk_X509_CRL_value(lists, i)) != 1)
            return false;
    return true;
}

static bool load_lists(struct tls_clients *clients, BIO *memory, char why[static TLS_WHY_MAX])
{
    bool good = read_all_lists(clients->lists, memory);

    if (good) {
        ERR_clear_error();
        drop_superseded(clients->lists);
        good = store_lists(clients->store, clients->lists);
    }
    if (!good)
        tls_describe_error(why, "revocation list (X509 CRL)");
    return good;
}

/* OpenSSL would take a delta list (RFC 5280 section 5.2.4) for a complete one. */
static bool lists_are_whole(const struct tls_clients *clients, char why[static TLS_WHY_MAX])
{
    char name[128];

    for (int i = 0; i < sk_X509_CRL_num(clients->lists); i++) {
        const X509_CRL *crl = sk_X509_CRL_value(clients->lists, i);
        if (X509_CRL_get_ext_by_NID(crl, NID_delta_crl, -1) < 0)
            continue;
        tls_name_print(X509_CRL_get_issuer(crl), name, sizeof name);
        snprintf(why, TLS_WHY_MAX, "has a delta list of %s; weir needs complete lists", name);
        return false;
    }
    return true;
}

static bool has_list_of(const STACK_OF(X509_CRL) * lists, const X509_NAME *issuer)
{
    for (int i = 0; i < sk_X509_CRL_num(lists); i++)
        if (X509_NAME_cmp(X509_CRL_get_issuer(sk_X509_CRL_value(lists, i)), issuer) == 0)
            return true;
    return false;
}

/* Clients of an authority without a list would all be refused. */
static bool lists_are_complete(const struct tls_clients *clients, char why[static TLS_WHY_MAX])
{
    char name[128];

    for (int i = 0; i < sk_X509_NAME_num(clients->names); i++) {
        X509_NAME *authority = sk_X509_NAME_value(clients->names, i);
        if (has_list_of(clients->lists, authority))
            continue;
        tls_name_print(authority, name, sizeof name);
        snprintf(why, TLS_WHY_MAX, "has no list of the authority %s; add it", name);
        return false;
    }
    return true;
}

static bool read_authorities(struct tls_clients *clients, const char *path, EVP_MD_CTX *digest,
                             char why[static TLS_WHY_MAX])
{
    BIO *memory = read_to_memory(path, why);

    if (memory)
        digest_add(digest, memory);
    bool good = memory && load_authorities(clients, memory, why);
    BIO_free(memory);
    return good;
}

static bool read_lists(struct tls_clients *clients, const char *path, EVP_MD_CTX *digest,
                       char why[static TLS_WHY_MAX])
{
    BIO *memory = read_to_memory(path, why);

    clients->lists = sk_X509_CRL_new_null();
    if (memory)
        digest_add(digest, memory);
    bool good = memory && clients->lists && load_lists(clients, memory, why) &&
                lists_are_whole(clients, why) && lists_are_complete(clients, why);
    X509_STORE_set_flags(clients->store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    BIO_free(memory);
    return good && (clients->crl_path = strdup(path));
}

enum tls_fault tls_clients_new(const struct tls_server_settings *settings,
                               struct tls_clients **made, char why[static TLS_WHY_MAX])
{
    struct tls_clients *clients = calloc(1, sizeof *clients);
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    enum tls_fault fault = TLS_BAD_CA;

    snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    if (clients && digest && (clients->store = X509_STORE_new()) &&
        (clients->names = sk_X509_NAME_new_null()) &&
        EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 &&
        read_authorities(clients, settings->client_ca, digest, why))
        fault = TLS_GOOD;
    if (fault == TLS_GOOD) {
        X509_STORE_set_flags(clients->store, X509_V_FLAG_PARTIAL_CHAIN);
        clients->optional = settings->client_optional;
        if (settings->client_crl && !read_lists(clients, settings->client_crl, digest, why))
            fault = TLS_BAD_CRL;
        EVP_DigestUpdate(digest, &clients->optional, sizeof clients->optional);
        EVP_DigestFinal_ex(digest, clients->digest, NULL);
    }
    EVP_MD_CTX_free(digest);
    if (fault != TLS_GOOD) {
        tls_clients_free(clients);
        clients = NULL;
    }
    *made = clients;
    return fault;
}

bool tls_clients_same(const struct tls_clients *one, const struct tls_clients *other)
{
    return one && other ? memcmp(one->digest, other->digest, sizeof one->digest) == 0
                        : one == other;
}

const char *tls_clients_crl(const struct tls_clients *clients, int64_t *until_s)
{
    *until_s = clients ? lists_until(clients, NULL, INT64_MIN) : INT64_MAX;
    return clients ? clients->crl_path : NULL;
}

/* ---- verification ---------------------------------------------------------------------------- */

/* An anchor above the client's certificate needs no revocation list. */
static bool is_about_anchor(X509_STORE_CTX *store, int error)
{
    int depth = X509_STORE_CTX_get_error_depth(store);
    bool of_list = error == X509_V_ERR_UNABLE_TO_GET_CRL ||
                   error == X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER ||
                   error == X509_V_ERR_CRL_HAS_EXPIRED;

    return of_list && depth > 0 && depth == sk_X509_num(X509_STORE_CTX_get0_chain(store)) - 1;
}

/* The first error ends the handshake. Its certificate is named in the log. */
static int on_verified(int good, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_session *t = SSL_get_app_data(ssl);
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    int error = X509_STORE_CTX_get_error(store);

    if (good)
        return 1;
    if (is_about_anchor(store, error)) {
        X509_STORE_CTX_set_error(store, X509_V_OK);
        return 1;
    }
    if (t && !t->verify_error) {
        t->verify_error = error;
        if (certificate && (t->verdict = malloc(TLS_WHY_MAX)))
            tls_name_print(X509_get_subject_name(certificate), t->verdict, TLS_WHY_MAX);
    }
    return 0;
}

/* A resumed session has the time in its ticket. */
int64_t tls_verified_until(const SSL *ssl, const struct tls_clients *clients)
{
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    int64_t until_s = INT64_MAX, now_s = (int64_t)(clock_wall_us() / 1000000), one_s;
    int count = sk_X509_num(chain);
    size_t size;
    void *data;

    for (int i = 0; i < count; i++) {
        const X509 *one = sk_X509_value(chain, i);
        if (tls_seconds_of(X509_get0_notAfter(one), &one_s) && one_s < until_s)
            until_s = one_s;
        one_s = i == 0 || i < count - 1 ? lists_until(clients, X509_get_issuer_name(one), now_s)
                                        : INT64_MAX; /* an anchor, see is_about_anchor() */
        until_s = one_s < until_s ? one_s : until_s;
    }
    if (SSL_session_reused(ssl) &&
        SSL_SESSION_get0_ticket_appdata(SSL_get_session(ssl), &data, &size) == 1 &&
        size == sizeof until_s)
        memcpy(&until_s, data, sizeof until_s);
    return until_s;
}

struct tls_certificate *tls_client_certificate(const struct stream *s, bool *has)
{
    const struct tls_session *t = s->session;
    X509 *certificate = SSL_get0_peer_certificate(t->ssl);

    *has = certificate != NULL;
    if (!certificate)
        return NULL;
    return tls_certificate_new(certificate,
                               tls_verified_until(t->ssl, tls_server_clients(t->server)));
}

/* ---- tickets --------------------------------------------------------------------------------- */

static int on_ticket_made(SSL *ssl, void *arg)
{
    int64_t until_s = tls_verified_until(ssl, arg);

    return SSL_session_reused(ssl) || !SSL_get0_peer_certificate(ssl) ||
           SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), &until_s, sizeof until_s) == 1;
}

/* Returns whether a client with this session need not be verified again. */
static bool is_still_verified(const struct tls_clients *clients, SSL_SESSION *session)
{
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000), until_s;
    size_t size = 0;
    void *data;

    if (!SSL_SESSION_get0_peer(session))
        return clients->optional;
    if (SSL_SESSION_get0_ticket_appdata(session, &data, &size) != 1 || size != sizeof until_s)
        return false;
    memcpy(&until_s, data, sizeof until_s);
    return now_s < until_s;
}

/* A refused ticket leads to a full handshake. */
static SSL_TICKET_RETURN on_ticket_read(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                        size_t size, SSL_TICKET_STATUS status, void *arg)
{
    (void)ssl, (void)name, (void)size;

    if ((status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) ||
        !is_still_verified(arg, session))
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* RFC 8446 section 4.2.4: the names of the authorities help clients to choose a certificate. */
static bool offer_names(const struct tls_clients *clients, SSL_CTX *ctx)
{
    long size = 0;

    for (int i = 0; i < sk_X509_NAME_num(clients->names); i++)
        size += i2d_X509_NAME(sk_X509_NAME_value(clients->names, i), NULL);
    if (size > NAMES_BYTES_MAX)
        return true;
    STACK_OF(X509_NAME) *names = SSL_dup_CA_list(clients->names);
    if (names)
        SSL_CTX_set_client_CA_list(ctx, names);
    return names != NULL;
}

bool tls_clients_apply(struct tls_clients *clients, SSL_CTX *ctx)
{
    int mode = SSL_VERIFY_PEER | (clients->optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT);

    SSL_CTX_set_verify(ctx, mode, on_verified);
    SSL_CTX_set_verify_depth(ctx, CHAIN_DEPTH_MAX);
    SSL_CTX_set_max_cert_list(ctx, CHAIN_BYTES_MAX);
    return SSL_CTX_set1_verify_cert_store(ctx, clients->store) == 1 &&
           SSL_CTX_set_session_id_context(ctx, clients->digest, sizeof clients->digest) == 1 &&
           SSL_CTX_set_session_ticket_cb(ctx, on_ticket_made, on_ticket_read, clients) == 1 &&
           offer_names(clients, ctx);
}
