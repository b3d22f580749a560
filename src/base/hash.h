/* hash.h - SipHash-1-3 under a random key, so that nobody who chooses client ids can choose collisions.
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

struct hash_key {
    uint64_t k0, k1;
};

/* A key from the kernel's random source. */
struct hash_key hash_key_random(void);

uint64_t hash_slice(const struct hash_key *key, struct slice s);

/* 128 bits at the price of little more than 64. */
void hash_slice_128(const struct hash_key *key, struct slice s, uint64_t hash[2]);

#endif
