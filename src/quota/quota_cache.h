/* quota_cache.h - the quotas that a process knows: one table for all workers, since a database is asked for a client once and
 * not once a worker.
 *
 * Striped locks, held for some tens of nanoseconds. Bounded: ids that have a row, and ids that have none, each push out
 * the one of their own kind that was not asked for longest, so that made-up ids never push out a client. */
#ifndef WEIR_QUOTA_QUOTA_CACHE_H
#define WEIR_QUOTA_QUOTA_CACHE_H

#include <stdint.h>

#include "quota/quota_row.h"

struct quota_cache;

enum quota_outcome {
    QUOTA_FOUND,
    QUOTA_ABSENT, /* the database has no row for the id */
    QUOTA_UNKNOWN /* it could not be asked */
};

struct quota_entry {
    enum quota_outcome outcome;
    struct quota_row row; /* of QUOTA_FOUND */
    /* Monotonic. Until `fresh_us` it is believed, until `usable_us` where nothing better can be had. */
    uint64_t got_us, fresh_us, usable_us;
};

/* Ends the process when there is no memory. `found` and `absent` entries, spread over the stripes. */
struct quota_cache *quota_cache_new(unsigned found, unsigned absent);
void quota_cache_free(struct quota_cache *table);

/* All from any thread. */

/* False: nothing is known, or it is past its use. */
MUST_CHECK bool quota_cache_find(struct quota_cache *table, struct slice id, uint64_t now_us,
                                 struct quota_entry *entry);
/* In place of what was there. Without memory nothing is kept. */
void quota_cache_put(struct quota_cache *table, struct slice id, const struct quota_entry *entry);
void quota_cache_remove(struct quota_cache *table, struct slice id);
void quota_cache_clear(struct quota_cache *table);
/* Nothing that was got before now is fresh any more. */
void quota_cache_age(struct quota_cache *table, uint64_t now_us);

unsigned quota_cache_count(struct quota_cache *table, enum quota_outcome outcome);

#endif
