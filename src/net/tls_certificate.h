/* tls_certificate.h - what weir reads of a client's verified certificate, once per connection. */
#ifndef WEIR_NET_TLS_CERTIFICATE_H
#define WEIR_NET_TLS_CERTIFICATE_H

#include "base/slice.h"

enum {
    TLS_FINGERPRINT_DIGITS = 64,
    TLS_SUBJECT_MAX = 4096 /* bytes of a subject that is forwarded */
};

/* Names are empty if the certificate has none, or none that weir accepts. */
struct tls_certificate {
    /* Common name, in UTF-8. Empty: the subject has none or several, or one with control
     * characters. */
    struct slice cn;
    /* First DNS name, URI or e-mail address of the subject alternative names, in their order.
     * Empty: there is none, or it has control characters or is not ASCII. */
    struct slice san;
    struct slice fingerprint; /* SHA-256 of the certificate, lower-case hexadecimal */
    /* Subject as text (RFC 4514), in ASCII: other characters are escaped bytes of UTF-8. Empty: the
     * subject is empty, or longer than TLS_SUBJECT_MAX. */
    struct slice subject;
    /* Time at which the first certificate of the verified chain, or revocation list of their
     * issuers, expires, in seconds since 1970. */
    int64_t until_s;
    char bytes[]; /* of the slices */
};

/* Reads the first certificate of a PEM file as that of a client, without verifying who has issued
 * it. Returns NULL if that is not possible, or if it is not valid now, with the reason `*why`. The
 * caller frees the result. Blocks. */
MUST_CHECK struct tls_certificate *tls_certificate_read(const char *file, const char **why);

#endif
