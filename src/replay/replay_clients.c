#include "replay/replay_clients.h"

#include <stdlib.h>

#include "base/memory.h"

enum { CAPACITY_FIRST = 64 };

void replay_clients_init(struct replay_clients *table, struct hash_key key)
{
    *table = (struct replay_clients){.key = key, .capacity = CAPACITY_FIRST};
    table->slots = xcalloc(CAPACITY_FIRST, sizeof *table->slots);
}

void replay_clients_free(struct replay_clients *table)
{
    for (size_t i = 0; i < table->capacity; i++)
        free(table->slots[i].name);
    free(table->slots);
}

/* Returns the client's slot, or the free one where it belongs. */
static struct client_count *client_slot(struct client_count *slots, size_t capacity, uint64_t hash)
{
    size_t at = hash % capacity;

    while (slots[at].count && slots[at].hash != hash)
        at = (at + 1) % capacity;
    return &slots[at];
}

static void grow(struct replay_clients *table)
{
    size_t capacity = 2 * table->capacity;
    struct client_count *slots = xcalloc(capacity, sizeof *slots);

    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].count)
            *client_slot(slots, capacity, table->slots[i].hash) = table->slots[i];
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
}

void replay_clients_add(struct replay_clients *table, struct slice name)
{
    uint64_t hash = hash_slice(&table->key, name);
    struct client_count *slot = client_slot(table->slots, table->capacity, hash);

    if (slot->count == 0) {
        if (table->used == REPLAY_CLIENTS_MAX) {
            table->beyond++;
            return;
        }
        size_t kept = name.n < CLIENT_NAME_MAX ? name.n : CLIENT_NAME_MAX;
        slot->hash = hash;
        slot->name = xcalloc(1, kept + 1);
        memcpy(slot->name, name.p, kept);
        table->used++;
    }
    slot->count++;
    if (table->used * 2 > table->capacity)
        grow(table);
}

uint64_t replay_clients_count(const struct replay_clients *table, uint64_t hash)
{
    return client_slot(table->slots, table->capacity, hash)->count;
}

/* Equal counts are sorted by name, so that reports do not depend on the hash key. */
static bool ranks_before(const struct client_count *a, const struct client_count *b)
{
    return a->count > b->count || (a->count == b->count && strcmp(a->name, b->name) < 0);
}

unsigned replay_clients_top(const struct replay_clients *table, const struct client_count **top,
                            unsigned max)
{
    unsigned count = 0;

    for (size_t i = 0; i < table->capacity; i++) {
        const struct client_count *one = &table->slots[i];
        if (one->count == 0 || (count == max && !ranks_before(one, top[max - 1])))
            continue;
        unsigned at = count < max ? count++ : max - 1;
        for (; at && ranks_before(one, top[at - 1]); at--)
            top[at] = top[at - 1];
        top[at] = one;
    }
    return count;
}
