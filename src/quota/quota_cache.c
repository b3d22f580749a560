#include "quota/quota_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/hash.h"

enum { STRIPES = 64 };

struct item {
    TAILQ_ENTRY(item) by_use; /* per kind, most recently used last */
    struct item *next;        /* in the hash chain */
    uint64_t hash;
    struct quota_entry entry;
    size_t id_size;
    char id[];
};
TAILQ_HEAD(items, item);

enum kind { KIND_FOUND, KIND_OTHER, KINDS };

struct cache_stripe {
    pthread_mutex_t lock;
    struct item **chains;
    struct items by_use[KINDS];
    unsigned count[KINDS];
};

struct quota_cache {
    struct hash_key hash_key;
    size_t chain_mask;
    unsigned max[KINDS]; /* per stripe */
    _Atomic uint64_t aged_us;
    struct cache_stripe stripes[STRIPES];
};

struct quota_cache *quota_cache_new(unsigned found, unsigned absent)
{
    struct quota_cache *table = calloc(1, sizeof *table);
    size_t chains = 16;
    bool good = true;

    if (!table)
        return NULL;
    table->hash_key = hash_key_random();
    table->max[KIND_FOUND] = found / STRIPES + 1;
    table->max[KIND_OTHER] = absent / STRIPES + 1;
    while (chains < table->max[KIND_FOUND] + table->max[KIND_OTHER])
        chains *= 2;
    table->chain_mask = chains - 1;
    for (unsigned i = 0; i < STRIPES; i++) {
        struct cache_stripe *stripe = &table->stripes[i];
        pthread_mutex_init(&stripe->lock, NULL);
        stripe->chains = calloc(chains, sizeof *stripe->chains);
        good = good && stripe->chains;
        for (unsigned k = 0; k < KINDS; k++)
            TAILQ_INIT(&stripe->by_use[k]);
    }
    if (good)
        return table;
    quota_cache_free(table);
    return NULL;
}

void quota_cache_free(struct quota_cache *table)
{
    if (!table)
        return;
    quota_cache_clear(table);
    for (unsigned i = 0; i < STRIPES; i++) {
        free(table->stripes[i].chains);
        pthread_mutex_destroy(&table->stripes[i].lock);
    }
    free(table);
}

static enum kind item_kind(const struct item *item)
{
    return item->entry.outcome == QUOTA_FOUND ? KIND_FOUND : KIND_OTHER;
}

static struct cache_stripe *stripe_of(struct quota_cache *table, uint64_t hash)
{
    return &table->stripes[hash >> 32 & (STRIPES - 1)];
}

/* Returns the pointer to the item, or where it would be inserted. */
static struct item **slot_of_item(const struct quota_cache *table, struct cache_stripe *stripe,
                                  uint64_t hash, struct slice id)
{
    struct item **slot = &stripe->chains[hash & table->chain_mask];
    while (*slot && ((*slot)->hash != hash ||
                     !slice_equal((struct slice){(*slot)->id, (*slot)->id_size}, id)))
        slot = &(*slot)->next;
    return slot;
}

static void remove_item(struct cache_stripe *stripe, struct item **slot)
{
    struct item *item = *slot;
    enum kind kind = item_kind(item);

    *slot = item->next;
    TAILQ_REMOVE(&stripe->by_use[kind], item, by_use);
    stripe->count[kind]--;
    free(item);
}

bool quota_cache_find(struct quota_cache *table, struct slice id, uint64_t now_us,
                      struct quota_entry *entry)
{
    uint64_t hash = hash_slice(&table->hash_key, id);
    struct cache_stripe *stripe = stripe_of(table, hash);

    pthread_mutex_lock(&stripe->lock);
    struct item *item = *slot_of_item(table, stripe, hash, id);
    bool found = item && item->entry.usable_us > now_us;
    if (found) {
        struct items *list = &stripe->by_use[item_kind(item)];
        TAILQ_REMOVE(list, item, by_use);
        TAILQ_INSERT_TAIL(list, item, by_use);
        *entry = item->entry;
    }
    pthread_mutex_unlock(&stripe->lock);
    if (found && entry->got_us <= atomic_load_explicit(&table->aged_us, memory_order_relaxed))
        entry->fresh_us = 0;
    return found;
}

static void evict_oldest(const struct quota_cache *table, struct cache_stripe *stripe,
                         enum kind kind)
{
    while (stripe->count[kind] >= table->max[kind]) {
        struct item *oldest = TAILQ_FIRST(&stripe->by_use[kind]);
        remove_item(stripe, slot_of_item(table, stripe, oldest->hash,
                                         (struct slice){oldest->id, oldest->id_size}));
    }
}

void quota_cache_put(struct quota_cache *table, struct slice id, const struct quota_entry *entry)
{
    uint64_t hash = hash_slice(&table->hash_key, id);
    struct cache_stripe *stripe = stripe_of(table, hash);
    struct item *item = malloc(sizeof *item + id.n);

    pthread_mutex_lock(&stripe->lock);
    struct item **slot = slot_of_item(table, stripe, hash, id);
    if (*slot)
        remove_item(stripe, slot);
    if (item) {
        item->hash = hash;
        item->entry = *entry;
        item->id_size = id.n;
        memcpy(item->id, id.p, id.n);
        enum kind kind = item_kind(item);
        evict_oldest(table, stripe, kind);
        item->next = stripe->chains[hash & table->chain_mask];
        stripe->chains[hash & table->chain_mask] = item;
        TAILQ_INSERT_TAIL(&stripe->by_use[kind], item, by_use);
        stripe->count[kind]++;
    }
    pthread_mutex_unlock(&stripe->lock);
}

void quota_cache_remove(struct quota_cache *table, struct slice id)
{
    uint64_t hash = hash_slice(&table->hash_key, id);
    struct cache_stripe *stripe = stripe_of(table, hash);

    pthread_mutex_lock(&stripe->lock);
    struct item **slot = slot_of_item(table, stripe, hash, id);
    if (*slot)
        remove_item(stripe, slot);
    pthread_mutex_unlock(&stripe->lock);
}

void quota_cache_clear(struct quota_cache *table)
{
    for (unsigned i = 0; i < STRIPES; i++) {
        struct cache_stripe *stripe = &table->stripes[i];
        pthread_mutex_lock(&stripe->lock);
        for (size_t c = 0; c <= table->chain_mask; c++)
            while (stripe->chains[c])
                remove_item(stripe, &stripe->chains[c]);
        pthread_mutex_unlock(&stripe->lock);
    }
}

void quota_cache_age(struct quota_cache *table, uint64_t now_us)
{
    atomic_store_explicit(&table->aged_us, now_us, memory_order_relaxed);
}

unsigned quota_cache_count(struct quota_cache *table, enum quota_outcome outcome)
{
    enum kind kind = outcome == QUOTA_FOUND ? KIND_FOUND : KIND_OTHER;
    unsigned count = 0;

    for (unsigned i = 0; i < STRIPES; i++) {
        pthread_mutex_lock(&table->stripes[i].lock);
        count += table->stripes[i].count[kind];
        pthread_mutex_unlock(&table->stripes[i].lock);
    }
    return count;
}
