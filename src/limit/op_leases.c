/* op_leases.c - decisions from leased units, see leases.h: which ops use leases, which calls
 * request units, and how unspent units are given back. */
#include "limit/op_leases.h"
#include "base/clock.h"
#include "limit/operation.h"
#include "limit/resets.h"
#include "limit/verdict.h"

/* The key without PREFIX and ":". */
static struct slice tagged(const struct limiter *l, struct slice key)
{
    return (struct slice){key.p + l->key_start, key.n - l->key_start};
}

void op_meet_lease(struct limit_op *op, const struct limit_facts *facts)
{
    struct limiter *l = op->limiter;
    const struct op_limit *part = &op->limits[0];

    op->lease = NULL;
    if (!l->leases || l->retired || !lease_may_be(part->limit, &part->numbers) ||
        facts->rule->learns || !op_is_unit(op))
        return;
    op->lease = leases_meet(l->leases, tagged(l, part->key), part->limit, &part->numbers,
                            clock_cached_us());
    if (op->lease)
        op->lease_key = op->lease->key[1];
}

/* NULL if the slot was reused for another key. */
static struct lease *lease_of(const struct limit_op *op)
{
    return op->lease && op->lease->key[1] == op->lease_key ? op->lease : NULL;
}

/* Units of a client that was reset no longer exist. */
static bool is_forgotten(const struct lease *lease)
{
    const struct limit_op *charge = lease->charge;
    struct slice key = charge ? tagged(lease->limiter, charge->limits[0].key) : SLICE_NONE;

    return resets_concern(key, lease->charged_us);
}

static void lose(struct lease *lease)
{
    if (lease->units > 0)
        counter_add(&lease->limiter->stats->lease_lost, (uint64_t)lease->units);
    lease_empty(lease);
}

static void end_lease(struct lease *lease)
{
    struct limit_op *charge = lease->charge;

    lose(lease);
    lease->charge = NULL;
    deadline_cancel(&lease->deadline);
    if (charge)
        op_release(charge);
}

/* Records the charge as if the op had been charged alone, at the time of the lease's charge. */
static void write_charge(struct limit_op *op, const struct lease *lease)
{
    struct op_limit *part = &op->limits[0];

    part->granted = true;
    part->charged = 1;
    part->counts_us = lease->reset_us;
    part->charged_at_us = lease->charge ? lease->charge->limits[0].charged_at_us : 0;
    op->started_us = lease->charged_us;
}

bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request)
{
    struct limiter *l = op->limiter;
    struct lease *lease = op->lease;

    if (!lease || lease->free == 0)
        return false;
    uint64_t now_us = clock_us();
    if (is_forgotten(lease)) {
        end_lease(lease);
        return false;
    }
    if (!lease_spend(lease, now_us))
        return false;
    verdict_from_lease(l, op, lease, now_us, &decision_request->decision);
    counter_add(&l->stats->lease_used, 1);
    if (decision_request->wants_charge && op != l->reserve) {
        write_charge(op, lease);
        op_enter(op, OP_CHARGE);
        decision_request->charge = op;
    } else
        op_release(op);
    return true;
}

int64_t op_request_lease(const struct limit_op *op, struct lease **requested)
{
    struct lease *lease = lease_of(op);
    unsigned sharers = op->limiter->policy->workers * op->limiter->policy->redis.instances;
    int64_t units =
        lease && op->times_repeated == 0 ? lease_wants(lease, sharers ? sharers : 1) : 0;

    *requested = units ? lease : NULL;
    if (units)
        lease->requested = true;
    return units;
}

static struct limit_op *charge_like(const struct limit_op *op)
{
    struct limit_op *charge = op_take(op->limiter);

    if (!charge)
        return NULL;
    op_copy(charge, op);
    charge->count = 1;
    charge->limits[0] = op->limits[0];
    charge->limits[0].key.p = charge->keys + (op->limits[0].key.p - op->keys);
    op_enter(charge, OP_CHARGE);
    return charge;
}

/* Leaked units are available in the bucket again, and included in Redis' remaining number. */
static void drop_leaked(struct lease *lease)
{
    int64_t left = lease_left(lease, 0);

    counter_add(&lease->limiter->stats->lease_lost, (uint64_t)(lease->units - left));
    lease->units = left;
}

/* Gives unspent units back, as far as they still count if Redis handles the call up to
 * redis.timeout later. Units of a window are identified by their time. */
static void give_back(struct lease *lease)
{
    struct limiter *l = lease->limiter;
    uint64_t margin_us = lease->limit->kind == LIMIT_BUCKET ? l->policy->redis.timeout_us : 0;
    int64_t left = lease_left(lease, clock_us() + margin_us);
    struct limit_op *op = lease->charge;

    if (left > 0 && op && redis_client_is_ready(l->redis) && !is_forgotten(lease)) {
        lease->charge = NULL;
        lease->units -= left;
        counter_add(&l->stats->lease_returned, (uint64_t)left);
        op->limits[0].cost = -left;
        op->limits[0].mode = MODE_PLAIN;
        op->is_adjustment = true;
        op_gather(op);
        event_active(l->resume, EV_TIMEOUT, 1);
    }
    end_lease(lease);
}

void lease_answered(struct group *group, const struct limit_reply *replies, int64_t time_us,
                    uint64_t requested_us)
{
    struct lease *lease = group->lease;
    const struct limit_op *op = group->first;
    int64_t units = replies ? replies->granted - (int64_t)group->size : 0;

    lease->requested = false;
    if (units <= 0 || units > group->extra)
        return;
    lease->limiter = op->limiter;
    if (is_forgotten(lease))
        lose(lease);
    lease_take(lease,
               &(struct lease_charge){.units = units,
                                      .spent = group->size,
                                      .remaining = replies->remaining,
                                      .reset_us = replies->reset_us,
                                      .next_us = replies->next_us,
                                      .time_us = time_us,
                                      .requested_us = requested_us},
               clock_us());
    counter_add(&lease->limiter->stats->lease_taken, (uint64_t)units);
    drop_leaked(lease);
    if (!lease->charge)
        lease->charge = charge_like(op);
    if (lease->charge)
        lease->charge->limits[0].charged_at_us = time_us;
    deadline_arm(&op->limiter->lease_ends, &lease->deadline, clock_us(), LEASE_US);
    if (op->limiter->retired)
        give_back(lease);
}

void op_note_remaining(const struct limit_op *op, const struct limit_reply *replies,
                       uint64_t requested_us)
{
    struct lease *lease = lease_of(op);

    if (lease)
        lease_note(lease, replies->granted, replies->remaining, requested_us);
}

static void on_lease_ends(struct deadline *deadline)
{
    give_back(CONTAINER_OF(deadline, struct lease, deadline));
}

void limiter_leases_return(struct limiter *l)
{
    struct deadline *deadline;

    while (l->leases && (deadline = TAILQ_FIRST(&l->lease_ends.armed)))
        give_back(CONTAINER_OF(deadline, struct lease, deadline));
}

void op_unspend_lease(struct limit_op *op)
{
    struct lease *lease = lease_of(op);
    if (lease)
        lease_unspend(lease);
}

bool limiter_leases_init(struct limiter *l)
{
    bool any = false;

    l->key_start = strlen(l->policy->redis.key_prefix) + 1;
    for (unsigned i = 0; i < l->policy->limit_count; i++)
        any = any || l->policy->limits[i].lease_units != 0;
    deadline_queue_init(&l->deadlines, &l->lease_ends, on_lease_ends);
    if (any)
        l->leases = leases_new();
    return !any || l->leases;
}

void limiter_leases_free(struct limiter *l)
{
    struct deadline *deadline;

    while (l->leases && (deadline = TAILQ_FIRST(&l->lease_ends.armed)))
        end_lease(CONTAINER_OF(deadline, struct lease, deadline));
    leases_free(l->leases);
}
