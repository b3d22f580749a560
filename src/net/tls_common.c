/* tls_common.c - settings shared by TLS client and server. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <time.h>

#include "net/tls_internal.h"

SSL_CTX *tls_context_new(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (!ctx)
        return NULL;
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
        !SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20")) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    /* Data offered again may have moved; idle connections keep no buffers. AUTO_RETRY is off:
     * SSL_read returns after a handshake message, so a peer that sends only such messages does not
     * block the worker. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    return ctx;
}

/* Refuses a key with a passphrase: there is no user to ask. */
static int no_passphrase(char *buffer, int size, int writing, void *arg)
{
    bool *passphrase_requested = arg;
    (void)buffer, (void)size, (void)writing;
    *passphrase_requested = true;
    return -1;
}

void tls_describe_error(char why[static TLS_WHY_MAX], const char *wanted)
{
    unsigned long error = ERR_peek_error();
    const char *reason =
        ERR_SYSTEM_ERROR(error) ? strerror(ERR_GET_REASON(error)) : ERR_reason_error_string(error);

    if (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE)
        snprintf(why, TLS_WHY_MAX, "contains no PEM %s", wanted);
    else if (ERR_GET_LIB(error) == ERR_LIB_X509 &&
             ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH)
        snprintf(why, TLS_WHY_MAX, "is not the key of the certificate");
    else if (ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE)
        snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    else
        snprintf(why, TLS_WHY_MAX, "is not a usable %s: %s", wanted,
                 reason ? reason : "unknown fault");
    ERR_clear_error();
}

bool tls_can_be_read(const char *path, char why[static TLS_WHY_MAX])
{
    FILE *file = fopen(path, "re");
    int c = file ? fgetc(file) : EOF; /* fopen succeeds on a directory */
    bool good = file && !ferror(file);

    (void)c;
    if (!good)
        snprintf(why, TLS_WHY_MAX, "cannot be read: %s", strerror(errno));
    if (file)
        fclose(file);
    return good;
}

void tls_name_print(const X509_NAME *name, char *text, size_t size)
{
    BIO *memory = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    long n = memory && X509_NAME_print_ex(memory, name, 0, XN_FLAG_RFC2253) >= 0
                 ? BIO_get_mem_data(memory, &bytes)
                 : 0;

    snprintf(text, size, "%.*s", (int)n, n > 0 ? bytes : "");
    BIO_free(memory);
}

bool tls_seconds_of(const ASN1_TIME *time, int64_t *seconds)
{
    struct tm tm;

    if (ASN1_TIME_to_tm(time, &tm) != 1)
        return false;
    *seconds = timegm(&tm);
    return true;
}

/* Reads the dates of one certificate. Returns false if there are no more. */
static bool read_one(FILE *file, struct tls_dates *dates)
{
    X509 *certificate = PEM_read_X509(file, NULL, no_passphrase, &(bool){false});
    int64_t from, until;

    if (!certificate)
        return false;
    if (tls_seconds_of(X509_get0_notBefore(certificate), &from) && from > dates->from_s)
        dates->from_s = from;
    if (tls_seconds_of(X509_get0_notAfter(certificate), &until) && until < dates->until_s)
        dates->until_s = until;
    X509_free(certificate);
    return true;
}

bool tls_read_dates(const char *path, struct tls_dates *dates)
{
    FILE *file = fopen(path, "re");
    bool any = false;

    *dates = (struct tls_dates){INT64_MIN, INT64_MAX};
    while (file && read_one(file, dates))
        any = true;
    ERR_clear_error();
    if (file)
        fclose(file);
    return any;
}

enum tls_fault tls_load_pair(SSL_CTX *ctx, const char *certificate, const char *key,
                             char why[static TLS_WHY_MAX])
{
    ERR_clear_error();
    if (!tls_can_be_read(certificate, why))
        return TLS_BAD_CERTIFICATE;
    if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1) {
        tls_describe_error(why, "certificate");
        return TLS_BAD_CERTIFICATE;
    }
    if (!tls_can_be_read(key, why))
        return TLS_BAD_KEY;
    bool passphrase_requested = false;
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &passphrase_requested);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1) {
        tls_describe_error(why, "private key");
        if (passphrase_requested)
            snprintf(why, TLS_WHY_MAX, "needs a passphrase; remove it from the key");
        return TLS_BAD_KEY;
    }
    return TLS_GOOD;
}
