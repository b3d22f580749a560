/* op_leases.c - decisions from leased units, see leases.h: which ops use leases, which calls
 * request units, and how unspent units are given back. */
#include "limit/op_leases.h"

#include <stdlib.h>

#include "base/clock.h"
#include "limit/limiter_parts.h"
#include "limit/queue.h"
#include "limit/resets.h"
#include "limit/verdict.h"

struct op_leases {
    struct leases *table;
    struct deadline_queue ends;
    size_t key_start; /* offset in a limit's key of the part after PREFIX and ":" */
    bool retired;
};

/* The key without PREFIX and ":". */
static struct slice tagged(const struct limiter *l, struct slice key)
{
    return (struct slice){key.p + l->leases->key_start, key.n - l->leases->key_start};
}

void op_meet_lease(struct limit_op *op, bool adjusts)
{
    struct limiter *l = op->limiter;
    const struct op_limit *part = &op->limits[0];

    op->leased.lease = NULL;
    if (!l->leases || l->leases->retired || !lease_may_be(part->limit, &part->numbers) || adjusts ||
        !op_is_unit(op))
        return;
    op->leased.lease = leases_meet(l->leases->table, tagged(l, part->key), part->limit,
                                   &part->numbers, clock_cached_us());
    if (op->leased.lease)
        op->leased.key = op->leased.lease->key[1];
}

/* NULL if the slot was reused for another key. */
static struct lease *lease_of(const struct limit_op *op)
{
    return op->leased.lease && op->leased.lease->key[1] == op->leased.key ? op->leased.lease : NULL;
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

    part->charge.granted = true;
    part->charge.units = 1;
    part->charge.counts_us = lease->reset_us;
    part->charge.at_us = lease->charge ? lease->charge->limits[0].charge.at_us : 0;
    op->started_us = lease->charged_us;
}

bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request)
{
    struct limiter *l = op->limiter;
    struct lease *lease = op->leased.lease;

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
    if (decision_request->wants_charge && op != l->ops->reserve) {
        write_charge(op, lease);
        op_enter(op, OP_CHARGE);
        decision_request->charge = op;
    } else
        op_release(op);
    return true;
}

struct lease_request op_request_lease(const struct limit_op *op)
{
    struct lease *lease = lease_of(op);
    unsigned sharers = op->limiter->policy->workers * op->limiter->policy->redis.instances;
    int64_t units =
        lease && op->sending.times_repeated == 0 ? lease_wants(lease, sharers ? sharers : 1) : 0;

    if (units)
        lease->requested = true;
    return (struct lease_request){units ? lease : NULL, units};
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
static void refund_lease(struct lease *lease)
{
    struct limiter *l = lease->limiter;
    uint64_t margin_us = lease->limit->kind == LIMIT_BUCKET ? l->policy->redis.timeout_us : 0;
    int64_t left = lease_left(lease, clock_us() + margin_us);
    struct limit_op *op = lease->charge;

    if (left > 0 && op && redis_client_takes(l->redis, op->limits[0].key) && !is_forgotten(lease)) {
        lease->charge = NULL;
        lease->units -= left;
        counter_add(&l->stats->lease_returned, (uint64_t)left);
        op->limits[0].cost = -left;
        op->limits[0].mode = MODE_PLAIN;
        op->is_adjustment = true;
        op_gather(op);
        op_queue_wake(l->queue);
    }
    end_lease(lease);
}

/* What remains for the op's priority. */
static int64_t leasable(const struct limit_op *op, const struct limit_reply *replies)
{
    int64_t reserve = limit_reserve(op->limits[0].limit, &op->limits[0].numbers);

    return replies->remaining > reserve ? replies->remaining - reserve : 0;
}

void lease_answered(const struct lease_request *request, const struct limit_op *first,
                    unsigned size, const struct limit_reply *replies, int64_t time_us,
                    uint64_t requested_us)
{
    struct lease *lease = request->lease;
    int64_t units = replies ? replies->granted - (int64_t)size : 0;

    lease->requested = false;
    if (units <= 0 || units > request->units)
        return;
    lease->limiter = first->limiter;
    if (is_forgotten(lease))
        lose(lease);
    lease_take(lease,
               &(struct lease_charge){.units = units,
                                      .spent = size,
                                      .remaining = leasable(first, replies),
                                      .reset_us = replies->reset_us,
                                      .next_us = replies->next_us,
                                      .time_us = time_us,
                                      .requested_us = requested_us},
               clock_us());
    counter_add(&lease->limiter->stats->lease_taken, (uint64_t)units);
    drop_leaked(lease);
    if (!lease->charge)
        lease->charge = charge_like(first);
    if (lease->charge) {
        lease->charge->limits[0].charge.at_us = time_us;
        lease->charge->limits[0].charge.counts_us = replies->reset_us;
    }
    deadline_arm(&first->limiter->leases->ends, &lease->deadline, clock_us(), LEASE_US);
    if (first->limiter->leases->retired)
        refund_lease(lease);
}

void op_note_remaining(const struct limit_op *op, const struct limit_reply *replies,
                       uint64_t requested_us)
{
    struct lease *lease = lease_of(op);

    if (lease)
        lease_note(lease, replies->granted, leasable(op, replies), requested_us);
}

static void on_lease_ends(struct deadline *deadline)
{
    refund_lease(CONTAINER_OF(deadline, struct lease, deadline));
}

void op_unspend_lease(struct limit_op *op)
{
    struct lease *lease = lease_of(op);
    if (lease)
        lease_unspend(lease);
}

bool op_leases_new(struct limiter *l, struct op_leases **leases)
{
    const struct rate_limit_service *service = &l->policy->rate_limit_service;
    bool any = false;

    *leases = NULL;
    for (unsigned i = 0; i < l->policy->limit_count; i++)
        any = any || l->policy->limits[i].lease_units != 0;
    any = any || (service->domain_count && service->units[UNIT_SECOND].lease_units != 0);
    if (!any)
        return true;
    if (!(*leases = calloc(1, sizeof **leases)))
        return false;
    deadline_queue_init(&l->deadlines, &(*leases)->ends, on_lease_ends);
    (*leases)->key_start = strlen(l->policy->redis.key_prefix) + 1;
    return ((*leases)->table = leases_new());
}

/* Calls `end` for each lease with units; it disarms the deadline. */
static void end_leases(struct op_leases *leases, void (*end)(struct lease *lease))
{
    struct deadline *deadline;

    while ((deadline = deadline_first(&leases->ends)))
        end(CONTAINER_OF(deadline, struct lease, deadline));
}

void op_leases_retire(struct op_leases *leases)
{
    if (!leases)
        return;
    leases->retired = true;
    end_leases(leases, refund_lease);
}

bool op_leases_hold_units(const struct op_leases *leases)
{
    return leases && deadline_first(&leases->ends);
}

void op_leases_free(struct op_leases *leases)
{
    if (!leases)
        return;
    end_leases(leases, end_lease);
    leases_free(leases->table);
    free(leases);
}
