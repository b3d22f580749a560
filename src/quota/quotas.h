/* quotas.h - limits per client that stand in a database: what is known of an id, and waiting until it is.
 *
 *   worker   quota_client_find() --known--> go on
 *               | not known
 *            quota_client_ask() --quota request--> quota fetcher: a thread of its own
 *                                           1 Redis: cached by any weir?           one lookup for all quota requests of an id
 *                                           2 the lock in Redis: who asks?         others look again
 *                                           3 PostgreSQL, one query at a time
 *                                           4 kept in Redis and in the process' table
 *            settled() <--quota request, by post--'
 *
 * Workers never touch the database: whatever libpq does, at worst a request waits for quotas.timeout, by a deadline of
 * its own worker. */
#ifndef WEIR_QUOTA_QUOTAS_H
#define WEIR_QUOTA_QUOTAS_H

#include "base/deadline.h"
#include "base/histogram.h"
#include "policy/identity.h"
#include "quota/quota_cache.h"

struct quotas;
struct quota_client;
struct quota_request;

enum quota_query_result { QUERY_FOUND, QUERY_ABSENT, QUERY_FAILED, QUERY_RESULTS };
extern const char *const quota_query_label[QUERY_RESULTS];

/* Written by the quota fetcher alone; read by anyone. */
struct quota_stats {
    counter_t queries[QUERY_RESULTS];
    counter_t redis_hits; /* ids that Redis knew */
    counter_t refused;    /* quota requests that found too many waiting */
    counter_t expired;    /* lookups that ended with an answer past its time */
    _Atomic bool database_up;
};

/* --- The process: main thread ------------------------------------------------------------------------- */

/* Ends the process when there is no memory. */
struct quotas *quotas_new(void);

/* What `policy` says holds from now on (it is held). The same connection and query keep what is cached. */
void quotas_apply(struct quotas *quotas, struct policy *policy);

/* Starts the thread where a policy with quotas was applied; with all signals blocked. */
MUST_CHECK bool quotas_start(struct quotas *quotas);

/* When all workers have ended, before their desks are freed. */
void quotas_stop(struct quotas *quotas);
void quotas_free(struct quotas *quotas);

/* From any thread: the client was reset, here or elsewhere. `identity` as X-Weir-Client has it. */
void quotas_forget(struct quotas *quotas, struct slice identity);
/* Such messages may have been missed: everything is asked of Redis anew. */
void quotas_doubt(struct quotas *quotas);

/* NULL: no policy has had quotas. */
const struct quota_stats *quotas_stats(const struct quotas *quotas);
struct quota_cache *quotas_cache(const struct quotas *quotas);

/* --- A worker ----------------------------------------------------------------------------------------- */

/* Waiting for one id. Part of the caller's object. */
struct quota_wait {
    /* Runs once, never from inside quota_client_ask; may end the caller's object. `outcome` and `row` are set. */
    void (*settled)(struct quota_wait *wait);
    enum quota_outcome outcome;
    struct quota_row row;
    struct quota_request *request; /* NULL: nothing is under way */
    struct deadline deadline;
};

/* -1 as errno where there is none. NULL: no memory, or no descriptor. */
struct quota_client *quota_client_new(struct quotas *quotas, struct event_base *base,
                                      struct deadlines *deadlines);
void quota_client_free(struct quota_client *quota_client);

/* False: it must be asked for. The id is an identity's from a header. */
MUST_CHECK bool quota_client_find(struct quota_client *quota_client, const struct identity *identity,
                                  enum quota_outcome *outcome, struct quota_row *row);

/* False: too many wait already; settled() will not run. It runs after quotas.timeout at the latest, unless
 * quota_client_abandon is called before. */
MUST_CHECK bool quota_client_ask(struct quota_client *quota_client, const struct policy *policy,
                                 const struct identity *identity, struct quota_wait *wait);
void quota_client_abandon(struct quota_wait *wait);

/* What the row means under this policy. A plan that it does not have is none. */
struct client_limits quota_client_limits(const struct policy *policy, const struct quota_row *row);

#endif
