/* sha256.h - SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), without allocation. */
#ifndef WEIR_BASE_SHA256_H
#define WEIR_BASE_SHA256_H

#include <stdint.h>

#include "base/slice.h"

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 }; /* bytes */

struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes hashed so far */
    unsigned char block[SHA256_BLOCK];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, struct slice bytes);
void sha256_end(struct sha256 *hash, unsigned char digest[static SHA256_SIZE]);

/* A key, prepared once: each HMAC then saves hashing it. */
struct hmac_key {
    struct sha256 inner, outer;
};

void hmac_key_init(struct hmac_key *key, struct slice bytes);

/* Begins an HMAC; add its bytes with sha256_add(). */
static inline struct sha256 hmac_begin(const struct hmac_key *key)
{
    return key->inner;
}
void hmac_end(const struct hmac_key *key, struct sha256 *hash,
              unsigned char digest[static SHA256_SIZE]);

#endif
