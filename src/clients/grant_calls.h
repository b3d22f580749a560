/* grant_calls.h - the grants in Redis: what the scripts that deal with them say, and what their answers mean.
 *
 *   PREFIX:grants   a hash: a client as identity_text() -> "QUOTA:UNTIL", UNTIL in µs by Redis' clock; "version" -> a
 *                   text that is another one after each change. The key expires with its last grant.
 *
 * Each call has this one key, and goes wherever that key is in a cluster; messages reach every weir all the same. */
#ifndef WEIR_CLIENTS_GRANT_CALLS_H
#define WEIR_CLIENTS_GRANT_CALLS_H

#include <hiredis/hiredis.h>

#include "limit/grants.h"

/* Stands before whatever else a script does. ARGV:
 *   granted CLIENT                       -> { now, "QUOTA:UNTIL" or "" }
 *   grants VERSION                       -> { now, version } where that is it still, else { now, version, client,
 *                                           "QUOTA:UNTIL", ... }
 *   grant CLIENT QUOTA US CHANNEL MAX    -> { 1, told }, or { 0, 0 } where MAX others go on; QUOTA "none" takes back */
extern const char grant_preamble[];

/* What is published on PREFIX:resets begins with it where it is no reset; then the client. */
#define GRANT_MESSAGE "grant "

/* "PREFIX:grants": NUL-terminated, malloc'ed; NULL: no memory. */
char *grant_key(const struct policy *policy);

/* Reads "QUOTA:UNTIL". False: it is none that could have been written. */
MUST_CHECK bool grant_parse(const redisReply *value, int64_t *quota, int64_t *until_us);

#endif
