#include "policy/rule_index.h"

#include "base/hash.h"
#include "http/path.h"

struct rule_index {
    struct rule_bucket **chains;
    size_t mask;         /* number of chains - 1; a power of two */
    size_t prefix_max;   /* bytes of the longest prefix */
    size_t host_max;     /* bytes of the longest host pattern */
    bool wildcard_hosts; /* some host patterns begin with "*." */
};

/* Hosts are hashed from their end, so that one pass hashes all names above a host. */
static uint64_t hash_host(struct slice host)
{
    uint64_t h = FNV_START;
    for (size_t i = host.n; i > 0; i--)
        h = fnv_byte(h, ascii_lower(host.p[i - 1]));
    return h;
}

static uint64_t hash_start_of_path(uint64_t host_hash)
{
    return fnv_byte(host_hash, 0);
}

/* The low bits of FNV-1a depend on few bits of the last bytes. */
static size_t hash_chain(const struct rule_index *index, uint64_t h)
{
    return (size_t)(h ^ h >> 32) & index->mask;
}

/* --- building --- */

/* Returns the part of the path pattern before the segment with the first "*". */
static struct slice prefix_of(struct slice pattern)
{
    const char *star = pattern.n ? memchr(pattern.p, '*', pattern.n) : NULL;
    if (!star || pattern.p[0] != '/')
        return pattern;
    while (*star != '/')
        star--;
    return (struct slice){pattern.p, (size_t)(star - pattern.p)};
}

/* "*.example.com" becomes ".example.com". */
static struct slice host_key(struct slice pattern)
{
    if (slice_starts_with(pattern, SLICE("*.")))
        pattern.p++, pattern.n--;
    return host_without_port(pattern);
}

static struct rule_bucket *find_bucket(const struct rule_index *index, uint64_t hash,
                                       struct slice host, struct slice prefix)
{
    struct rule_bucket *bucket = index->chains[hash_chain(index, hash)];
    while (bucket && (bucket->hash != hash || !slice_equal(bucket->prefix, prefix) ||
                      !slice_equal_nocase(bucket->host, host)))
        bucket = bucket->next;
    return bucket;
}

static struct rule_bucket *bucket_for(struct rule_index *index, struct arena *arena,
                                      const struct rule *rule)
{
    struct slice host = host_key(rule->host), prefix = prefix_of(rule->pattern);
    uint64_t hash = fnv_text(hash_start_of_path(hash_host(host)), prefix);
    struct rule_bucket *bucket = find_bucket(index, hash, host, prefix);

    if (bucket)
        return bucket;
    bucket = arena_zeroed(arena, 1, sizeof *bucket);
    *bucket =
        (struct rule_bucket){hash, host, prefix, NULL, 0, index->chains[hash_chain(index, hash)]};
    index->chains[hash_chain(index, hash)] = bucket;
    return bucket;
}

struct rule_index *rule_index_new(struct arena *arena, const struct policy *policy)
{
    struct rule_index *index = arena_zeroed(arena, 1, sizeof *index);
    size_t chains = 16;

    while (chains < 2 * policy->rule_count)
        chains *= 2;
    index->chains = arena_zeroed(arena, chains, sizeof *index->chains);
    index->mask = chains - 1;
    for (const struct rule *rule = policy->rules; rule < policy->rules + policy->rule_count - 1;
         rule++) {
        struct rule_bucket *bucket = bucket_for(index, arena, rule);
        bucket->rules = arena_grown(arena, bucket->rules, bucket->count, sizeof *bucket->rules);
        bucket->rules[bucket->count++] = rule;
        if (bucket->prefix.n > index->prefix_max)
            index->prefix_max = bucket->prefix.n;
        if (bucket->host.n > index->host_max)
            index->host_max = bucket->host.n;
        index->wildcard_hosts |= slice_starts_with(rule->host, SLICE("*."));
    }
    return index;
}

/* --- lookup --- */

struct rule_lookup {
    const struct rule_index *index;
    struct slice path;
    void (*visit)(const struct rule_bucket *bucket, void *context);
    void *context;
};

static void visit_bucket(const struct rule_lookup *lookup, uint64_t hash, struct slice host,
                         size_t prefix)
{
    const struct rule_bucket *bucket =
        find_bucket(lookup->index, hash, host, (struct slice){lookup->path.p, prefix});
    if (bucket)
        lookup->visit(bucket, lookup->context);
}

/* Visits the buckets of one host pattern: for the empty prefix, each prefix that ends before a "/",
 * and the whole path. */
static void visit_prefixes(const struct rule_lookup *lookup, struct slice host, uint64_t host_hash)
{
    uint64_t h = hash_start_of_path(host_hash);
    struct slice path = lookup->path;
    size_t n = path.n < lookup->index->prefix_max ? path.n : lookup->index->prefix_max;

    visit_bucket(lookup, h, host, 0);
    for (size_t i = 0; i < n; i++) {
        h = fnv_byte(h, path.p[i]);
        if (i + 1 == path.n || path.p[i + 1] == '/')
            visit_bucket(lookup, h, host, i + 1);
    }
}

void rule_index_visit(const struct rule_index *index, struct slice path, struct slice host,
                      void (*visit)(const struct rule_bucket *bucket, void *context), void *context)
{
    struct rule_lookup lookup = {index, path, visit, context};
    struct slice name = host_without_port(host);
    uint64_t h = FNV_START;

    visit_prefixes(&lookup, SLICE_NONE, h);
    if (index->host_max == 0)
        return;
    for (size_t i = name.n; i > 0 && name.n - i < index->host_max; i--) {
        struct slice tail = {name.p + i - 1, name.n - i + 1};
        h = fnv_byte(h, ascii_lower(name.p[i - 1]));
        if (i == 1 || (index->wildcard_hosts && name.p[i - 1] == '.'))
            visit_prefixes(&lookup, tail, h);
    }
}
