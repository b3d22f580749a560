/* query_redis.h - runs client queries for the command line: connects to the Redis of a policy and
 * blocks. */
#ifndef WEIR_ADMIN_QUERY_REDIS_H
#define WEIR_ADMIN_QUERY_REDIS_H

#include "admin/client_query.h"

struct redis_blocking;

/* A connection for queries; initialize with the policy alone. */
struct query_redis {
    const struct policy *policy; /* with its composed script */
    struct redis_blocking *redis;
    int where; /* cluster: the slot that the connection is for; negative: -1 - shard */
    char sha[41];
};

/* Loads a policy and composes its script. Prints errors to stderr, and no warnings: `weir check`
 * prints those. NULL: there is an error. The caller owns a reference. */
struct policy *query_policy(const char *file, const char *lua_dir);

/* Runs all calls of a query. False: an error was printed to stderr. */
MUST_CHECK bool query_redis_run(struct query_redis *to, struct client_query *query);
void query_redis_close(struct query_redis *to);

#endif
