#include "base/sha256.h"

static const uint32_t first_state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotate(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static inline uint32_t load(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void store(unsigned char *p, uint32_t x)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* Steps t of FIPS 180-4 section 6.2.2. Instead of moving the eight working variables, the caller
 * renames them. */
#define STEP(a, b, c, d, e, f, g, h, t)                                                            \
    do {                                                                                           \
        h += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) + constants[t] + \
             w[t];                                                                                 \
        d += h;                                                                                    \
        h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));           \
    } while (0)

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4],
                    f = state[5], g = state[6], h = state[7];

    for (unsigned t = 0; t < 16; t++)
        w[t] = load(block + 4 * t);
    for (unsigned t = 16; t < 64; t++) {
        uint32_t x = w[t - 15], y = w[t - 2];
        w[t] = w[t - 16] + w[t - 7] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) +
               (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    for (unsigned t = 0; t < 64; t += 8) {
        STEP(a, b, c, d, e, f, g, h, t);
        STEP(h, a, b, c, d, e, f, g, t + 1);
        STEP(g, h, a, b, c, d, e, f, t + 2);
        STEP(f, g, h, a, b, c, d, e, t + 3);
        STEP(e, f, g, h, a, b, c, d, t + 4);
        STEP(d, e, f, g, h, a, b, c, t + 5);
        STEP(c, d, e, f, g, h, a, b, t + 6);
        STEP(b, c, d, e, f, g, h, a, t + 7);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void sha256_begin(struct sha256 *hash)
{
    memcpy(hash->state, first_state, sizeof hash->state);
    hash->size = 0;
}

void sha256_add(struct sha256 *hash, struct slice bytes)
{
    size_t held = hash->size % SHA256_BLOCK;

    hash->size += bytes.n;
    while (bytes.n) {
        size_t n = SHA256_BLOCK - held < bytes.n ? SHA256_BLOCK - held : bytes.n;
        memcpy(hash->block + held, bytes.p, n);
        bytes = (struct slice){bytes.p + n, bytes.n - n};
        held += n;
        if (held < SHA256_BLOCK)
            return;
        add_block(hash->state, hash->block);
        held = 0;
    }
}

/* Padding: a one bit, zeros, and the size in bits (FIPS 180-4 section 5.1.1). */
void sha256_end(struct sha256 *hash, unsigned char digest[static SHA256_SIZE])
{
    static const char zeros[SHA256_BLOCK] = {0};
    uint64_t bits = hash->size * 8;
    unsigned char size[8];

    store(size, (uint32_t)(bits >> 32));
    store(size + 4, (uint32_t)bits);
    sha256_add(hash, (struct slice){"\x80", 1});
    size_t held = hash->size % SHA256_BLOCK;
    sha256_add(hash, (struct slice){zeros, (held <= 56 ? 56 : 120) - held});
    sha256_add(hash, (struct slice){(const char *)size, sizeof size});
    for (unsigned i = 0; i < 8; i++)
        store(digest + 4 * i, hash->state[i]);
}

void hmac_key_init(struct hmac_key *key, struct slice bytes)
{
    unsigned char block[SHA256_BLOCK] = {0}, pad[SHA256_BLOCK];
    struct sha256 hash;

    if (bytes.n > sizeof block) {
        sha256_begin(&hash);
        sha256_add(&hash, bytes);
        sha256_end(&hash, block);
    } else if (bytes.n) {
        memcpy(block, bytes.p, bytes.n);
    }
    sha256_begin(&key->inner);
    sha256_begin(&key->outer);
    for (unsigned i = 0; i < sizeof block; i++)
        pad[i] = block[i] ^ 0x36;
    sha256_add(&key->inner, (struct slice){(const char *)pad, sizeof pad});
    for (unsigned i = 0; i < sizeof block; i++)
        pad[i] = block[i] ^ 0x5c;
    sha256_add(&key->outer, (struct slice){(const char *)pad, sizeof pad});
}

void hmac_end(const struct hmac_key *key, struct sha256 *hash,
              unsigned char digest[static SHA256_SIZE])
{
    unsigned char inner[SHA256_SIZE];

    sha256_end(hash, inner);
    *hash = key->outer;
    sha256_add(hash, (struct slice){(const char *)inner, sizeof inner});
    sha256_end(hash, digest);
}
