/* token_cache.h - a worker's verified tokens: the values of their claims, until they expire.
 *
 * Tokens are not stored. They are found by their 128-bit SipHash under a random key of this cache,
 * so nobody can construct a token that is taken for another one. A full set drops the token that
 * was used least recently. Not thread-safe. */
#ifndef WEIR_POLICY_TOKEN_CACHE_H
#define WEIR_POLICY_TOKEN_CACHE_H

#include <stdint.h>

#include "base/slice.h"

enum { TOKEN_CACHE_SIZE = 4096 }; /* tokens */

struct token_cache;

struct token_hash {
    uint64_t of[2];
};

/* Creates a cache of `values` values per token of at most `value_max` bytes each. NULL: no
 * memory. */
struct token_cache *token_cache_new(unsigned values, size_t value_max);
void token_cache_free(struct token_cache *cache);
/* Removes all tokens. */
void token_cache_clear(struct token_cache *cache);

struct token_hash token_cache_hash(const struct token_cache *cache, struct slice token);

/* Returns the index of the token, or -1 if it is not cached or not valid at `now_s`. */
int token_cache_find(struct token_cache *cache, const struct token_hash *hash, int64_t now_s);

/* Adds a token with empty values that is valid from `from_s` until before `until_s`, Unix time.
 * Returns its index, which is valid until the next call. */
int token_cache_add(struct token_cache *cache, const struct token_hash *hash, int64_t from_s,
                    int64_t until_s);

void token_cache_set(struct token_cache *cache, int token, unsigned value, struct slice text);
/* Empty if it was not set. */
struct slice token_cache_get(const struct token_cache *cache, int token, unsigned value);

#endif
