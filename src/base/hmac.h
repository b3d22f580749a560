/* hmac.h - HMAC-SHA-256 (RFC 2104) with a key that is prepared once, on OpenSSL's SHA-256.
 *
 * OpenSSL's own HMAC needs an allocation per hash if threads share a key. Its SHA256_CTX is a plain
 * struct, which is copied instead. */
#ifndef WEIR_BASE_HMAC_H
#define WEIR_BASE_HMAC_H

#define OPENSSL_API_COMPAT 10100 /* OpenSSL 3 has these functions, and marks them as deprecated */
#include <openssl/sha.h>

#include "base/slice.h"

enum { HMAC_SIZE = SHA256_DIGEST_LENGTH }; /* bytes */

struct hmac_key {
    SHA256_CTX inner, outer;
};

void hmac_key_init(struct hmac_key *key, struct slice bytes);

static inline SHA256_CTX hmac_begin(const struct hmac_key *key)
{
    return key->inner;
}
void hmac_add(SHA256_CTX *hash, struct slice bytes);
void hmac_end(const struct hmac_key *key, SHA256_CTX *hash, unsigned char digest[static HMAC_SIZE]);

#endif
