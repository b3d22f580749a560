/* quota_clerk.c - the clerk, who finds out quotas for all workers: what it is told, the policy it follows, its connections to
 * Redis and to the database. How one id is looked up: quota_lookup.c. */
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "limit/quota_lookup.h"

/* --- What the clerk is told --------------------------------------------------------------------------- */

static void refuse(struct clerk *clerk, struct quota_ticket *ticket, const struct quota_entry *known)
{
    counter_add(&clerk->quotas->stats.refused, 1);
    quota_post_back(clerk->quotas, ticket, known ? known->outcome : QUOTA_UNKNOWN,
                    known ? &known->row : NULL);
}

static bool has_room(const struct clerk *clerk, const struct quota_ticket *ticket)
{
    return clerk->policy && clerk->count < LOOKUPS_MAX &&
           clerk->of_address[ticket->address % ADDRESSES] < LOOKUPS_OF_ADDRESS;
}

void clerk_take(struct clerk *clerk, struct quota_ticket *ticket)
{
    struct slice id = {ticket->id, ticket->id_size};
    struct lookup *under_way = lookup_find(clerk, id), *k;
    uint64_t now = clock_us();
    struct quota_entry entry;

    if (under_way && !under_way->trying) {
        STAILQ_INSERT_TAIL(&under_way->tickets, ticket, entry);
        return;
    }
    bool known = quota_table_find(clerk->quotas->table, id, now, &entry);
    if (known && entry.fresh_us > now) { /* another worker was quicker */
        quota_post_back(clerk->quotas, ticket, entry.outcome, &entry.row);
        return;
    }
    k = under_way || !has_room(clerk, ticket) ? NULL : lookup_new(clerk, id, ticket->address);
    if (!k) {
        refuse(clerk, ticket, known ? &entry : NULL);
        return;
    }
    if (known && entry.outcome == QUOTA_FOUND)
        k->before = entry;
    STAILQ_INSERT_TAIL(&k->tickets, ticket, entry);
    lookup_ask_redis(k);
}

void clerk_forget(struct clerk *clerk, struct slice id)
{
    struct lookup *k = lookup_find(clerk, id);

    if (k)
        k->dropped = true;
    quota_table_remove(clerk->quotas->table, id); /* once more: it may have been put there meanwhile */
}

/* --- Policies ----------------------------------------------------------------------------------------- */

static void on_redis_ready(void *context)
{
    struct clerk *clerk = context;
    struct lookup *k, *next;

    clerk->redis_down = false;
    if (!clerk->store) /* from inside redis_store_new: nobody waits yet but those that ask_waiting sees to */
        return;
    for (k = TAILQ_FIRST(&clerk->all); k; k = next) {
        next = TAILQ_NEXT(k, of_all);
        if (k->stage == STAGE_REDIS && !k->calling)
            lookup_ask_redis(k);
    }
}

static void on_redis_not_ready(void *context, enum redis_failure cause)
{
    struct clerk *clerk = context;
    (void)cause;
    clerk->redis_down = true; /* those that wait do so for redis.timeout at most */
}

static void connect_to_redis(struct clerk *clerk)
{
    const struct redis_link_watch watch = {
        .ready = on_redis_ready, .not_ready = on_redis_not_ready, .context = clerk, .quiet = true};

    clerk->redis_down = false;
    clerk->store = redis_store_new(clerk->base, &clerk->policy->redis, slice_of(lookup_script), &watch);
}

static void hang_up_redis(struct clerk *clerk)
{
    clerk->changing = true; /* lookups wait for the next one */
    redis_store_free(clerk->store);
    clerk->changing = false;
    clerk->store = NULL;
}

static bool same_database(const struct policy *a, const struct policy *b)
{
    return strcmp(a->quotas.connection, b->quotas.connection) == 0 &&
           strcmp(a->quotas.query, b->quotas.query) == 0;
}

static void hang_up_database(struct clerk *clerk)
{
    postgres_link_free(clerk->postgres);
    clerk->postgres = NULL;
    policy_drop(clerk->postgres_policy);
    clerk->postgres_policy = NULL;
    if (!clerk->asking)
        return;
    clerk->asking->stage = STAGE_QUEUED;
    TAILQ_INSERT_HEAD(&clerk->queues[QUEUE_KNOWN], clerk->asking, entry);
    clerk->asking = NULL;
}

static void connect_to_database(struct clerk *clerk)
{
    const struct postgres_watch watch = {lookups_on_idle, lookups_on_down, lookups_on_done, clerk};

    clerk->postgres_policy = policy_hold(clerk->policy);
    clerk->postgres = postgres_link_new(clerk->base, &clerk->postgres_policy->quotas, &watch);
}

/* Another query's answers are worth nothing. */
static void forget_all(struct clerk *clerk)
{
    quota_table_clear(clerk->quotas->table);
    for (struct lookup *k = TAILQ_FIRST(&clerk->all); k; k = TAILQ_NEXT(k, of_all))
        k->dropped = true;
}

/* Every lookup ends; Redis has no call any more. */
static void end_all(struct clerk *clerk)
{
    struct lookup *k, *next;

    for (unsigned i = 0; i < QUEUES; i++)
        TAILQ_INIT(&clerk->queues[i]);
    clerk->asking = NULL;
    for (k = TAILQ_FIRST(&clerk->all); k; k = next) {
        next = TAILQ_NEXT(k, of_all);
        lookup_send_back(k, QUOTA_UNKNOWN, NULL);
        lookup_end(k);
    }
}

void clerk_apply(struct clerk *clerk, struct policy *policy)
{
    struct policy *before = clerk->policy;
    bool wanted = policy->quotas.connection && policy_needs_redis(policy),
         same = wanted && before && same_database(before, policy);

    if (clerk->store)
        hang_up_redis(clerk);
    if (!same || strcmp(before->redis.key_prefix, policy->redis.key_prefix) != 0)
        forget_all(clerk);
    if (clerk->postgres && (!same || before->quotas.timeout_us != policy->quotas.timeout_us))
        hang_up_database(clerk);
    clerk->policy = wanted ? policy : NULL;
    policy_drop(before);
    if (!wanted) {
        end_all(clerk);
        policy_drop(policy);
        return;
    }
    connect_to_redis(clerk);
    if (!clerk->postgres)
        connect_to_database(clerk);
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

struct clerk *clerk_new(struct quotas *quotas)
{
    struct clerk *clerk = xcalloc(1, sizeof *clerk);
    uint64_t random = 0;

    clerk->quotas = quotas;
    clerk->hash_key = hash_key_random();
    TAILQ_INIT(&clerk->all);
    for (unsigned i = 0; i < QUEUES; i++)
        TAILQ_INIT(&clerk->queues[i]);
    (void)!getrandom(&random, sizeof random, 0);
    snprintf(clerk->token_start, sizeof clerk->token_start, "%016llx", (unsigned long long)random);
    clerk->base = event_base_new();
    clerk->pace = clerk->base ? evtimer_new(clerk->base, lookups_on_pace, clerk) : NULL;
    if (!clerk->pace || deadlines_init(&clerk->deadlines, clerk->base) != 0) {
        log_error("quotas: no memory");
        abort();
    }
    deadline_queue_init(&clerk->deadlines, &clerk->redis_wait, lookup_on_redis_deadline);
    deadline_queue_init(&clerk->deadlines, &clerk->look_again, lookup_on_look_again);
    return clerk;
}

struct event_base *clerk_base(const struct clerk *clerk)
{
    return clerk->base;
}

void clerk_flush(struct clerk *clerk)
{
    if (clerk->store)
        redis_store_flush(clerk->store);
}

void clerk_free(struct clerk *clerk)
{
    if (!clerk)
        return;
    if (clerk->store)
        hang_up_redis(clerk);
    hang_up_database(clerk);
    end_all(clerk);
    event_free(clerk->pace);
    deadlines_clear(&clerk->deadlines);
    event_base_free(clerk->base);
    policy_drop(clerk->policy);
    free(clerk);
}
