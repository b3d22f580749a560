/* rate_limit_service.h - section rate_limit_service: the limits of descriptors, which callers of
 * Envoy's rate limit service send (rate_limit_call.h).
 *
 *   domains.NAME.descriptors --> a tree of configured entries --descriptor_match()--> one of them
 *
 * Matching goes level by level: the first entry of the descriptor on the first level, and so on. On
 * each level, the entry with this key and value matches first, then the values with "*" in the
 * order of the file, then the key alone. A limit applies only if the last entry of the descriptor
 * matches the configured entry that has it. */
#ifndef WEIR_POLICY_RATE_LIMIT_SERVICE_H
#define WEIR_POLICY_RATE_LIMIT_SERVICE_H

#include "base/hash.h"
#include "base/text_table.h"
#include "policy/identity_settings.h"
#include "policy/limit.h"
#include "policy/rate_limit_call.h"

enum {
    RATE_LIMIT_DOMAINS_MAX = 1024,
    RATE_LIMIT_DOMAIN_MAX = 255,      /* bytes of a domain's name */
    RATE_LIMIT_FILES_MAX = 64,        /* patterns in `files` */
    CONFIGURED_ENTRIES_MAX = 10000,   /* of all domains */
    CONFIGURED_ENTRY_TEXT_MAX = 1024, /* bytes of a key or value */
    CONFIGURED_WILDCARDS_MAX = 256,   /* values with "*" of one key on one level */
    REPLACES_MAX = 64,                /* of one rate_limit */
    METADATA_DEPTH_MAX = 16,
    METADATA_MAX = 1024, /* bytes of an entry's keys and values, with 8 for each value */
};

/* `charge`: if one descriptor of a call is over its limit, none is charged, or all are, that one
 * into debt. */
enum rate_limit_charge { CHARGE_ALL, CHARGE_EVERY };

/* A value of `metadata`, as google.protobuf.Value has it. */
enum metadata_kind {
    METADATA_NULL,
    METADATA_BOOL,
    METADATA_NUMBER,
    METADATA_TEXT,
    METADATA_LIST,
    METADATA_MAP
};

struct metadata {
    enum metadata_kind kind;
    struct slice key; /* in a map; a NUL follows it */
    bool is_true;
    double number;
    struct slice text;
    unsigned count; /* of a list or map */
    const struct metadata *items;
};

struct arena;
struct configured_entry;

/* The configured entries of one key on one level. */
struct entry_key {
    struct slice key;
    const struct configured_entry *alone; /* without a value; NULL: none */
    const struct configured_entry **wildcards;
    unsigned wildcard_count;
    struct text_table values; /* struct configured_entry: the exact ones */
    unsigned value_count;
};

/* The configured entries of one level: one `descriptors`. */
struct entry_level {
    struct configured_entry *entries; /* in the order of the file */
    unsigned count;
    struct entry_key *keys;
    unsigned key_count;
    struct text_table by_key; /* struct entry_key */
};

/* The name of a rate limit of other descriptors of a call. */
struct replaced_limit {
    struct slice name;
};

/* One entry of `descriptors`. */
struct configured_entry {
    const struct configured_entry *parent; /* NULL: of the first level */
    unsigned depth;                        /* 0: of the first level */
    struct slice key, value;               /* value.n == 0: every value */
    bool has_wildcard;                     /* the value contains a "*" */
    bool shares;                           /* share_threshold: its values share one count */
    bool shadow, quota;                    /* shadow_mode, quota_mode */
    bool has_rate_limit;
    bool unlimited;              /* rate_limit.unlimited */
    int64_t requests_per_unit;   /* of rate_limit */
    struct limit *rate_limit;    /* the limit of `rate_limit`; NULL: none */
    const struct limit **limits; /* that limit alone, or those of the policy */
    unsigned limit_count;        /* 0: no limit */
    enum rate_limit_unit unit;   /* of rate_limit; UNIT_UNKNOWN: none */
    char *name;                  /* rate_limit.name; NULL: none */
    struct replaced_limit *replaces;
    unsigned replaces_count;
    const struct metadata *metadata;       /* a map; NULL: none */
    bool detailed_metric, value_to_metric; /* have no effect */
    struct entry_level below;
    struct position position; /* in the file of its domain */
};

struct rate_limit_domain {
    char *name;
    unsigned row; /* counter row, from 1 on; set before workers receive the policy */
    enum rate_limit_charge charge;
    char *file; /* as written; NULL: the policy itself, or one of `files` */
    struct position position;
    const char *position_file; /* NULL: the policy itself */
    struct entry_level top;
    /* The limits that descriptors state themselves, by unit. They share a counter row, and have no
     * number of their own. */
    struct limit stated[UNIT_COUNT];
};

struct rate_limit_service {
    bool is_set;                    /* the section is in the policy */
    bool is_alone;                  /* the policy has no clients and no upstreams */
    struct listen_settings *listen; /* also entries of policy->listen, with serves_limits */
    unsigned listen_count;
    struct identity_settings peers; /* `trusted` and `trust_unix`: the peers that may ask */
    bool shadow;                    /* every call is OK */
    enum rate_limit_charge charge;  /* default of the domains */
    bool has_headers;               /* `headers` is set */
    unsigned headers;               /* as policy->headers, whether set or not */
    struct rate_limit_domain *domains;
    unsigned domain_count;
    struct text_table domains_by_name;
    unsigned entry_count;     /* of all domains */
    struct hash_key hash_key; /* of all tables */
    /* Limits of the driver's script, by unit. All rate limits of a unit have the index of its one,
     * and state their numbers. */
    struct limit units[UNIT_COUNT];
    struct limit **rate_limits; /* those of `rate_limit` in all domains */
    unsigned rate_limit_count;
};

/* Makes the tables of a level from its entries. `earlier` has a position for each entry: it is set
 * to the entry with the same key and value that stands before it, or NULL. */
void entry_level_index(const struct rate_limit_service *service, struct arena *arena,
                       struct entry_level *level, const struct configured_entry **earlier);

/* The same for the domains; their names differ. */
void rate_limit_domains_index(struct rate_limit_service *service, struct arena *arena);

/* Returns the domain, or NULL. */
const struct rate_limit_domain *rate_limit_domain(const struct rate_limit_service *service,
                                                  struct slice name);

/* The limits that apply to a descriptor. */
struct descriptor_match {
    const struct configured_entry *entry; /* of its last entry; NULL: none */
    /* NULL: the limits of `entry`; else the limit that the descriptor states. It replaces them,
     * and shadow_mode and unlimited. */
    const struct limit *stated;
    uint32_t replaced; /* bit i: another descriptor of the call replaces the limit i of `entry` */
};

/* Returns the number of limits that the match has, replaced ones included. */
static inline unsigned descriptor_limit_count(const struct descriptor_match *match)
{
    return match->stated ? 1 : match->entry ? match->entry->limit_count : 0;
}

/* Returns the limit at `i`; NULL: it is replaced. */
static inline const struct limit *descriptor_limit(const struct descriptor_match *match, unsigned i)
{
    if (match->stated)
        return match->stated;
    return match->replaced >> i & 1 ? NULL : match->entry->limits[i];
}

static inline bool descriptor_is_unlimited(const struct descriptor_match *match)
{
    return !match->stated && match->entry && match->entry->unlimited;
}

/* Returns whether the limit of a matched descriptor with this name rejects: neither the entry nor
 * the limit is in shadow for it. */
bool descriptor_enforces(const struct descriptor_match *match, const struct limit *limit,
                         struct slice name);

/* Finds the configured entry of a descriptor, in linear time of its text and of the values with "*"
 * of its keys. */
void descriptor_match(const struct rate_limit_domain *domain,
                      const struct call_descriptor *descriptor, struct descriptor_match *match);

/* Returns the unit that is as long as the limit's period; UNIT_UNKNOWN: none is. */
enum rate_limit_unit limit_unit(const struct limit *limit);
/* Returns the length of a unit in µs. */
int64_t rate_limit_unit_us(enum rate_limit_unit unit);

/* Sets `replaced` of the matches of one call. A limit is replaced if a descriptor of the call
 * matches an entry whose `replaces` has its name: rate_limit.name, or that of the policy's
 * limit. */
void descriptor_matches_replace(struct descriptor_match *matches, unsigned count);

#endif
