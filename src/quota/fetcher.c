/* fetcher.c - the quota fetcher, which looks up quotas for all workers: its messages, its
 * policy, and its connections to Redis and the database. lookup.c looks up one id. */
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "quota/lookup.h"

/* --- Messages --------------------------------------------------------------------------------- */

static bool takes_lookup(const struct fetcher *fetcher, const struct quota_request *request)
{
    return fetcher->policy && fetcher->count < LOOKUPS_MAX &&
           fetcher->of_address[request->address % ADDRESSES] < LOOKUPS_OF_ADDRESS;
}

void fetcher_take(struct fetcher *fetcher, struct quota_request *request)
{
    struct slice id = {request->id, request->id_size};
    struct lookup *under_way = lookup_find(fetcher, id), *k;
    uint64_t now = clock_us();
    struct quota_entry entry;

    if (under_way && !under_way->trying) {
        STAILQ_INSERT_TAIL(&under_way->requests, request, entry);
        return;
    }
    bool known = quota_cache_find(fetcher->quotas->table, id, now, &entry);
    if (known && entry.fresh_us > now) { /* another worker's request was faster */
        quota_post_back(request, entry.outcome, &entry.row);
        return;
    }
    k = under_way || !takes_lookup(fetcher, request) ? NULL
                                                     : lookup_new(fetcher, id, request->address);
    if (!k) {
        if (!under_way) /* else the database is down, and this lookup tries it again */
            counter_add(&fetcher->quotas->stats.refused, 1);
        quota_post_back(request, known ? entry.outcome : QUOTA_UNKNOWN, known ? &entry.row : NULL);
        return;
    }
    if (known && entry.outcome == QUOTA_FOUND)
        k->before = entry;
    STAILQ_INSERT_TAIL(&k->requests, request, entry);
    lookup_query_redis(k);
}

void fetcher_forget(struct fetcher *fetcher, struct slice id)
{
    struct lookup *k = lookup_find(fetcher, id);

    if (k)
        k->dropped = true;
    quota_cache_remove(fetcher->quotas->table, id); /* again: it may have been stored in between */
}

/* --- Policies --------------------------------------------------------------------------------- */

static void on_redis_ready(void *context)
{
    struct fetcher *fetcher = context;
    struct lookup *k, *next;

    fetcher->redis_down = false;
    /* NULL inside redis_client_new(): waiting lookups are handled by lookups waiting() */
    if (!fetcher->redis)
        return;
    for (k = TAILQ_FIRST(&fetcher->all); k; k = next) {
        next = TAILQ_NEXT(k, of_all);
        if (k->stage == STAGE_REDIS && !k->calling)
            lookup_query_redis(k);
    }
}

static void on_redis_not_ready(void *context, enum redis_failure cause)
{
    struct fetcher *fetcher = context;
    (void)cause;
    fetcher->redis_down = true; /* waiting lookups wait at most redis.timeout */
}

static void connect_to_redis(struct fetcher *fetcher)
{
    const struct redis_link_watch watch = {.ready = on_redis_ready,
                                           .not_ready = on_redis_not_ready,
                                           .context = fetcher,
                                           .quiet = true};

    fetcher->redis_down = false;
    fetcher->redis =
        redis_client_new(fetcher->base, &fetcher->policy->redis, slice_of(lookup_script), &watch);
    fetcher->redis_down |= !fetcher->redis; /* out of memory: until the next reload */
}

static void hang_up_redis(struct fetcher *fetcher)
{
    fetcher->changing = true; /* lookups wait for the next client */
    redis_client_free(fetcher->redis);
    fetcher->changing = false;
    fetcher->redis = NULL;
}

static bool same_database(const struct policy *a, const struct policy *b)
{
    return strcmp(a->quotas.connection, b->quotas.connection) == 0 &&
           strcmp(a->quotas.query, b->quotas.query) == 0;
}

static void hang_up_database(struct fetcher *fetcher)
{
    postgres_link_free(fetcher->postgres);
    fetcher->postgres = NULL;
    policy_drop(fetcher->postgres_policy);
    fetcher->postgres_policy = NULL;
    if (!fetcher->querying)
        return;
    fetcher->querying->stage = STAGE_QUEUED;
    TAILQ_INSERT_HEAD(&fetcher->queues[QUEUE_KNOWN], fetcher->querying, entry);
    fetcher->querying = NULL;
}

static void connect_to_database(struct fetcher *fetcher)
{
    const struct postgres_watch watch = {lookups_on_idle, lookups_on_down, lookups_on_done,
                                         fetcher};

    fetcher->postgres_policy = policy_hold(fetcher->policy);
    fetcher->postgres = postgres_link_new(fetcher->base, &fetcher->postgres_policy->quotas, &watch);
    if (fetcher->postgres)
        return;
    policy_drop(fetcher->postgres_policy);
    fetcher->postgres_policy = NULL;
    log_error("quotas: out of memory; quotas.on_failure applies to ids until the next reload");
}

/* Clears the cache and drops the results of lookups in flight: the query has changed. */
static void forget_all(struct fetcher *fetcher)
{
    quota_cache_clear(fetcher->quotas->table);
    for (struct lookup *k = TAILQ_FIRST(&fetcher->all); k; k = TAILQ_NEXT(k, of_all))
        k->dropped = true;
}

/* Ends every lookup; no call is in flight in Redis. */
static void end_lookups(struct fetcher *fetcher)
{
    struct lookup *k, *next;

    for (unsigned i = 0; i < QUEUES; i++)
        TAILQ_INIT(&fetcher->queues[i]);
    fetcher->querying = NULL;
    for (k = TAILQ_FIRST(&fetcher->all); k; k = next) {
        next = TAILQ_NEXT(k, of_all);
        lookup_send_back(k, QUOTA_UNKNOWN, NULL);
        lookup_end(k);
    }
}

void fetcher_apply(struct fetcher *fetcher, struct policy *policy)
{
    struct policy *before = fetcher->policy;
    bool wanted = policy_looks_up_quotas(policy),
         same = wanted && before && same_database(before, policy);

    if (fetcher->redis)
        hang_up_redis(fetcher);
    if (!same || strcmp(before->redis.key_prefix, policy->redis.key_prefix) != 0)
        forget_all(fetcher);
    if (fetcher->postgres && (!same || before->quotas.timeout_us != policy->quotas.timeout_us))
        hang_up_database(fetcher);
    fetcher->policy = wanted ? policy : NULL;
    policy_drop(before);
    if (!wanted) {
        end_lookups(fetcher);
        policy_drop(policy);
        return;
    }
    connect_to_redis(fetcher);
    if (!fetcher->postgres)
        connect_to_database(fetcher);
}

/* --- Create and free -------------------------------------------------------------------------- */

struct fetcher *fetcher_new(struct quotas *quotas)
{
    struct fetcher *fetcher = calloc(1, sizeof *fetcher);
    uint64_t random = 0;

    if (!fetcher)
        return NULL;
    fetcher->quotas = quotas;
    fetcher->hash_key = hash_key_random();
    TAILQ_INIT(&fetcher->all);
    for (unsigned i = 0; i < QUEUES; i++)
        TAILQ_INIT(&fetcher->queues[i]);
    (void)!getrandom(&random, sizeof random, 0);
    snprintf(fetcher->token_start, sizeof fetcher->token_start, "%016llx",
             (unsigned long long)random);
    fetcher->base = event_base_new();
    fetcher->pace = fetcher->base ? evtimer_new(fetcher->base, lookups_on_pace, fetcher) : NULL;
    if (!fetcher->pace || deadlines_init(&fetcher->deadlines, fetcher->base) != 0) {
        fetcher_free(fetcher);
        return NULL;
    }
    deadline_queue_init(&fetcher->deadlines, &fetcher->redis_wait, lookup_on_redis_deadline);
    deadline_queue_init(&fetcher->deadlines, &fetcher->look_again, lookup_on_look_again);
    return fetcher;
}

struct event_base *fetcher_base(const struct fetcher *fetcher)
{
    return fetcher->base;
}

void fetcher_flush(struct fetcher *fetcher)
{
    if (fetcher->redis)
        redis_client_flush(fetcher->redis);
}

void fetcher_free(struct fetcher *fetcher)
{
    if (!fetcher)
        return;
    if (fetcher->redis)
        hang_up_redis(fetcher);
    hang_up_database(fetcher);
    end_lookups(fetcher);
    event_drop(fetcher->pace);
    deadlines_clear(&fetcher->deadlines);
    if (fetcher->base)
        event_base_free(fetcher->base);
    policy_drop(fetcher->policy);
    free(fetcher);
}
