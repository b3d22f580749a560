/* quota_cache.h - cache of the process' known quotas. All workers share it, so the database is
 * queried once per client, not once per worker.
 *
 * - Locks are striped and held for tens of nanoseconds.
 * - The size is bounded. Ids with a row and ids without one are evicted separately, least
 *   recently used first. So made-up ids never evict a client. */
#ifndef WEIR_QUOTA_QUOTA_CACHE_H
#define WEIR_QUOTA_QUOTA_CACHE_H

#include <stdint.h>

#include "quota/quota_row.h"

struct quota_cache;

enum quota_outcome {
    QUOTA_FOUND,
    QUOTA_ABSENT, /* the database has no row for the id */
    QUOTA_UNKNOWN /* the database could not be queried */
};

struct quota_entry {
    enum quota_outcome outcome;
    struct quota_row row; /* valid if QUOTA_FOUND */
    /* Monotonic clock. The entry is current until `fresh_us`. Until `usable_us` it is used if
     * nothing newer is available. */
    uint64_t got_us, fresh_us, usable_us;
};

/* `found` and `absent`: maximum number of entries with and without a row, over all stripes.
 * Returns NULL if out of memory. */
struct quota_cache *quota_cache_new(unsigned found, unsigned absent);
void quota_cache_free(struct quota_cache *table);

/* Thread-safe: */

/* Returns false if there is no entry or if it has passed `usable_us`. */
MUST_CHECK bool quota_cache_find(struct quota_cache *table, struct slice id, uint64_t now_us,
                                 struct quota_entry *entry);
/* Replaces the entry of `id`. If out of memory, the old entry is removed and nothing is stored. */
void quota_cache_put(struct quota_cache *table, struct slice id, const struct quota_entry *entry);
void quota_cache_remove(struct quota_cache *table, struct slice id);
void quota_cache_clear(struct quota_cache *table);
/* Entries stored up to now are no longer fresh. */
void quota_cache_age(struct quota_cache *table, uint64_t now_us);

unsigned quota_cache_count(struct quota_cache *table, enum quota_outcome outcome);

#endif
