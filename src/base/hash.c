#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

struct hash_key hash_key_random(void)
{
    struct hash_key key;
    if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key) {
        perror("weir: getrandom");
        abort();
    }
    return key;
}

static inline uint64_t rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13), v[1] ^= v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16), v[3] ^= v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21), v[3] ^= v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17), v[1] ^= v[2], v[2] = rotate(v[2], 32);
}

static inline void sip_begin(uint64_t v[4], const struct hash_key *key)
{
    v[0] = key->k0 ^ 0x736f6d6570736575u;
    v[1] = key->k1 ^ 0x646f72616e646f6du;
    v[2] = key->k0 ^ 0x6c7967656e657261u;
    v[3] = key->k1 ^ 0x7465646279746573u;
}

static inline void sip_take(uint64_t v[4], struct slice s)
{
    size_t whole = s.n & ~(size_t)7;
    uint64_t word;

    for (size_t i = 0; i < whole; i += 8) {
        memcpy(&word, s.p + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)s.n << 56;
    for (size_t i = whole; i < s.n; i++)
        word |= (uint64_t)(unsigned char)s.p[i] << 8 * (i - whole);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t sip_end(uint64_t v[4])
{
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_slice(const struct hash_key *key, struct slice s)
{
    uint64_t v[4];

    sip_begin(v, key);
    sip_take(v, s);
    v[2] ^= 0xff;
    return sip_end(v);
}

/* The 128-bit output variant of SipHash. */
static inline void sip_end_128(uint64_t v[4], uint64_t hash[2])
{
    v[2] ^= 0xee;
    hash[0] = sip_end(v);
    v[1] ^= 0xdd;
    hash[1] = sip_end(v);
}

void hash_slice_128(const struct hash_key *key, struct slice s, uint64_t hash[2])
{
    uint64_t v[4];

    sip_begin(v, key);
    v[1] ^= 0xee;
    sip_take(v, s);
    sip_end_128(v, hash);
}

/* The size of `a` says where `b` begins. */
void hash_slices_128(const struct hash_key *key, struct slice a, struct slice b, uint64_t hash[2])
{
    uint64_t v[4];

    sip_begin(v, key);
    v[1] ^= 0xee ^ a.n << 8;
    sip_take(v, a);
    sip_take(v, b);
    sip_end_128(v, hash);
}

void hash_key_mix(struct hash_key *key, struct slice text)
{
    uint64_t hash[2];

    hash_slice_128(key, text, hash);
    key->k0 ^= hash[0];
    key->k1 ^= hash[1];
}

uint64_t fnv_text(uint64_t hash, struct slice text)
{
    for (size_t i = 0; i < text.n; i++)
        hash = fnv_byte(hash, text.p[i]);
    return hash;
}
