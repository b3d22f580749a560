#include "base/text_table.h"

void text_table_init(struct text_table *t, struct arena *arena, const struct hash_key *hash,
                     unsigned count)
{
    size_t size = 2;

    while (size < (size_t)count * 2)
        size *= 2;
    t->hash = *hash;
    t->mask = size - 1;
    t->positions = arena_zeroed(arena, size, sizeof *t->positions);
}

/* Returns the position of the key, or the free one where it belongs. */
static struct text_item *position_of_key(const struct text_table *t, struct slice key)
{
    size_t i = hash_slice(&t->hash, key) & t->mask;

    while (t->positions[i].item && !slice_equal(t->positions[i].key, key))
        i = (i + 1) & t->mask;
    return &t->positions[i];
}

const void *text_table_add(struct text_table *t, struct slice key, const void *item)
{
    struct text_item *position = position_of_key(t, key);
    const void *earlier = position->item;

    if (!earlier)
        *position = (struct text_item){key, item};
    return earlier;
}

const void *text_table_find(const struct text_table *t, struct slice key)
{
    return t->positions ? position_of_key(t, key)->item : NULL;
}
