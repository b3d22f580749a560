#include "net/tls_certificate.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "net/tls_internal.h"

/* Returns whether valid UTF-8 contains a control character: U+0000 to U+001F, U+007F to U+009F. */
static bool has_controls(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] < ' ' || bytes[i] == 0x7f ||
            (bytes[i] == 0xc2 && i + 1 < size && bytes[i + 1] < 0xa0))
            return true;
    return false;
}

static bool is_visible_ascii(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] < ' ' || bytes[i] >= 0x7f)
            return false;
    return true;
}

/* Sets `*bytes`, which the caller frees with OPENSSL_free(). Returns its size; 0: no common name.
 * Several could be read differently by weir and by a server. */
static size_t common_name(X509 *certificate, unsigned char **bytes)
{
    const X509_NAME *subject = X509_get_subject_name(certificate);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return 0;
    int size =
        ASN1_STRING_to_UTF8(bytes, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    return size > 0 && !has_controls(*bytes, (size_t)size) ? (size_t)size : 0;
}

/* Returns the first name in `names`; its bytes belong to them. */
static struct slice alternative_name(const GENERAL_NAMES *names)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        int type;
        const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
        if (type != GEN_DNS && type != GEN_URI && type != GEN_EMAIL)
            continue;
        const unsigned char *bytes = ASN1_STRING_get0_data(value);
        size_t size = (size_t)ASN1_STRING_length(value);
        if (!is_visible_ascii(bytes, size))
            break;
        return (struct slice){(const char *)bytes, size};
    }
    return SLICE("");
}

/* Writes the subject to `memory`, which owns the bytes. */
static struct slice subject_text(X509 *certificate, BIO *memory)
{
    char *bytes;

    if (!memory || X509_NAME_entry_count(X509_get_subject_name(certificate)) == 0 ||
        X509_NAME_print_ex(memory, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) < 0)
        return SLICE("");
    long size = BIO_get_mem_data(memory, &bytes);
    if (size > 0 && bytes[size - 1] == ' ') { /* in a field's value it would be dropped */
        bytes[size - 1] = '2';
        size = BIO_write(memory, "0", 1) == 1 ? BIO_get_mem_data(memory, &bytes) : 0;
    }
    return size > 0 && size <= TLS_SUBJECT_MAX ? (struct slice){bytes, (size_t)size} : SLICE("");
}

static struct slice fingerprint_text(X509 *certificate, char digits[static TLS_FINGERPRINT_DIGITS])
{
    struct text text = text_over(digits, TLS_FINGERPRINT_DIGITS);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;

    if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1 ||
        size != TLS_FINGERPRINT_DIGITS / 2)
        return SLICE("");
    for (unsigned i = 0; i < size; i++)
        text_hex_fixed(&text, digest[i], 2);
    return text_slice(&text);
}

/* Copies the names into one block. */
static struct tls_certificate *copy_names(const struct slice names[static 4], int64_t until_s)
{
    size_t size = names[0].n + names[1].n + names[2].n + names[3].n;
    struct tls_certificate *made = malloc(sizeof *made + size);
    struct slice *copies[] = {made ? &made->cn : NULL, made ? &made->san : NULL,
                              made ? &made->fingerprint : NULL, made ? &made->subject : NULL};
    char *at = made ? made->bytes : NULL;

    if (!made)
        return NULL;
    made->until_s = until_s;
    for (unsigned i = 0; i < 4; i++) {
        memcpy(at, names[i].p, names[i].n);
        *copies[i] = (struct slice){at, names[i].n};
        at += names[i].n;
    }
    return made;
}

struct tls_certificate *tls_certificate_new(X509 *certificate, int64_t until_s)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    BIO *memory = BIO_new(BIO_s_mem());
    char digits[TLS_FINGERPRINT_DIGITS];
    unsigned char *cn = NULL;
    size_t cn_size = common_name(certificate, &cn);
    const struct slice found[] = {{cn_size ? (char *)cn : "", cn_size},
                                  alternative_name(names),
                                  fingerprint_text(certificate, digits),
                                  subject_text(certificate, memory)};
    struct tls_certificate *made = memory && found[2].n ? copy_names(found, until_s) : NULL;

    OPENSSL_free(cn);
    BIO_free(memory);
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return made;
}

static X509 *read_pem(const char *file, const char **why)
{
    FILE *in = fopen(file, "re");
    X509 *certificate = in ? PEM_read_X509(in, NULL, NULL, NULL) : NULL;

    *why = in ? "there is no certificate in PEM format" : strerror(errno);
    if (in)
        fclose(in);
    ERR_clear_error();
    return certificate;
}

struct tls_certificate *tls_certificate_read(const char *file, const char **why)
{
    X509 *certificate = read_pem(file, why);
    struct tls_certificate *made = NULL;

    if (!certificate)
        return NULL;
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0)
        *why = "it is not valid yet, so no connection is accepted with it";
    else if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        *why = "it has expired, so no connection is accepted with it";
    else if (!(made = tls_certificate_new(certificate, INT64_MAX)))
        *why = "out of memory";
    X509_free(certificate);
    return made;
}
