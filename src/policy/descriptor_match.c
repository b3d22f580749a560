/* descriptor_match.c - finds the configured entry of a descriptor.
 *
 * A level has a hash table of its keys, and each key one of its exact values. Values with "*" are
 * tried in the order of the file. */
#include "base/arena.h"
#include "http/path.h"
#include "policy/rate_limit_service.h"

/* --- Tables ----------------------------------------------------------------------------------- */

/* Returns a mask of at least twice `count` positions. */
static size_t mask_for(unsigned count)
{
    size_t positions = 2;

    while (positions < (size_t)count * 2)
        positions *= 2;
    return positions - 1;
}

static size_t position_of(const struct hash_key *hash, size_t mask, struct slice text)
{
    return hash_slice(hash, text) & mask;
}

/* Returns the position of the key in `slots`, or the free one where it belongs. */
static const struct entry_key **key_slot(const struct hash_key *hash,
                                         const struct entry_level *level, struct slice key)
{
    size_t i = position_of(hash, level->slot_mask, key);

    while (level->slots[i] && !slice_equal(level->slots[i]->key, key))
        i = (i + 1) & level->slot_mask;
    return &level->slots[i];
}

static const struct configured_entry **value_slot(const struct hash_key *hash,
                                                  const struct entry_key *key, struct slice value)
{
    size_t i = position_of(hash, key->value_mask, value);

    while (key->values[i] && !slice_equal(key->values[i]->value, value))
        i = (i + 1) & key->value_mask;
    return &key->values[i];
}

/* Adds the keys of the level and counts their values. */
static void index_keys(const struct hash_key *hash, struct entry_level *level)
{
    for (unsigned i = 0; i < level->count; i++) {
        const struct configured_entry *entry = &level->entries[i];
        const struct entry_key **slot = key_slot(hash, level, entry->key);
        if (!*slot) {
            level->keys[level->key_count].key = entry->key;
            *slot = &level->keys[level->key_count++];
        }
        struct entry_key *key = &level->keys[*slot - level->keys];
        key->wildcard_count += entry->has_wildcard;
        key->value_count += !entry->has_wildcard && entry->value.n > 0;
    }
}

static void make_room(struct arena *arena, struct entry_key *key)
{
    key->value_mask = mask_for(key->value_count);
    key->values = arena_zeroed(arena, key->value_mask + 1, sizeof *key->values);
    key->wildcards = arena_zeroed(arena, key->wildcard_count, sizeof *key->wildcards);
    key->wildcard_count = 0; /* add_entry() counts again */
}

/* Returns the earlier entry with the same key and value, or NULL. */
static const struct configured_entry *add_entry(const struct hash_key *hash, struct entry_key *key,
                                                const struct configured_entry *entry)
{
    const struct configured_entry **slot = &key->alone;

    if (entry->has_wildcard) {
        for (unsigned i = 0; i < key->wildcard_count; i++)
            if (slice_equal(key->wildcards[i]->value, entry->value))
                return key->wildcards[i];
        slot = &key->wildcards[key->wildcard_count++];
    } else if (entry->value.n)
        slot = value_slot(hash, key, entry->value);
    if (*slot)
        return *slot;
    *slot = entry;
    return NULL;
}

void entry_level_index(const struct rate_limit_service *service, struct arena *arena,
                       struct entry_level *level, const struct configured_entry **earlier)
{
    const struct hash_key *hash = &service->hash_key;

    level->keys = arena_zeroed(arena, level->count, sizeof *level->keys);
    level->slot_mask = mask_for(level->count);
    level->slots = arena_zeroed(arena, level->slot_mask + 1, sizeof *level->slots);
    index_keys(hash, level);
    for (unsigned i = 0; i < level->key_count; i++)
        make_room(arena, &level->keys[i]);
    for (unsigned i = 0; i < level->count; i++) {
        const struct entry_key *key = *key_slot(hash, level, level->entries[i].key);
        earlier[i] = add_entry(hash, &level->keys[key - level->keys], &level->entries[i]);
    }
}

/* Returns the position of the domain in `domain_slots`, or the free one where it belongs. */
static const struct rate_limit_domain **domain_slot(const struct rate_limit_service *service,
                                                    struct slice name)
{
    size_t i = position_of(&service->hash_key, service->domain_mask, name);

    while (service->domain_slots[i] && !slice_equal(slice_of(service->domain_slots[i]->name), name))
        i = (i + 1) & service->domain_mask;
    return &service->domain_slots[i];
}

void rate_limit_domains_index(struct rate_limit_service *service, struct arena *arena)
{
    service->domain_mask = mask_for(service->domain_count);
    service->domain_slots =
        arena_zeroed(arena, service->domain_mask + 1, sizeof *service->domain_slots);
    for (unsigned i = 0; i < service->domain_count; i++)
        *domain_slot(service, slice_of(service->domains[i].name)) = &service->domains[i];
}

const struct rate_limit_domain *rate_limit_domain(const struct rate_limit_service *service,
                                                  struct slice name)
{
    return service->domain_count ? *domain_slot(service, name) : NULL;
}

/* --- Matching --------------------------------------------------------------------------------- */

static const struct configured_entry *match_entry(const struct hash_key *hash,
                                                  const struct entry_level *level,
                                                  const struct descriptor_entry *entry)
{
    const struct entry_key *key = level->count ? *key_slot(hash, level, entry->key) : NULL;
    const struct configured_entry *exact;
    size_t steps = 0;

    if (!key)
        return NULL;
    if (key->value_count && (exact = *value_slot(hash, key, entry->value)))
        return exact;
    for (unsigned i = 0; i < key->wildcard_count; i++)
        if (glob_matches(key->wildcards[i]->value, entry->value, &steps))
            return key->wildcards[i];
    return key->alone;
}

void descriptor_match(const struct rate_limit_service *service,
                      const struct rate_limit_domain *domain,
                      const struct call_descriptor *descriptor, struct descriptor_match *match)
{
    const struct entry_level *level = &domain->top;
    const struct configured_entry *entry = NULL;

    for (unsigned i = 0; i < descriptor->entry_count; i++) {
        entry = match_entry(&service->hash_key, level, &descriptor->entries[i]);
        if (!entry)
            break;
        level = &entry->below;
    }
    *match = (struct descriptor_match){
        .entry = entry, .stated = descriptor->has_limit ? &domain->stated[descriptor->unit] : NULL};
}

/* --- replaces --------------------------------------------------------------------------------- */

static bool replaces(const struct descriptor_match *match, struct slice name)
{
    if (match->stated || !match->entry)
        return false;
    for (unsigned i = 0; i < match->entry->replaces_count; i++)
        if (slice_equal(match->entry->replaces[i].name, name))
            return true;
    return false;
}

static bool any_replaces(const struct descriptor_match *matches, unsigned count, struct slice name)
{
    for (unsigned i = 0; i < count; i++)
        if (replaces(&matches[i], name))
            return true;
    return false;
}

/* Returns the name by which `replaces` finds the entry's limit `i`; empty: none. */
static struct slice replaced_name(const struct configured_entry *entry, unsigned i)
{
    if (entry->rate_limit)
        return slice_of(entry->name);
    return slice_of(entry->limits[i]->name);
}

void descriptor_matches_replace(struct descriptor_match *matches, unsigned count)
{
    bool any = false;

    for (unsigned i = 0; i < count; i++)
        any |= !matches[i].stated && matches[i].entry && matches[i].entry->replaces_count;
    for (unsigned i = 0; any && i < count; i++) {
        const struct configured_entry *entry = matches[i].entry;
        for (unsigned k = 0; entry && !matches[i].stated && k < entry->limit_count; k++) {
            struct slice name = replaced_name(entry, k);
            if (name.n && any_replaces(matches, count, name))
                matches[i].replaced |= 1u << k;
        }
    }
}

/* --- Units ------------------------------------------------------------------------------------ */

int64_t rate_limit_unit_us(enum rate_limit_unit unit)
{
    static const int64_t seconds[UNIT_COUNT] = {
        [UNIT_SECOND] = 1,   [UNIT_MINUTE] = 60,        [UNIT_HOUR] = 3600,
        [UNIT_DAY] = 86400,  [UNIT_MONTH] = 30 * 86400, [UNIT_YEAR] = 365 * 86400,
        [UNIT_WEEK] = 604800};

    return seconds[unit] * 1000000;
}

enum rate_limit_unit limit_unit(const struct limit *limit)
{
    static const enum rate_limit_unit calendars[] = {[CALENDAR_DAY] = UNIT_DAY,
                                                     [CALENDAR_WEEK] = UNIT_WEEK,
                                                     [CALENDAR_MONTH] = UNIT_MONTH,
                                                     [CALENDAR_YEAR] = UNIT_YEAR};

    if (limit->calendar)
        return calendars[limit->calendar];
    for (unsigned i = UNIT_SECOND; i < UNIT_COUNT; i++)
        if (limit->period_us == rate_limit_unit_us((enum rate_limit_unit)i))
            return (enum rate_limit_unit)i;
    return UNIT_UNKNOWN;
}
