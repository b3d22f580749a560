/* certificates.h - the certificates and revocation lists of a policy, with their expiry times. */
#ifndef WEIR_ADMIN_CERTIFICATES_H
#define WEIR_ADMIN_CERTIFICATES_H

#include "policy/policy.h"

enum { CERTIFICATES_LISTED_MAX = 256 };

struct certificate {
    const char *path; /* valid as long as the policy */
    int64_t until_s;  /* Unix time */
    bool is_crl;      /* a file of revocation lists: the time of the first that expires */
};

/* Lists the files of certificates of listeners, of redis.tls and of upstreams, and client_crl of
 * listeners: each once, and the first CERTIFICATES_LISTED_MAX. Returns their number. */
unsigned certificates_list(const struct policy *policy,
                           struct certificate found[static CERTIFICATES_LISTED_MAX]);

#endif
