/* tls_failure.c - TLS server: why a handshake with a client failed. */
#include <openssl/err.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_throttle.h"
#include "net/address.h"
#include "net/tls_internal.h"

const struct tls_failure_row tls_failure_table[TLS_FAILURE_COUNT] = {
#define X(name, label, remedy) [name] = {label, remedy},
    TLS_FAILURES(X)
#undef X
};

void tls_failure_log(struct log_throttle *throttles, enum tls_failure failure,
                     const struct address *peer, const struct address *listener,
                     const char *subject)
{
    const struct tls_failure_row *row = &tls_failure_table[failure];
    char text[2][ADDRESS_TEXT_MAX];
    uint64_t suppressed;

    if (!row->remedy || !log_throttle_allows(&throttles[failure], clock_us(), &suppressed))
        return;
    log_warn("client %s on %s: TLS handshake refused, %s: %s%s%s%s", address_format(peer, text[0]),
             address_format(listener, text[1]), row->label, row->remedy,
             subject ? "; subject: " : "", subject ? subject : "",
             log_throttle_more(suppressed).text);
}

static enum tls_failure failure_of_certificate(int error)
{
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return TLS_FAILURE_EXPIRED;
    case X509_V_ERR_CERT_NOT_YET_VALID: return TLS_FAILURE_NOT_YET_VALID;
    case X509_V_ERR_CERT_REVOKED: return TLS_FAILURE_REVOKED;
    case X509_V_ERR_CRL_HAS_EXPIRED:
    case X509_V_ERR_CRL_NOT_YET_VALID: return TLS_FAILURE_CRL_EXPIRED;
    case X509_V_ERR_UNABLE_TO_GET_CRL:
    case X509_V_ERR_UNABLE_TO_GET_CRL_ISSUER:
    case X509_V_ERR_DIFFERENT_CRL_SCOPE: return TLS_FAILURE_CRL_MISSING;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE: return TLS_FAILURE_UNKNOWN_CA;
    default: return TLS_FAILURE_BAD_CERTIFICATE;
    }
}

enum tls_failure tls_failure_of(int verify_error, unsigned long fault)
{
    int reason = ERR_GET_REASON(fault);

    if (verify_error)
        return failure_of_certificate(verify_error);
    if (fault == 0 || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING || ERR_SYSTEM_ERROR(fault))
        return TLS_FAILURE_CLOSED;
    if (ERR_GET_LIB(fault) != ERR_LIB_SSL)
        return TLS_FAILURE_OTHER;
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return TLS_FAILURE_NO_CERTIFICATE;
    case SSL_R_HTTP_REQUEST: return TLS_FAILURE_PLAIN_HTTP;
    case ERR_R_MALLOC_FAILURE: return TLS_FAILURE_OTHER;
    default: break;
    }
    return reason >= SSL_AD_REASON_OFFSET ? TLS_FAILURE_ALERT : TLS_FAILURE_PROTOCOL;
}

enum tls_failure tls_accept_failure(const struct stream *s, const char **subject)
{
    const struct tls_session *t = s->session;

    *subject = t->verdict;
    return tls_failure_of(t->verify_error, t->failed ? t->fault : 0);
}
