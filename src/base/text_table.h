/* text_table.h - items by a text. Built once for a known number of items, then only read, by any
 * number of threads. Open addressing: at most half of the positions are used. */
#ifndef WEIR_BASE_TEXT_TABLE_H
#define WEIR_BASE_TEXT_TABLE_H

#include "base/arena.h"
#include "base/hash.h"

/* Zeroed: empty. */
struct text_table {
    struct hash_key hash;
    size_t mask; /* the number of positions, a power of two, less one */
    struct text_item {
        struct slice key;
        const void *item; /* NULL: the position is free */
    } * positions;
};

/* Makes an empty table with room for `count` items. */
void text_table_init(struct text_table *table, struct arena *arena, const struct hash_key *hash,
                     unsigned count);
/* Adds the item, whose key must outlive the table. If there is one with this key, returns that one
 * instead, else NULL. */
const void *text_table_add(struct text_table *table, struct slice key, const void *item);
/* Returns the item with this key, or NULL. */
const void *text_table_find(const struct text_table *table, struct slice key);

#endif
