/* limiter.c - see limiter.h.
 *
 *   limiter_decide() --> op, gathered --limiter_flush()--> batch, sent --on_answer()--> decided()
 *                         |                                 |           (batch.c)
 *                         `----------- deadline ------------'--> on_failure of each limit --> decided()
 *
 * If the caller wants a charge, the op of an admitted request stays with its decision request. A
 * later adjustment sends it in another batch; nothing waits for that reply.
 *
 * An op belongs to the limiter from limiter_decide() until its batch has a reply. The deadline and
 * limiter_abandon() only separate the decision request from the op; a late reply finds
 * op->decision_request == NULL.
 *
 * An op stores its keys as text, so the facts need not outlive limiter_decide(). Ops and batches
 * are reused. */
#include "limit/limiter.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/magic.h"
#include "limit/batch.h"
#include "limit/begin.h"
#include "limit/key.h"
#include "limit/limiter_parts.h"
#include "limit/op_leases.h"
#include "limit/op_permits.h"
#include "limit/permits.h"
#include "limit/queue.h"
#include "limit/split.h"
#include "limit/verdict.h"

/* --- Requests --------------------------------------------------------------------------------- */

static void fill_repeat(struct op_limit *part, struct text *keys, const struct limit_facts *facts)
{
    struct slice id = key_repeat_id(part->limit, facts->fields);
    size_t start = keys->n;

    if (id.n == 0)
        return;
    key_write_repeat(keys, part->key, facts, id);
    part->repeat_key = (struct slice){keys->p + start, keys->n - start};
}

/* The driver's mode: of several limits, one that cannot reject is only tried. */
static unsigned driver_mode(const struct rule *rule, const struct op_limit *part)
{
    bool tried = rule->limit_count > 1 && (part->shadow || part->free);
    return rule_best_effort(rule, part->limit) + (tried ? MODE_SHADOW : 0);
}

/* Sets the cost in the limit at `place` of the rule. */
static void set_cost(const struct limit_facts *facts, struct op_limit *part)
{
    const struct limit *limit = part->limit;

    part->estimated = false;
    if (limit->kind == LIMIT_CONCURRENCY)
        part->cost = limit->cost; /* not the rule's cost */
    else if (limit->own_cost && facts->own_costs) {
        part->estimated = limit->own_cost->automatic || facts->raised >> part->place & 1;
        part->cost = facts->own_costs[part->place];
        part->cost = op_usable_cost(part, limit_capacity(limit, &part->numbers));
    } else
        part->cost =
            facts->cost && !limit->own_cost ? facts->cost : rule_cost_in(facts->rule, limit);
}

/* Copies everything that a decision needs out of the facts. */
static void op_fill(struct limit_op *op, const struct limit_facts *facts,
                    const struct client_limits *client_limits, const struct priority *priority)
{
    const struct limiter *l = op->limiter;
    const struct rule *rule = facts->rule;
    struct text keys = text_over(op->keys, l->ops->keys_size);
    struct slice client = SLICE_NONE;

    op_clear(op);
    op->count = rule->limit_count;
    for (unsigned i = 0; i < rule->limit_count; i++) {
        struct op_limit *part = &op->limits[i];
        size_t start = keys.n;
        part->numbers = client_numbers(client_limits, rule->limits[i]);
        part->limit = part->numbers.variant ? part->numbers.variant : rule->limits[i];
        if (priority && part->limit->shared && priority->share < SHARE_WHOLE)
            part->numbers.share = priority->share;
        part->place = i;
        part->free = rule_is_free_in(rule, part->limit);
        set_cost(facts, part);
        part->shadow = !limit_enforces(part->limit, facts->identity);
        part->mode = driver_mode(rule, part);
        key_write(&keys, l->policy, part->limit, facts, &client);
        part->key = (struct slice){op->keys + start, keys.n - start};
        part->repeat_key = SLICE_NONE;
        part->permit = NULL;
        if (part->limit->dedup.header && !part->free)
            fill_repeat(part, &keys, facts);
    }
    assert(!keys.failed); /* op_pool.keys_size is the sum of key_size_max() */
    op->keys_size = keys.n;
    if (!op->now_us)
        op_meet_lease(op, rule->adjusts);
}

/* --- Decisions -------------------------------------------------------------------------------- */

const struct client_limits *limiter_client_limits(struct limiter *l,
                                                  const struct limit_facts *facts,
                                                  struct client_limits *granted)
{
    static const struct client_limits unlimited = {.quota = QUOTA_UNLIMITED};
    struct grant grant;

    if (facts->identity->listed == LISTED_ALLOWED)
        return &unlimited;
    if (!grants_find(&l->grants, facts->identity, &grant))
        return facts->client_limits ? facts->client_limits
                                    : policy_client(l->policy, facts->identity);
    *granted = grant_client_limits(grant.quota);
    return granted;
}

/* A grant replaces a client's numbers, not its priority. */
static const struct priority *priority_of(const struct limiter *l, const struct limit_facts *facts)
{
    return policy_priority(l->policy, facts->rule,
                           facts->client_limits ? facts->client_limits
                                                : policy_client(l->policy, facts->identity));
}

bool limiter_has_grant(struct limiter *l, const struct identity *identity)
{
    struct grant grant;
    return grants_find(&l->grants, identity, &grant);
}

/* Passes to the observer what Redis would receive. */
static enum decided observe(struct limiter *l, struct limit_op *op)
{
    struct planned_limit planned[LIMITS_PER_RULE_MAX];

    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        planned[i] = (struct planned_limit){.limit = part->limit,
                                            .numbers = part->numbers,
                                            .cost = part->cost,
                                            .shadow = part->shadow,
                                            .free = part->free,
                                            .best_effort = part->mode & MODE_BEST_EFFORT,
                                            .key = part->key,
                                            .repeat_key = part->repeat_key};
    }
    l->observer->plan(l->observer, planned, op->count);
    op_release(op);
    return DECIDED_LATER;
}

enum decided limiter_decide(struct limiter *l, const struct limit_facts *facts,
                            struct decision_request *decision_request)
{
    const struct rule *rule = facts->rule;
    const struct client_limits *client_limits;
    struct client_limits granted;
    struct limit_op *op;

    decision_request->op = decision_request->charge = NULL;
    decision_request->held_count = 0;
    decision_request->decision.delay_us = decision_request->decision.jitter_us = 0;
    decision_request->decision.priority = l->policy->priority_count ? priority_of(l, facts) : NULL;
    if (rule->limit_count == 0 || facts->uncharged) {
        verdict_of_no_limits(&decision_request->decision);
        return DECIDED_NOW;
    }
    client_limits = limiter_client_limits(l, facts, &granted);
    if (client_limits && client_limits->quota != QUOTA_AS_WRITTEN) {
        verdict_by_client_limits(l, facts, client_limits->quota == QUOTA_PROHIBITED,
                                 &decision_request->decision);
        return DECIDED_NOW;
    }
    op = op_take_or_reserve(l);
    op_fill(op, facts, client_limits, decision_request->decision.priority);
    if (l->permits && !op_use_permits(op)) {
        op_release(op);
        verdict_fail_closed(&decision_request->decision);
        return DECIDED_NOW;
    }
    return l->observer ? observe(l, op) : op_begin(op, decision_request);
}

void limiter_abandon(struct decision_request *decision_request)
{
    struct limit_op *op = decision_request->op;

    if (!op)
        return;
    MAGIC_CHECK(op, OP_MAGIC);
    op->abandoned = true;
    op_cut(op);
    if (op->cluster.split)
        split_abandon(op);
}

/* --- The deadline ----------------------------------------------------------------------------- */

static void on_deadline(struct deadline *deadline)
{
    op_time_out(CONTAINER_OF(deadline, struct limit_op, deadline));
}

/* Runs before timeouts are handled: a reply that has arrived is used, however long the loop was
 * busy. */
static void read_answers(void *context)
{
    struct limiter *l = context;
    redis_client_read(l->redis);
}

/* --- Creation and destruction ----------------------------------------------------------------- */

static size_t longest_keys(const struct policy *policy)
{
    size_t longest = 0;

    for (unsigned i = 0; i < policy->rule_count; i++) {
        size_t keys = 0;
        for (unsigned j = 0; j < policy->rules[i].limit_count; j++)
            keys += key_size_max(policy, policy->rules[i].limits[j]) *
                        (policy->rules[i].limits[j]->dedup.header ? 2 : 1) +
                    (policy->rules[i].limits[j]->dedup.header ? KEY_REPEAT_MAX : 0);
        if (keys > longest)
            longest = keys;
    }
    if (policy->rate_limit_service.domain_count &&
        longest < LIMITS_PER_RULE_MAX * key_descriptor_size_max(policy))
        longest = LIMITS_PER_RULE_MAX * key_descriptor_size_max(policy);
    return longest;
}

/* 0: the policy has no concurrency limits. */
static uint64_t shortest_lease(const struct policy *policy)
{
    uint64_t shortest = 0;

    for (unsigned i = 0; i < policy->limit_count; i++) {
        const struct limit *limit = &policy->limits[i];
        uint64_t lease = limit->kind == LIMIT_CONCURRENCY ? (uint64_t)limit->lease_us : 0;
        if (lease && (!shortest || lease < shortest))
            shortest = lease;
    }
    return shortest;
}

/* False: out of memory. */
static bool make_limiter_parts(struct limiter *l, struct event_base *base, struct slice script)
{
    uint64_t lease_us = shortest_lease(l->policy);

    if (deadlines_init(&l->deadlines, base) != 0 ||
        !(l->ops = op_pool_new(l, longest_keys(l->policy))) ||
        !(l->queue = op_queue_new(base, l->policy->redis.timeout_us)) ||
        !(l->batches = batches_new()) || !(l->denials = denials_new()) ||
        !op_leases_new(l, &l->leases) ||
        (lease_us && !l->observer &&
         !(l->permits = permits_new(&l->deadlines, lease_us, l->fallback))))
        return false;
    deadline_queue_init(&l->deadlines, &l->waiting, on_deadline);
    if (l->observer)
        return (l->redis = redis_client_new_idle());
    if (!policy_needs_redis(l->policy))
        return true;
    l->deadlines.before = read_answers;
    l->deadlines.context = l;
    if (!(l->redis = redis_client_new(base, &l->policy->redis, script, NULL)))
        return false;
    l->in_slots = redis_client_has_slots(l->redis);
    return true;
}

/* `from` has what the caller has set. NULL: no memory. */
static struct limiter *make(const struct limiter *from, struct event_base *base,
                            struct slice script)
{
    struct limiter *l = calloc(1, sizeof *l);

    if (!l)
        return NULL;
    *l = *from;
    MAGIC_SET(l, LIMITER_MAGIC);
    policy_hold(l->policy);
    if (make_limiter_parts(l, base, script))
        return l;
    limiter_free(l);
    return NULL;
}

struct limiter *limiter_new(struct event_base *base, struct policy *policy,
                            struct fallback *fallback, struct slice script,
                            struct limiter_stats *stats)
{
    return make(&(struct limiter){.policy = policy, .fallback = fallback, .stats = stats}, base,
                script);
}

struct limiter *limiter_new_observed(struct event_base *base, struct policy *policy,
                                     struct limiter_observer *observer, struct limiter_stats *stats)
{
    return make(&(struct limiter){.policy = policy, .observer = observer, .stats = stats}, base,
                SLICE_NONE);
}

void limiter_free(struct limiter *l)
{
    struct limit_op *op;

    if (!l)
        return;
    /* Before the connection: decided() may make a new request. */
    while (l->queue && (op = op_queue_pop(l->queue)))
        op_give_up(op, REDIS_FAILURE_DOWN);
    redis_client_free(l->redis);
    permits_free(l->permits);
    op_leases_free(l->leases);
    op_pool_free(l->ops);
    batches_free(l->batches);
    op_queue_free(l->queue);
    if (l->deadlines.timer)
        deadlines_clear(&l->deadlines);
    denials_free(l->denials);
    grants_let_go(&l->grants);
    policy_drop(l->policy);
    MAGIC_WIPE(l);
    free(l);
}

void limiter_retire(struct limiter *l)
{
    op_leases_retire(l->leases);
}

void limiter_flush(struct limiter *l)
{
    batches_flush(l);
}

void limiter_wake(struct limiter *l)
{
    if (l->unflushed)
        op_queue_wake(l->queue);
}

void limiter_set_time(struct limiter *l, int64_t now_us)
{
    l->now_us = now_us;
}

bool limiter_redis_ready(const struct limiter *l)
{
    return l->redis && redis_client_is_whole(l->redis);
}

enum redis_breaker limiter_breaker(const struct limiter *l)
{
    return l->redis ? redis_client_breaker(l->redis) : REDIS_BREAKER_OPEN;
}

bool limiter_redis_away(const struct limiter *l)
{
    return !l->redis || !redis_client_is_ready(l->redis);
}

bool limiter_is_quiet(const struct limiter *l)
{
    if (limiter_redis_away(l))
        return true;
    return op_queue_is_empty(l->queue) && !op_leases_hold_units(l->leases) &&
           (!l->permits || permits_count(l->permits) == 0);
}
