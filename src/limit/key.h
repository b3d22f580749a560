/* key.h - the Redis key of a limit's counter: PREFIX:{PART}:l:LIMIT[:{PART}...].
 *
 *   per: client            weir:{id:client-2}:l:per-client
 *   per: ip                weir:{ip:203.0.113.7}:l:logins        grouped by identity.ipv4_prefix and ipv6_prefix
 *   per: [client, route]   weir:{id:client-2}:l:writes:{route:/v1/...}
 *   per: all               weir:{all}:l:everyone
 *   per: method, host      {method:GET}, {host:example.com}      host in lower case, without port or last dot
 *   per: "header:NAME"     {header:NAME:value}                   an absent field counts as an empty value
 *   per: "json:PATH"       {json:PATH:value}                     see json_values_text()
 *   per: "jwt:CLAIM"       {value:jwt:CLAIM:value}               see policy/key_values.h
 *
 * The first part is the hash tag of Redis Cluster. In a part "{", "}", "%" and control bytes are
 * written as %XX, so that different values never share a key.
 *
 * Values of more than 256 bytes are hashed, as ids are (identity_short_value()). Only the first
 * KEY_VALUE_MAX bytes of a method or host are used. */
#ifndef WEIR_LIMIT_KEY_H
#define WEIR_LIMIT_KEY_H

#include "limit/decision_request.h"

enum { KEY_VALUE_MAX = IDENTITY_TEXT_MAX + 4 };

/* The maximum size of this limit's keys, in bytes. */
size_t key_size_max(const struct policy *policy, const struct limit *limit);

/* Appends the key of a limit. Cannot fail if `out` has key_size_max() bytes of room. *client
 * caches the prefix and tag of the request's per-client keys: pass an empty slice before the
 * first key. Afterwards it points into `out`. */
void key_write(struct text *out, const struct policy *policy, const struct limit *limit,
               const struct limit_facts *facts, struct slice *client);

/* The key of a descriptor's limit is PREFIX:{NAME}:l:LIMIT; NAME: see policy/descriptor_name.h.
 * Those of rate_limit are named by their unit, "unit:day", which is the name of no other limit. */
const char *limit_key_name(const struct limit *limit);
void key_write_descriptor(struct text *out, const struct policy *policy, const struct limit *limit,
                          struct slice name);
/* The maximum size of these keys. */
size_t key_descriptor_size_max(const struct policy *policy);

/* PREFIX:{IDENTITY}:q, the key of a client's quota from a database; in the same slot as its
 * usage. */
enum { KEY_QUOTA_MAX = 64 + 3 * KEY_VALUE_MAX + 8 };
void key_write_quota(struct text *out, const char *prefix, struct slice identity);

/* "{IDENTITY}", the tag after PREFIX: in all keys of a client. `client` is identity_text(). */
enum { KEY_TAG_MAX = 3 * KEY_VALUE_MAX + 2 };
void key_write_tag(struct text *out, struct slice client);

/* The key of a repeat of a limit with dedup is KEY:d:TARGET:ID. TARGET is a hash of client,
 * host, method and path. ID is escaped as above. */
enum {
    KEY_REPEAT_ID_MAX = 256,
    KEY_REPEAT_MAX = 36 + 3 * KEY_REPEAT_ID_MAX /* more than its key */
};

/* The request's own ID. Empty if the field is absent, empty, too long or repeated. */
struct slice key_repeat_id(const struct limit *limit, const struct fields *fields);
void key_write_repeat(struct text *out, struct slice key, const struct limit_facts *facts,
                      struct slice id);

#endif
