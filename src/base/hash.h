/* hash.h - SipHash-1-3 with a random key, so that clients cannot choose ids that collide. Source:
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. And FNV-1a, without a key. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

struct hash_key {
    uint64_t k0, k1;
};

/* Returns a key from the kernel's random source. */
struct hash_key hash_key_random(void);

uint64_t hash_slice(const struct hash_key *key, struct slice s);

/* Computes a 128-bit hash, at little more cost than 64 bits. */
void hash_slice_128(const struct hash_key *key, struct slice s, uint64_t hash[2]);
/* The same of two texts, which differ from any other two, even if these have the same bytes. */
void hash_slices_128(const struct hash_key *key, struct slice a, struct slice b, uint64_t hash[2]);
/* Derives a new key for each text. */
void hash_key_mix(struct hash_key *key, struct slice text);

/* FNV-1a of 64 bits, continued from `hash`, which is FNV_START at first. Every weir gets
 * the same result, and a client can find texts that collide. */
#define FNV_START UINT64_C(0xcbf29ce484222325)
static inline uint64_t fnv_byte(uint64_t hash, char c)
{
    return (hash ^ (unsigned char)c) * 0x100000001b3;
}
uint64_t fnv_text(uint64_t hash, struct slice text);

#endif
