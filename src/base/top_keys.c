#include "base/top_keys.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { WORDS = TOP_KEY_MAX / 8 };
_Static_assert(TOP_SETS == 1 << (64 - 59), "set_of() takes five bits");
_Static_assert(WORDS * 8 == TOP_KEY_MAX, "a key is whole words");

struct set {
    _Atomic uint64_t tag[TOP_WAYS]; /* hash of the key; 0: free */
    _Atomic uint64_t count[TOP_WAYS], error[TOP_WAYS];
};

struct top_key {
    _Atomic uint32_t version; /* odd while the counter changes its key */
    _Atomic uint32_t size;
    _Atomic uint64_t word[WORDS];
};

struct slice_of_time {
    _Atomic uint64_t number; /* time / TOP_SLICE_US */
    struct set set[TOP_SETS];
    struct top_key key[TOP_SETS][TOP_WAYS];
};

struct top_keys {
    _Atomic uint64_t began_us; /* of the first addition; 0: none */
    uint64_t ends_us;          /* of the current slice */
    struct hash_key secret;
    struct slice_of_time *now;
    struct slice_of_time slice[TOP_SLICES];
};

#define LOAD(atomic)         atomic_load_explicit(&(atomic), memory_order_relaxed)
#define STORE(atomic, value) atomic_store_explicit(&(atomic), (value), memory_order_relaxed)

/* One secret for all tables of the process, so that equal keys have equal tags. */
static struct hash_key process_secret(void)
{
    static struct hash_key secret;
    if (!secret.k0)
        secret = hash_key_random();
    secret.k1 |= 1; /* a multiplier */
    return secret;
}

struct top_keys *top_keys_new(void)
{
    struct top_keys *top = calloc(1, sizeof *top);

    if (!top)
        return NULL;
    top->secret = process_secret();
    top->now = top->slice;
    return top;
}

void top_keys_free(struct top_keys *top)
{
    free(top);
}

/* --- Adding ----------------------------------------------------------------------------------- */

/* The last eight bytes, which may overlap the word before; all bytes of a shorter key. */
static inline uint64_t last_word(struct slice key)
{
    uint64_t word = 0;

    if (key.n >= 8)
        memcpy(&word, key.p + key.n - 8, 8);
    else
        for (size_t i = 0; i < key.n; i++)
            word |= (uint64_t)(unsigned char)key.p[i] << 8 * i;
    return word;
}

/* A multiplicative hash, a fifth of the cost of SipHash. Its values never leave the process, so
 * the secret suffices against chosen keys. */
static inline uint64_t tag_of(const struct hash_key *secret, struct slice key)
{
    uint64_t hash = secret->k0 ^ key.n, word = 0;

    for (size_t i = 0; i + 8 <= key.n; i += 8) {
        memcpy(&word, key.p + i, 8);
        hash = (hash ^ word) * secret->k1;
        hash ^= hash >> 32;
    }
    if (key.n & 7) {
        word = last_word(key);
        hash = (hash ^ word) * secret->k1;
        hash ^= hash >> 32;
    }
    hash *= secret->k1; /* the last byte of a key reaches all bits, also those of set_of() */
    return (hash ^ hash >> 32) | 1;
}

static inline unsigned set_of(uint64_t tag)
{
    return (unsigned)(tag >> 59);
}

static __attribute__((noinline)) void begin_slice(struct top_keys *top, uint64_t now_us)
{
    uint64_t number = now_us / TOP_SLICE_US;
    struct slice_of_time *slice = &top->slice[number % TOP_SLICES];

    if (!top->ends_us)
        STORE(top->began_us, now_us);
    STORE(slice->number, 0); /* readers skip it */
    atomic_thread_fence(memory_order_release);
    for (unsigned s = 0; s < TOP_SETS; s++)
        for (unsigned w = 0; w < TOP_WAYS; w++) {
            STORE(slice->set[s].tag[w], 0);
            STORE(slice->set[s].count[w], 0);
            STORE(slice->set[s].error[w], 0);
        }
    atomic_store_explicit(&slice->number, number, memory_order_release);
    top->now = slice;
    top->ends_us = (number + 1) * TOP_SLICE_US;
}

/* Whole words, and the last eight bytes once more if there is a rest. */
static inline void write_key(struct top_key *at, struct slice key)
{
    uint64_t word;

    STORE(at->size, (uint32_t)key.n);
    for (size_t i = 0; i + 8 <= key.n; i += 8) {
        memcpy(&word, key.p + i, 8);
        STORE(at->word[i / 8], word);
    }
    if (key.n & 7)
        STORE(at->word[key.n / 8], last_word(key));
}

/* The key takes over the smallest counter of its set. */
static __attribute__((noinline)) void take_over(struct slice_of_time *slice, uint64_t tag,
                                                struct slice key, uint64_t amount)
{
    unsigned s = set_of(tag);
    struct set *set = &slice->set[s];
    unsigned least = 0;
    uint64_t error = LOAD(set->count[0]);

    for (unsigned w = 1; w < TOP_WAYS; w++) {
        uint64_t count = LOAD(set->count[w]);
        least = count < error ? w : least;
        error = count < error ? count : error;
    }
    struct top_key *at = &slice->key[s][least];
    uint32_t version = LOAD(at->version);

    STORE(at->version, version + 1);
    atomic_thread_fence(memory_order_release);
    STORE(set->tag[least], tag);
    STORE(set->error[least], error);
    STORE(set->count[least], error + amount);
    write_key(at, key);
    atomic_store_explicit(&at->version, version + 2, memory_order_release);
}

void top_keys_add(struct top_keys *top, uint64_t now_us, struct slice key, uint64_t amount)
{
    if (now_us >= top->ends_us)
        begin_slice(top, now_us);
    uint64_t tag = tag_of(&top->secret, key);
    unsigned s = set_of(tag);
    struct set *set = &top->now->set[s];

    for (unsigned w = 0; w < TOP_WAYS; w++)
        if (LOAD(set->tag[w]) == tag) {
            STORE(set->count[w], LOAD(set->count[w]) + amount);
            return;
        }
    take_over(top->now, tag, key, amount);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* A counter, or the sum of the counters of one key; with one of the places that hold the key. */
struct found {
    uint64_t tag, count, error;
    const struct slice_of_time *slice;
    unsigned set, way;
};

/* Open addressing; a power of two of places. */
struct found_table {
    struct found *found;
    size_t mask;
};

/* Returns whether the slice is one of the last minute. */
static bool is_recent(const struct slice_of_time *slice, uint64_t now_us)
{
    uint64_t number = atomic_load_explicit(&slice->number, memory_order_acquire),
             now = now_us / TOP_SLICE_US;
    return number && number <= now + 1 && number + TOP_SLICES > now;
}

/* Reads one counter consistently. False: it is free, or just changes its key. */
static bool read_counter(const struct slice_of_time *slice, unsigned s, unsigned w,
                         struct found *found)
{
    const struct set *set = &slice->set[s];
    uint32_t version = atomic_load_explicit(&slice->key[s][w].version, memory_order_acquire);

    *found =
        (struct found){LOAD(set->tag[w]), LOAD(set->count[w]), LOAD(set->error[w]), slice, s, w};
    atomic_thread_fence(memory_order_acquire);
    return !(version & 1) && version == LOAD(slice->key[s][w].version) && found->tag &&
           found->count > found->error;
}

static void table_add(struct found_table *table, const struct found *found)
{
    size_t i = found->tag >> 8 & table->mask;

    while (table->found[i].tag && table->found[i].tag != found->tag)
        i = (i + 1) & table->mask;
    if (!table->found[i].tag)
        table->found[i] = *found;
    else {
        table->found[i].count += found->count;
        table->found[i].error += found->error;
    }
}

static void gather_counts(struct found_table *table, const struct top_keys *top, uint64_t now_us)
{
    struct found found;

    for (unsigned i = 0; i < TOP_SLICES; i++)
        for (unsigned c = 0; is_recent(&top->slice[i], now_us) && c < TOP_SETS * TOP_WAYS; c++)
            if (read_counter(&top->slice[i], c / TOP_WAYS, c % TOP_WAYS, &found))
                table_add(table, &found);
}

static int by_certain_count(const void *one, const void *other)
{
    const struct found *a = one, *b = other;
    uint64_t left = a->count - a->error, right = b->count - b->error;
    return left != right ? (left < right) - (left > right) : (a->tag < b->tag) - (a->tag > b->tag);
}

/* False: the counter belongs to another key by now. */
static bool copy_counter(const struct found *found, struct top_entry *entry)
{
    const struct top_key *key = &found->slice->key[found->set][found->way];
    uint32_t version = atomic_load_explicit(&key->version, memory_order_acquire);

    entry->size = LOAD(key->size);
    if (entry->size > TOP_KEY_MAX)
        return false;
    for (size_t i = 0; i < entry->size; i += 8) {
        uint64_t word = LOAD(key->word[i / 8]);
        if (entry->size < 8)
            for (size_t k = 0; k < entry->size; k++)
                entry->key[k] = (char)(word >> 8 * k);
        else
            memcpy(entry->key + (entry->size - i < 8 ? entry->size - 8 : i), &word, 8);
    }
    bool same = LOAD(found->slice->set[found->set].tag[found->way]) == found->tag;
    atomic_thread_fence(memory_order_acquire);
    return same && !(version & 1) && version == LOAD(key->version);
}

/* Returns the most that a key may have been counted in the slice without having a counter: the
 * smallest counter of its set. */
static uint64_t most_without_counter(const struct slice_of_time *slice, uint64_t tag)
{
    const struct set *set = &slice->set[set_of(tag)];
    uint64_t least = UINT64_MAX;

    for (unsigned w = 0; w < TOP_WAYS; w++) {
        uint64_t count = LOAD(set->count[w]);
        if (LOAD(set->tag[w]) == tag)
            return 0;
        least = count < least ? count : least;
    }
    return least;
}

static unsigned write_entries(const struct found_table *table, size_t used,
                              struct top_keys *const *tops, unsigned count, uint64_t now_us,
                              struct top_entry *entries, unsigned n)
{
    unsigned written = 0;

    for (size_t i = 0; i < used && written < n; i++) {
        struct top_entry *entry = &entries[written];
        const struct found *found = &table->found[i];
        if (!copy_counter(found, entry))
            continue;
        entry->at_least = found->count - found->error;
        entry->at_most = found->count;
        for (unsigned t = 0; t < count; t++)
            for (unsigned s = 0; s < TOP_SLICES; s++)
                if (is_recent(&tops[t]->slice[s], now_us))
                    entry->at_most += most_without_counter(&tops[t]->slice[s], found->tag);
        written++;
    }
    return written;
}

/* The slices go back to the start of the sixth before the current one. */
static double covered_s(struct top_keys *const *tops, unsigned count, uint64_t now_us)
{
    uint64_t from = now_us,
             most_us = (uint64_t)(TOP_SLICES - 1) * TOP_SLICE_US + now_us % TOP_SLICE_US;

    for (unsigned t = 0; t < count; t++) {
        uint64_t began_us = LOAD(tops[t]->began_us);
        from = began_us && began_us < from ? began_us : from;
    }
    return (double)(now_us - from < most_us ? now_us - from : most_us) / 1e6;
}

unsigned top_keys_read(struct top_keys *const *tops, unsigned count, uint64_t now_us,
                       struct top_entry *entries, unsigned n, double *seconds)
{
    size_t places = 1, used = 0;

    while (places < (size_t)2 * count * TOP_SLICES * TOP_SETS * TOP_WAYS)
        places *= 2;
    struct found_table table = {calloc(places, sizeof(struct found)), places - 1};
    *seconds = covered_s(tops, count, now_us);
    if (!table.found)
        return 0;
    for (unsigned t = 0; t < count; t++)
        gather_counts(&table, tops[t], now_us);
    for (size_t i = 0; i < places; i++)
        if (table.found[i].tag)
            table.found[used++] = table.found[i];
    qsort(table.found, used, sizeof *table.found, by_certain_count);
    unsigned written = write_entries(&table, used, tops, count, now_us, entries, n);
    free(table.found);
    return written;
}
