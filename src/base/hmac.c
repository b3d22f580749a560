#include "base/hmac.h"

#include <string.h>

enum { BLOCK = SHA256_CBLOCK }; /* bytes */

/* Begins a hash with the key, each byte combined with `pad`. */
static void begin_padded(SHA256_CTX *hash, const unsigned char key[static BLOCK], unsigned char pad)
{
    unsigned char block[BLOCK];

    for (unsigned i = 0; i < BLOCK; i++)
        block[i] = key[i] ^ pad;
    SHA256_Init(hash);
    SHA256_Update(hash, block, sizeof block);
}

void hmac_key_init(struct hmac_key *key, struct slice bytes)
{
    unsigned char block[BLOCK] = {0};

    if (bytes.n > sizeof block)
        SHA256((const unsigned char *)bytes.p, bytes.n, block);
    else if (bytes.n)
        memcpy(block, bytes.p, bytes.n);
    begin_padded(&key->inner, block, 0x36);
    begin_padded(&key->outer, block, 0x5c);
}

void hmac_add(SHA256_CTX *hash, struct slice bytes)
{
    SHA256_Update(hash, bytes.p, bytes.n);
}

void hmac_end(const struct hmac_key *key, SHA256_CTX *hash, unsigned char digest[static HMAC_SIZE])
{
    unsigned char inner[HMAC_SIZE];

    SHA256_Final(inner, hash);
    *hash = key->outer;
    SHA256_Update(hash, inner, sizeof inner);
    SHA256_Final(digest, hash);
}
