/* key.h - the name under which a limit is counted in Redis: PREFIX:{PART}:l:LIMIT[:{PART}...].
 *
 *   per: client            weir:{id:client-2}:l:per-client
 *   per: ip                weir:{ip:203.0.113.7}:l:logins           IPv6 by identity.ipv6_prefix
 *   per: [client, route]   weir:{id:client-2}:l:writes:{route:/v1/...}
 *   per: all               weir:{all}:l:everyone
 *   per: method, host      {method:GET}, {host:example.com}         host in lower case, without port or last dot
 *   per: "header:NAME"     {header:NAME:value}                      an absent field counts as an empty value
 *
 * The first part is the hash tag of Redis Cluster. In a part "{", "}", "%" and control bytes are written as %XX, so that
 * different values never share a key. Only the first KEY_VALUE_MAX bytes of a value count, which is more than any client's id
 * has: longer values of other fields that begin alike are counted together, on the side of the limit. */
#ifndef WEIR_LIMIT_KEY_H
#define WEIR_LIMIT_KEY_H

#include "limit/limiter.h"

enum { KEY_VALUE_MAX = IDENTITY_TEXT_MAX + 4 };

/* No key of this limit is longer. */
size_t key_size_max(const struct policy *policy, const struct limit *limit);

/* Never fails where `out` has key_size_max bytes of room. `client`: what all keys of the request begin with that are counted by
 * client first; empty before the first of them is written, and then in the room of `out`. */
void key_write(struct text *out, const struct policy *policy, const struct limit *limit,
               const struct limit_facts *facts, struct slice *client);

/* PREFIX:{IDENTITY}:q, where the quota of a client from a database is kept; beside what it has used. */
enum { KEY_QUOTA_MAX = 64 + 3 * KEY_VALUE_MAX + 8 };
void key_write_quota(struct text *out, const char *prefix, struct slice identity);

/* "{IDENTITY}", the tag behind PREFIX: in all keys of a client. `client` is identity_text(). */
enum { KEY_TAG_MAX = 3 * KEY_VALUE_MAX + 2 };
void key_write_tag(struct text *out, struct slice client);

/* Repeats of a limit with dedup are known by KEY:d:TARGET:ID. TARGET is a hash of client, host, method and path, ID is escaped as
 * above. */
enum { KEY_REPEAT_ID_MAX = 256, KEY_REPEAT_MAX = 36 + 3 * KEY_REPEAT_ID_MAX /* more than its key */ };

/* What the request calls itself; none where the field is absent, empty, too long or there twice. */
struct slice key_repeat_id(const struct limit *limit, const struct fields *fields);
void key_write_repeat(struct text *out, struct slice key, const struct limit_facts *facts, struct slice id);

#endif
