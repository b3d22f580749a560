#include "policy/token_cache.h"

#include <stdlib.h>

#include "base/hash.h"

enum { WAYS = 4 };

struct cached_token {
    struct token_hash hash;
    int64_t from_s, until_s; /* until_s INT64_MIN: free */
    uint64_t used;
};

struct token_cache {
    struct hash_key key;
    uint64_t uses;
    unsigned values;
    size_t value_max;
    struct cached_token entries[TOKEN_CACHE_SIZE];
    uint16_t *sizes; /* by token and value */
    char *texts;
};

struct token_cache *token_cache_new(unsigned values, size_t value_max)
{
    struct token_cache *cache = calloc(1, sizeof *cache);

    if (!cache)
        return NULL;
    cache->key = hash_key_random();
    cache->values = values;
    cache->value_max = value_max;
    cache->sizes = calloc((size_t)TOKEN_CACHE_SIZE * values, sizeof *cache->sizes);
    cache->texts = calloc((size_t)TOKEN_CACHE_SIZE * values, value_max);
    token_cache_clear(cache);
    if (cache->sizes && cache->texts)
        return cache;
    token_cache_free(cache);
    return NULL;
}

void token_cache_clear(struct token_cache *cache)
{
    for (unsigned i = 0; i < TOKEN_CACHE_SIZE; i++)
        cache->entries[i].until_s = INT64_MIN;
}

void token_cache_free(struct token_cache *cache)
{
    if (!cache)
        return;
    free(cache->sizes);
    free(cache->texts);
    free(cache);
}

struct token_hash token_cache_hash(const struct token_cache *cache, struct slice token)
{
    struct token_hash hash = {{0}};
    hash_slice_128(&cache->key, token, hash.of);
    return hash;
}

static int first_way(const struct token_hash *hash)
{
    return (int)(hash->of[0] % (TOKEN_CACHE_SIZE / WAYS)) * WAYS;
}

int token_cache_find(struct token_cache *cache, const struct token_hash *hash, int64_t now_s)
{
    int first = first_way(hash);

    for (int i = first; i < first + WAYS; i++) {
        struct cached_token *entry = &cache->entries[i];
        if (entry->hash.of[0] != hash->of[0] || entry->hash.of[1] != hash->of[1])
            continue;
        if (now_s < entry->from_s || now_s >= entry->until_s)
            return -1;
        entry->used = ++cache->uses;
        return i;
    }
    return -1;
}

/* Returns the entry of this token, else the one used least recently. */
static int victim(const struct token_cache *cache, const struct token_hash *hash)
{
    int first = first_way(hash), oldest = first;

    for (int i = first; i < first + WAYS; i++) {
        const struct cached_token *entry = &cache->entries[i];
        if (entry->hash.of[0] == hash->of[0] && entry->hash.of[1] == hash->of[1])
            return i;
        if (entry->used < cache->entries[oldest].used)
            oldest = i;
    }
    return oldest;
}

int token_cache_add(struct token_cache *cache, const struct token_hash *hash, int64_t from_s,
                    int64_t until_s)
{
    int token = victim(cache, hash);

    cache->entries[token] = (struct cached_token){
        .hash = *hash, .from_s = from_s, .until_s = until_s, .used = ++cache->uses};
    memset(cache->sizes + (size_t)token * cache->values, 0, cache->values * sizeof *cache->sizes);
    return token;
}

static size_t position(const struct token_cache *cache, int token, unsigned value)
{
    return (size_t)token * cache->values + value;
}

void token_cache_set(struct token_cache *cache, int token, unsigned value, struct slice text)
{
    size_t at = position(cache, token, value);

    if (text.n > cache->value_max)
        return;
    memcpy(cache->texts + at * cache->value_max, text.p, text.n);
    cache->sizes[at] = (uint16_t)text.n;
}

struct slice token_cache_get(const struct token_cache *cache, int token, unsigned value)
{
    size_t at = position(cache, token, value);
    return (struct slice){cache->texts + at * cache->value_max, cache->sizes[at]};
}
