/* client_query.h - where one client stands on every limit, without charging it; or a fresh start for it.
 *
 *   LOOK    what it is granted -> [SCAN...] -> one call of the driver with a cost of 0 for each state key
 *   GRANT   one call, which tells all weirs
 *   RESET   SCAN -> DEL what was found -> ... -> DEL the other keys and PUBLISH
 *
 * A client query only says what is to be asked of Redis and understands the answers: the command line waits for
 * them, the admin listener does not. The state keys of a limit that is counted per several things are looked
 * for by SCAN, which reads the names of all keys in Redis a thousand at a time; hence it ends after a given
 * time, and what was found by then is all there is (client_query_complete). */
#ifndef WEIR_CLIENTS_CLIENT_QUERY_H
#define WEIR_CLIENTS_CLIENT_QUERY_H

#include <hiredis/hiredis.h>

#include "quota/quota_row.h"

#include "limit/grants.h"

enum client_query_kind { CLIENT_QUERY_LOOK, CLIENT_QUERY_RESET, CLIENT_QUERY_GRANT };

enum {
    CLIENT_QUERY_FOUND_MAX =
        256, /* keys of lists; a look shows so many, a reset goes on after each so many */
    CLIENT_QUERY_ROWS_MAX = LIMITS_MAX + CLIENT_QUERY_FOUND_MAX,
};

/* One state key. */
struct limit_status {
    const struct limit *limit;
    struct slice key;  /* whole */
    struct slice rest; /* "{route:/v1}", of a limit that is counted per several things */
    int64_t quota, capacity;
    bool enforced;               /* it may reject this client */
    bool admits;                 /* a request of cost 1 */
    int64_t remaining, reset_us; /* reset: until the limit is as good as new */
    int64_t retry_after_us;      /* until a request of cost 1 is admitted; 0: at once, -1: never */
    bool failed; /* its own script fails: nothing more is known than that, and how it is counted */
};

struct query;

/* Reads "client-2", "id:client-2", "ip:203.0.113.7", "ip:2001:db8::1" (grouped by identity.ipv6_prefix, and
 * as X-Weir-Client writes the group), "ip:unix". False: `*why` (static text). */
MUST_CHECK bool client_query_identity(const struct policy *policy, struct slice text,
                                      struct identity *identity, const char **why);

/* The script that client queries of this policy ask, around policy->driver. malloc'ed. NULL: no memory. */
char *client_query_script(const struct policy *policy);

/* `policy` and `identity` outlive the client query. It looks for keys for `timeout_us` at most. NULL: no memory.
 */
struct query *client_query_new(const struct policy *policy, const struct identity *identity,
                               enum client_query_kind kind, uint64_t timeout_us);
void client_query_free(struct query *query);

/* A quota of GRANT_NONE takes back what was granted. */
struct query *client_query_new_grant(const struct policy *policy, const struct identity *identity,
                                     int64_t quota, int64_t us);

/* What to ask next: the arguments of EVALSHA after the SHA; they live until client_query_take. False: nothing
 * more. */
MUST_CHECK bool client_query_next(struct query *query, int *argc, const char ***argv, const size_t **sizes);
/* Redis may be in several parts (the masters of a cluster), each of which has to be looked through. Before each
 * client_query_next, where it may be more than one. */
void client_query_set_shards(struct query *query, unsigned parts);
/* Of which part that asks, from 0; of other calls, which have keys, or have no need of any, 0. */
unsigned client_query_shard(const struct query *query);
/* The answer to it. False: it has the wrong shape, and the client query is over. */
MUST_CHECK bool client_query_take(struct query *query, const redisReply *reply);

/* Afterwards. */
bool client_query_complete(const struct query *query); /* every key was looked at */
unsigned client_query_rows(const struct query *query, const struct limit_status **rows);
/* Of a look: is the client granted a quota, and for how long still? Of a grant: was it done, or are there GRANTS_MAX
 * already? */
bool client_query_granted(const struct query *query, int64_t *quota, int64_t *us);
/* Of a look: does the database of the policy say what holds for the client? */
bool client_query_asks_database(const struct query *query);
/* What it said, and for how long that is believed; negative: past its time. False: it is not cached in Redis. */
bool client_query_row(const struct query *query, struct quota_row *row, int64_t *us);
/* What holds for the client: a grant, else what the policy says, else what the database said. NULL: the limits as written. Of a grant it has the
 * client query's life. */
const struct client_limits *client_query_client(const struct query *query);
uint64_t client_query_removed(const struct query *query); /* keys */
bool client_query_told(const struct query *query);        /* Redis took the message for all weirs */

/* "PREFIX:resets": a message there names an identity whose state was removed. NUL-terminated, malloc'ed;
 * NULL: no memory. */
char *client_query_channel(const struct policy *policy);

/* What these terms are, in words: "quota", "prohibited", ... */
const char *client_query_limits_text(const struct client_limits *client_limits);

#endif
