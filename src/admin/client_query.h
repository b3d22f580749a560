/* client_query.h - shows, resets or grants limits of one client. Showing charges nothing.
 *
 *   INSPECT read the grant -> [SCAN...] -> one driver call with cost 0 for each state key
 *   GRANT   one call, which also notifies all weir processes
 *   RESET   SCAN -> DEL the keys found -> ... -> DEL the other keys and PUBLISH
 *
 * A client query only builds the Redis calls and decodes the replies. The command line makes
 * blocking calls, the admin listener non-blocking ones. State keys of a limit with several `per`
 * keys are found with SCAN, which reads all key names in Redis, about 1000 per call. SCAN stops
 * after a time limit; the result then covers only the keys found so far (client_query_complete).
 *
 * These files own what an operator does to one client: inspect, reset, grant. They decide no
 * requests. In reading order:
 *
 *   client_query.h                query_identity.c: whose keys; query_replies.c: from replies
 *   query_redis.h                 runs a query for the command line
 *   grant_calls.h, grant_reader.h grants in Redis; their copy in each process
 *   redis_memory.h                Redis' memory, for the metrics */
#ifndef WEIR_ADMIN_CLIENT_QUERY_H
#define WEIR_ADMIN_CLIENT_QUERY_H

#include "limit/grants.h"
#include "policy/rate_limit_service.h"
#include "quota/quota_row.h"
#include "redis/redis_reply.h"

enum client_query_kind {
    CLIENT_QUERY_INSPECT,
    CLIENT_QUERY_RESET,
    CLIENT_QUERY_GRANT,
    CLIENT_QUERY_CLIENT, /* the grant and the database row alone: the beginning of an INSPECT */
    CLIENT_QUERY_KEY     /* one state key: the end of an INSPECT */
};

enum {
    CLIENT_QUERY_FOUND_MAX =
        /* keys per batch of limits with several `per` keys: an INSPECT shows at most this many, a
         * RESET deletes them and goes on */
    256,
    CLIENT_QUERY_ROWS_MAX = LIMITS_MAX + CLIENT_QUERY_FOUND_MAX,
};

/* One state key. */
struct limit_status {
    const struct limit *limit;
    bool is_of_descriptor; /* counted per descriptor, whatever `per` of the limit is */
    struct slice key;      /* the whole key */
    struct slice rest;     /* "{route:/v1}", of a limit with several `per` keys */
    int64_t quota, burst, capacity;
    bool enforced;               /* the limit may reject this client */
    bool admits;                 /* a request of cost 1 is admitted */
    int64_t remaining, reset_us; /* reset_us: until the limit is fully restored */
    int64_t retry_after_us;      /* until a request of cost 1 is admitted; 0: at once, -1: never */
    bool failed; /* the custom script failed: only the key and the numbers of the limit are valid */
};

struct client_query;
struct planned_limit;

/* Parses a client as identity_parse() does, and looks up its address in the lists. Addresses are
 * grouped by identity.ipv4_prefix and ipv6_prefix; the form of the group in X-Weir-Client is
 * accepted, too, and that of bytes that are not UTF-8 in JSON (text_json()). Returns false on error
 * and sets `*why` (static text). */
MUST_CHECK bool client_query_identity(const struct policy *policy, struct slice text,
                                      struct identity *identity, const char **why);

/* The limits of a client that is a descriptor of the rate limit service. */
struct query_descriptor {
    bool is_one; /* false: any other client */
    struct descriptor_match match;
    const char *unlimited; /* why no limit counts it, static text; NULL: limits of `match` do */
};

/* As client_query_identity(), and accepts descriptors, too: descriptor:DOMAIN/KEY=VALUE, see
 * policy/descriptor_name.h. Without rate_limit_service, such a name is an id. */
MUST_CHECK bool client_query_named(const struct policy *policy, struct slice text,
                                   struct identity *identity, struct query_descriptor *descriptor,
                                   const char **why);

/* Returns the Lua script for client queries of this policy, which includes policy->driver.
 * malloc'ed. NULL: out of memory. */
char *client_query_script(const struct policy *policy);

/* What a query is to do. */
struct client_order {
    enum client_query_kind kind;
    int64_t quota, us;   /* GRANT: the quota, for `us` microseconds; GRANT_NONE revokes a grant */
    uint64_t timeout_us; /* INSPECT, RESET: SCAN runs for at most this time */
    const struct planned_limit *key; /* KEY: its limit, numbers and key, which are copied */
};

/* Creates a query. `policy`, `identity` and `descriptor` (NULL: none) must outlive it. Returns NULL
 * if out of memory. */
struct client_query *client_query_new(const struct policy *policy, const struct identity *identity,
                                      const struct query_descriptor *descriptor,
                                      const struct client_order *order);
void client_query_free(struct client_query *query);

/* Returns the next call: the arguments of EVALSHA after the SHA, valid until
 * client_query_take(). Returns false if the query is complete. */
MUST_CHECK bool client_query_next(struct client_query *query, int *argc, const char ***argv,
                                  const size_t **sizes);
/* Sets the number of nodes to scan (the masters of a cluster). Call before each
 * client_query_next() if there may be more than one. */
void client_query_set_shards(struct client_query *query, unsigned parts);
/* Returns the node (from 0) for the next call. Only SCAN uses it; for all other calls it is 0. */
unsigned client_query_shard(const struct client_query *query);
/* Takes the call's reply. Returns false if the reply is malformed; the query then ends. */
MUST_CHECK bool client_query_take(struct client_query *query, const struct redis_reply *reply);

/* What a query has found or done. */
struct client_result {
    bool cut;      /* keys may have been skipped */
    bool notified; /* the message to all weir processes was published */
    bool granted;  /* INSPECT: a grant is in effect; GRANT: done; false: GRANTS_MAX others exist */
    bool grant_unread;   /* INSPECT: Redis did not let this user read it */
    int64_t quota, us;   /* of the grant: quota and remaining time */
    bool needs_database; /* the client's limits come from the policy's database */
    bool row_cached;     /* Redis has the database's row: */
    struct quota_row row;
    int64_t row_us;        /* time for which it stays fresh; negative: expired */
    uint64_t removed;      /* RESET: number of keys */
    unsigned status_count; /* INSPECT, KEY */
    struct limit_status status[CLIENT_QUERY_ROWS_MAX];
};

/* Returns the results, after the last call. */
const struct client_result *client_query_result(const struct client_query *query);
/* Returns the client's limits: from the policy if the client is blocked, else from a grant, else
 * the policy, else the database. NULL: the limits as written. Limits from a grant live as long as
 * the query. */
const struct client_limits *client_query_limits(const struct client_query *query);

/* Returns "PREFIX:resets", the channel that publishes the identities of reset clients.
 * NUL-terminated, malloc'ed; NULL: out of memory. */
char *client_query_channel(const struct policy *policy);

enum { CLIENT_QUERY_WARNINGS_MAX = 4 };

#define CLIENT_QUERY_GRANT_UNREAD                                                                  \
    "Redis does not let its user read grants (allow HGET, see docs/backends.md): if the client "   \
    "has one, it is not shown, and the limits are those without it"

/* Lists what makes the result incomplete or without effect, as static sentences without their full
 * stop. `descriptor` is the client's. Returns their number. */
unsigned client_query_warnings(const struct client_query *query,
                               const struct query_descriptor *descriptor,
                               const char *found[static CLIENT_QUERY_WARNINGS_MAX]);

/* Returns a word for the limits: "quota", "blocked", ... */
const char *client_query_limits_text(const struct client_limits *client_limits);

#endif
