/* descriptor_match.c - finds the configured entry of a descriptor.
 *
 * A level has a hash table of its keys, and each key one of its exact values. Values with "*" are
 * tried in the order of the file. */
#include "http/path.h"
#include "policy/client_limits.h"
#include "policy/rate_limit_service.h"

/* --- Tables ----------------------------------------------------------------------------------- */

/* Adds the keys of the level and counts their values. */
static void index_keys(struct entry_level *level)
{
    for (unsigned i = 0; i < level->count; i++) {
        const struct configured_entry *entry = &level->entries[i];
        struct entry_key *key = &level->keys[level->key_count];
        const struct entry_key *earlier = text_table_add(&level->by_key, entry->key, key);
        if (earlier)
            key = &level->keys[earlier - level->keys];
        else
            level->key_count++;
        key->key = entry->key;
        key->wildcard_count += entry->has_wildcard;
        key->value_count += !entry->has_wildcard && entry->value.n > 0;
    }
}

static void room_for_levels(const struct hash_key *hash, struct arena *arena, struct entry_key *key)
{
    if (key->value_count)
        text_table_init(&key->values, arena, hash, key->value_count);
    key->wildcards = arena_zeroed(arena, key->wildcard_count, sizeof *key->wildcards);
    key->wildcard_count = 0; /* add_entry() counts again */
}

/* Returns the earlier entry with the same key and value, or NULL. */
static const struct configured_entry *add_entry(struct entry_key *key,
                                                const struct configured_entry *entry)
{
    if (entry->has_wildcard) {
        for (unsigned i = 0; i < key->wildcard_count; i++)
            if (slice_equal(key->wildcards[i]->value, entry->value))
                return key->wildcards[i];
        key->wildcards[key->wildcard_count++] = entry;
        return NULL;
    }
    if (entry->value.n)
        return text_table_add(&key->values, entry->value, entry);
    const struct configured_entry *earlier = key->alone;
    if (!earlier)
        key->alone = entry;
    return earlier;
}

void entry_level_index(const struct rate_limit_service *service, struct arena *arena,
                       struct entry_level *level, const struct configured_entry **earlier)
{
    level->keys = arena_zeroed(arena, level->count, sizeof *level->keys);
    text_table_init(&level->by_key, arena, &service->hash_key, level->count);
    index_keys(level);
    for (unsigned i = 0; i < level->key_count; i++)
        room_for_levels(&service->hash_key, arena, &level->keys[i]);
    for (unsigned i = 0; i < level->count; i++) {
        const struct entry_key *key = text_table_find(&level->by_key, level->entries[i].key);
        earlier[i] = add_entry(&level->keys[key - level->keys], &level->entries[i]);
    }
}

void rate_limit_domains_index(struct rate_limit_service *service, struct arena *arena)
{
    text_table_init(&service->domains_by_name, arena, &service->hash_key, service->domain_count);
    for (unsigned i = 0; i < service->domain_count; i++)
        (void)text_table_add(&service->domains_by_name, slice_of(service->domains[i].name),
                             &service->domains[i]);
}

const struct rate_limit_domain *rate_limit_domain(const struct rate_limit_service *service,
                                                  struct slice name)
{
    return text_table_find(&service->domains_by_name, name);
}

/* --- Matching --------------------------------------------------------------------------------- */

static const struct configured_entry *match_entry(const struct entry_level *level,
                                                  const struct descriptor_entry *entry)
{
    const struct entry_key *key = text_table_find(&level->by_key, entry->key);
    const struct configured_entry *exact;
    size_t steps = 0;

    if (!key)
        return NULL;
    if ((exact = text_table_find(&key->values, entry->value)))
        return exact;
    for (unsigned i = 0; i < key->wildcard_count; i++)
        if (glob_matches(key->wildcards[i]->value, entry->value, &steps))
            return key->wildcards[i];
    return key->alone;
}

void descriptor_match(const struct rate_limit_domain *domain,
                      const struct call_descriptor *descriptor, struct descriptor_match *match)
{
    const struct entry_level *level = &domain->top;
    const struct configured_entry *entry = NULL;

    for (unsigned i = 0; i < descriptor->entry_count; i++) {
        entry = match_entry(level, &descriptor->entries[i]);
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

bool descriptor_enforces(const struct descriptor_match *match, const struct limit *limit,
                         struct slice name)
{
    bool shadow = !match->stated && match->entry && match->entry->shadow;
    return !shadow && limit_enforces_text(limit, name);
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
