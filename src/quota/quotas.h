/* quotas.h - per-client limits from a database: the cache, and waiting for lookups.
 *
 *   worker   quota_client_find() --cached--> go on
 *               | not cached
 *            quota_client_request() --quota request--> quota fetcher: a thread of its own
 *                                           1 Redis: cached by any weir?      (one lookup per id)
 *                                           2 the lock in Redis: held by another weir? wait, retry
 *                                           3 PostgreSQL, one query at a time
 *                                           4 stored in Redis and in the process' cache
 *            completed() <--quota request, via the worker's queue--'
 *
 * Workers never use the database. If libpq is slow, a request waits at most quotas.timeout,
 * which is a deadline in its own worker.
 *
 * This directory owns the way from an id to its row in PostgreSQL. It decides nothing. In reading
 * order: quotas.h, quota_client.c (a worker's side), quota_cache.h, fetcher.c and lookup.h (the
 * thread), quota_row.h, postgres_link.h, postgres_row.h, postgres_servers.h. */
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

/* Written by the quota fetcher only; read by any thread. */
struct quota_stats {
    counter_t queries[QUERY_RESULTS];
    counter_t redis_hits; /* ids found in Redis */
    counter_t refused;    /* quota requests refused because too many were waiting */
    counter_t unusable;   /* rows with a value that cannot be used, as they were queried */
    counter_t expired;    /* lookups that ended with an entry past fresh_us */
    _Atomic bool database_up;
};

/* --- Process: main thread --------------------------------------------------------------------- */

/* Returns NULL on failure. */
struct quotas *quotas_new(void);

/* Creates the cache if the policy needs it. Returns false if out of memory. */
MUST_CHECK bool quotas_prepare(struct quotas *quotas, const struct policy *policy);

/* Applies the policy, after quotas_prepare(), and holds a reference. The cache is kept if
 * connection and query are unchanged. */
void quotas_apply(struct quotas *quotas, struct policy *policy);

/* Starts the fetcher thread if a policy with quotas was applied. The thread blocks all signals. */
MUST_CHECK bool quotas_start(struct quotas *quotas);

/* Call after all workers have ended and before their quota clients are freed. */
void quotas_stop(struct quotas *quotas);
void quotas_free(struct quotas *quotas);

/* Thread-safe. The client was reset, by this or another weir: drops its entry. `identity` has
 * the format of X-Weir-Client. */
void quotas_forget(struct quotas *quotas, struct slice identity);
/* Reset messages may have been missed: all entries are checked with Redis again. */
void quotas_doubt(struct quotas *quotas);

/* NULL: no policy has had quotas. */
const struct quota_stats *quotas_stats(const struct quotas *quotas);
struct quota_cache *quotas_cache(const struct quotas *quotas);

/* --- Worker ----------------------------------------------------------------------------------- */

/* The wait for one id. Embedded in the caller's object. */
struct quota_wait {
    /* Runs once, never from inside quota_client_request(); may free the caller's object. `outcome`
     * and `row` are set. */
    void (*completed)(struct quota_wait *wait);
    enum quota_outcome outcome;
    struct quota_row row;
    struct quota_request *request; /* NULL: no request in flight */
    struct deadline deadline;
};

/* Returns NULL if out of memory or out of file descriptors. */
struct quota_client *quota_client_new(struct quotas *quotas, struct event_base *base,
                                      struct deadlines *deadlines);
void quota_client_free(struct quota_client *quota_client);

/* Looks the id up in the cache. Returns false if it must be requested: if that is not possible, an
 * expired entry applies, which is set as well. `identity` comes from a header. */
MUST_CHECK bool quota_client_find(struct quota_client *quota_client,
                                  const struct identity *identity, enum quota_outcome *outcome,
                                  struct quota_row *row);

/* Requests the id's quota. Returns false if too many requests wait; completed() will not run.
 * Otherwise it runs within quotas.timeout, unless quota_client_abandon() is called first. */
MUST_CHECK bool quota_client_request(struct quota_client *quota_client, const struct policy *policy,
                                     const struct identity *identity, struct quota_wait *wait);
void quota_client_abandon(struct quota_wait *wait);

/* Returns the limits that the row stands for under this policy. A plan that the policy does not
 * have is ignored. */
struct client_limits quota_client_limits(const struct policy *policy, const struct quota_row *row);

#endif
