/* servers.c - a worker's view of the endpoint set: choice of a server, retry budget, arrival and
 * removal of servers. */
#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "upstream/http2_upstream.h"
#include "upstream/upstream_internal.h"

/* ---- choosing -------------------------------------------------------------------------------- */

bool servers_any(const struct pool *pool)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i] && endpoint_is_healthy(pool->servers[i]->endpoint))
            return true;
    return false;
}

/* Balancing: ejected servers only if all are; then by the number of requests in progress. */
static bool is_better(const struct server *a, const struct server *b)
{
    return a->ejected != b->ejected ? a->ejected < b->ejected : a->outstanding < b->outstanding;
}

struct server *servers_choose(struct pool *pool, const struct upstream_tries *tries)
{
    struct server *best = NULL;
    bool first = tries->servers == 0; /* retries do not advance the round-robin start */

    pool->next = pool->slots ? (pool->next + first) % pool->slots : 0;
    for (unsigned i = 0; i < pool->slots; i++) {
        unsigned slot =
            pool->next + i < pool->slots ? pool->next + i : pool->next + i - pool->slots;
        struct server *s = pool->servers[slot];
        if (!s || (tries->servers >> slot & 1) || !endpoint_is_healthy(s->endpoint))
            continue;
        if (!best || is_better(s, best))
            best = s;
    }
    return best;
}

/* Returns whether an untried server passes its health checks; `ejected`: it may be ejected. */
static bool servers_another(const struct pool *pool, const struct upstream_tries *tries,
                            bool ejected)
{
    for (unsigned i = 0; i < pool->slots; i++) {
        const struct server *s = pool->servers[i];
        if (s && !(tries->servers >> i & 1) && (ejected || !s->ejected) &&
            endpoint_is_healthy(s->endpoint))
            return true;
    }
    return false;
}

/* Takes a retry from the budget of the upstream. */
static bool take_retry(struct pool *pool)
{
    const struct upstream_retry *settings = &pool->settings->retry;
    uint64_t now = clock_cached_us();
    uint64_t requests = recent_count(&pool->retries, RETRIES_REQUEST, now);
    uint64_t allowed = settings->budget_min + requests * (uint64_t)settings->budget / SHARE_WHOLE;
    if (recent_count(&pool->retries, RETRIES_RETRY, now) >= allowed) {
        counter_add(&pool->pools->worker->stats.retries_over_budget, 1);
        return false;
    }
    recent_add(&pool->retries, RETRIES_RETRY, now);
    return true;
}

void servers_forget_replaced(const struct pool *pool, struct upstream_tries *tries)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i] && pool->servers[i]->arrival > tries->arrivals)
            tries->servers &= ~((uint64_t)1 << i);
    tries->arrivals = pool->arrivals;
}

bool upstream_retry_may(const struct link *link, bool ejected, struct upstream_tries *tries)
{
    struct pool *pool = link->server->pool;
    struct upstream_tries after = *tries;

    servers_forget_replaced(pool, &after);
    server_tried(link->server, &after);
    if (!servers_another(pool, &after, ejected) || !take_retry(pool))
        return false;
    *tries = after;
    return true;
}

bool upstream_retry_refused_may(const struct link *link, bool budget, struct upstream_tries *tries)
{
    const struct server *server = link->server;

    if (budget && !take_retry(server->pool))
        return false;
    if (!server->gone)
        tries->servers &= ~((uint64_t)1 << server->slot);
    return true;
}

/* ---- arrival and removal --------------------------------------------------------------------- */

/* Adds a server for `endpoint`, which it takes over. Returns false if out of memory. */
static bool server_arrives(struct pool *pool, struct endpoint *endpoint)
{
    struct server *server = calloc(1, sizeof *server);
    unsigned slot = 0;

    if (!server) {
        endpoint_drop(endpoint);
        return false;
    }
    while (pool->servers[slot]) /* one is free: those that left come before those that arrive */
        slot++;
    assert(slot < ENDPOINTS_MAX);
    server->endpoint = endpoint;
    server->pool = pool;
    server->slot = slot;
    server->arrival = ++pool->arrivals;
    server_find_counts(server);
    recent_init(&server->outcomes, pool->settings->eject.window_us);
    TAILQ_INIT(&server->pooled);
    TAILQ_INIT(&server->http2.connections);
    TAILQ_INIT(&server->http2.waiting);
    pool->servers[slot] = server;
    pool->count++;
    if (slot >= pool->slots)
        pool->slots = slot + 1;
    return true;
}

static void end_probes(struct server *server)
{
    deadline_cancel(&server->probe);
    if (server->probing && !server->probing->http2)
        connection_close(server->probing);
    for (struct connection *c; (c = TAILQ_FIRST(&server->pooled));)
        connection_close(c);
    (void)http2_retire_idle(server);
}

/* Removes a server from its pool. Its exchanges continue to their end. */
static void server_leaves(struct server *server)
{
    struct pool *pool = server->pool;

    pool->servers[server->slot] = NULL;
    pool->count--;
    while (pool->slots && !pool->servers[pool->slots - 1])
        pool->slots--;
    end_probes(server);
    server->gone = true;
    TAILQ_INSERT_TAIL(&pool->leaving, server, link);
    server_free_if_unused(server);
}

static bool is_listed(const struct endpoint *endpoint, struct endpoint *const *endpoints,
                      unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (endpoints[i] == endpoint)
            return true;
    return false;
}

static bool is_in_pool(const struct pool *pool, const struct endpoint *endpoint)
{
    for (unsigned i = 0; i < pool->slots; i++)
        if (pool->servers[i] && pool->servers[i]->endpoint == endpoint)
            return true;
    return false;
}

/* Returns false if out of memory. */
static bool pool_refresh(struct pool *pool, struct endpoint_set *endpoint_set)
{
    struct endpoint *endpoints[ENDPOINTS_MAX];
    unsigned count = endpoint_set_list(endpoint_set, pool->settings->index, endpoints);
    bool good = true;

    for (unsigned i = 0; i < ENDPOINTS_MAX; i++)
        if (pool->servers[i] && !is_listed(pool->servers[i]->endpoint, endpoints, count))
            server_leaves(pool->servers[i]);
    for (unsigned i = 0; i < count; i++)
        if (is_in_pool(pool, endpoints[i]))
            endpoint_drop(endpoints[i]);
        else
            good &= server_arrives(pool, endpoints[i]);
    return good;
}

void servers_refresh(struct upstream_pools *pools)
{
    unsigned version = endpoint_set_version(pools->endpoint_set);

    if (version == pools->version)
        return;
    bool good = true;
    for (unsigned i = 0; i < pools->policy->upstream_count; i++)
        good &= pool_refresh(&pools->all[i], pools->endpoint_set);
    if (good)
        pools->version = version;
}

/* ---- the pools of an endpoint set ------------------------------------------------------------ */

int upstream_pools_init(struct upstream_pools *pools, struct upstream_worker *worker,
                        struct endpoint_set *endpoint_set)
{
    const struct policy *policy = endpoint_set_policy(endpoint_set);

    if (!(pools->all =
              calloc(policy->upstream_count ? policy->upstream_count : 1, sizeof *pools->all)))
        return -1;
    pools->worker = worker;
    pools->policy = policy;
    pools->endpoint_set = endpoint_set;
    for (unsigned i = 0; i < policy->upstream_count; i++) {
        pools->all[i].settings = &policy->upstreams[i];
        pools->all[i].pools = pools;
        recent_init(&pools->all[i].retries, RETRY_WINDOW_US);
        TAILQ_INIT(&pools->all[i].leaving);
    }
    pools->version = endpoint_set_version(endpoint_set) - 1;
    servers_refresh(pools);
    return 0;
}

void upstream_pools_retire(struct upstream_pools *pools)
{
    for (unsigned i = 0; i < pools->policy->upstream_count; i++)
        for (unsigned s = 0; s < pools->all[i].slots; s++)
            if (pools->all[i].servers[s])
                end_probes(pools->all[i].servers[s]);
}

void upstream_worker_free_closed(struct upstream_worker *w)
{
    http2_upstreams_free_ended(w);
    connections_free_closed(w);
    servers_free_unused(w); /* closed connections point at them */
}

void upstream_pools_free(struct upstream_pools *pools)
{
    if (!pools->all)
        return;
    upstream_pools_retire(pools);
    for (unsigned i = 0; i < pools->policy->upstream_count; i++)
        http2_close_all(&pools->all[i]);
    upstream_worker_free_closed(pools->worker); /* closed connections point at these pools */
    for (unsigned i = 0; i < pools->policy->upstream_count; i++) {
        struct pool *pool = &pools->all[i];
        for (struct server *server; (server = TAILQ_FIRST(&pool->leaving));) {
            TAILQ_REMOVE(&pool->leaving, server, link);
            server_free(server);
        }
        for (unsigned s = 0; s < pool->slots; s++)
            if (pool->servers[s])
                server_free(pool->servers[s]);
    }
    free(pools->all);
    pools->all = NULL;
}
