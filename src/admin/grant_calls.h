/* grant_calls.h - grants in Redis: the script calls and the decoding of replies.
 *
 *   PREFIX:grants   a hash: client as identity_text() -> "QUOTA:UNTIL", UNTIL in µs, Redis' clock;
 *                   "version" -> a text that differs after each change.
 *                   The key expires with its last grant.
 *
 * Each call uses only this key, so in a cluster it goes to the key's node. Messages reach every
 * weir process on any node. */
#ifndef WEIR_ADMIN_GRANT_CALLS_H
#define WEIR_ADMIN_GRANT_CALLS_H

#include "limit/grants.h"
#include "redis/redis_reply.h"

/* Precedes the rest of a script. ARGV:
 *
 *   granted CLIENT                       -> { now, "QUOTA:UNTIL" or "" }; 0: it cannot be read
 *   grants VERSION                       -> { now, version } if VERSION is current, else
 *                                           { now, version, client, "QUOTA:UNTIL", ... }
 *   grant CLIENT QUOTA US CHANNEL MAX    -> { 1, notified }, or { 0, 0 } if MAX others are in effect;
 *                                           QUOTA "none" revokes */
extern const char grant_preamble[];

/* Prefix of grant messages on PREFIX:resets; the client follows. Messages without it are resets. */
#define GRANT_MESSAGE "grant "

/* Returns "PREFIX:grants": NUL-terminated, malloc'ed; NULL: out of memory. */
char *grant_key(const struct policy *policy);

/* Parses "QUOTA:UNTIL". Returns false if the value is invalid. */
MUST_CHECK bool grant_parse(const struct redis_reply *value, int64_t *quota, int64_t *until_us);

#endif
