/* split.c - a request whose limits are in several slots of a cluster, where no single call can
 * charge them.
 *
 *   parent (the caller waits for it)
 *     sub-operations, in the order of the rule, refunds last: each has the limits of one slot; sent
 *     in turn
 *
 *   charged -> next sub-operation -> ... -> all charged: admitted
 *   rejected, or on_failure rejects -> earlier charges are given back, also those in this process:
 *   rejected
 *
 * A request is admitted only when every limit has charged it, so no limit is ever exceeded. Until a
 * later sub-operation rejects, an earlier one holds units that it will give back. Other requests
 * may be rejected for lack of these units.
 *
 * With charge: every, each limit is charged whatever the others decide, and nothing is given back.
 *
 * Each sub-operation adds its results to the caller's `decision`. Limits that were not requested
 * do not appear in it. */
#include "limit/split.h"

#include <assert.h>

#include "base/clock.h"
#include "base/magic.h"
#include "limit/adjust.h"
#include "limit/failed_limits.h"
#include "limit/limiter_parts.h"
#include "limit/local_charges.h"
#include "limit/op_permits.h"
#include "limit/permits.h"
#include "limit/queue.h"
#include "limit/sub_op.h"
#include "limit/verdict.h"

/* --- Slots ------------------------------------------------------------------------------------ */

bool op_find_slots(struct limit_op *op)
{
    bool several = false;

    for (unsigned i = 0; i < op->count; i++) {
        op->limits[i].slot = (uint16_t)redis_client_slot(op->limiter->redis, op->limits[i].key);
        several |= op->limits[i].slot != op->limits[0].slot;
    }
    return several;
}

/* --- The decision ----------------------------------------------------------------------------- */

static enum verdict verdict_of_both(enum verdict a, enum verdict b)
{
    static const uint8_t weights[VERDICT_COUNT] = {[VERDICT_FAILED_OPEN] = 1,
                                                   [VERDICT_ALLOWED] = 2,
                                                   [VERDICT_LIMITED] = 3,
                                                   [VERDICT_FAILED_CLOSED] = 4};

    return weights[a] > weights[b] ? a : b;
}

static void append_results(struct decision *d, const struct decision *more)
{
    unsigned before = d->result_count;

    for (unsigned i = 0; i < more->result_count && d->result_count < LIMITS_PER_RULE_MAX; i++)
        d->results[d->result_count++] = more->results[i];
    if (more->rejected_by >= 0)
        d->rejected_by = (int)before + more->rejected_by;
    if (more->delay_us > d->delay_us)
        d->delay_us = more->delay_us;
    d->verdict = verdict_of_both(d->verdict, more->verdict);
}

/* The verdict until a sub-operation sets another. */
static void begin_decision(struct limit_op *parent, struct decision *d)
{
    d->rejected_by = -1;
    d->delay_us = d->jitter_us = 0;
    d->result_count = 0;
    local_charges_add_set_aside(parent, d);
    parent->counting.aside_results = 0; /* verdict_conclude() need not add them */
    d->verdict = d->result_count ? VERDICT_ALLOWED : VERDICT_FAILED_OPEN;
}

/* Decides the sub-operation's limits by on_failure. */
static void sub_op_decide_locally(struct limit_op *parent, struct limit_op *sub_op,
                                  enum redis_failure cause)
{
    struct decision_request *decision_request = parent->decision_request;
    struct decision d = {.delay_us = 0};

    verdict_without_redis(sub_op->limiter, sub_op, cause, &d);
    append_results(&decision_request->decision, &d);
    op_permits_locally(sub_op, decision_request);
}

/* --- The end ---------------------------------------------------------------------------------- */

/* Adds the refunded units to the limits' remaining units. */
static void add_refunded(struct decision *d, const struct sub_op *sub_op)
{
    for (unsigned i = 0; i < sub_op->result_count; i++) {
        struct limit_result *r = &d->results[sub_op->first_result + i];
        for (unsigned k = 0; k < sub_op->op->count; k++)
            if (sub_op->op->limits[k].place == r->place)
                r->remaining +=
                    sub_op->op->limits[k].charge.units - op_kept_charge(&sub_op->op->limits[k]);
        if (r->remaining > r->capacity)
            r->remaining = r->capacity;
    }
}

static bool is_by_redis(const struct split *split)
{
    bool all = true;

    for (unsigned i = 0; i < split->count; i++)
        all &= split->sub_ops[i].state != SUB_OP_FAILED;
    return all;
}

/* Completes the decision and calls decided(). */
static void complete_split(struct limit_op *parent)
{
    struct split *split = parent->cluster.split;
    struct decision *d = &parent->decision_request->decision;
    bool admitted = decision_admits(d), by_redis = is_by_redis(split);
    bool refunds = !admitted && !op_charges_each(parent);

    for (unsigned i = 0; i < split->count && refunds; i++)
        if (split->sub_ops[i].state == SUB_OP_CHARGED) {
            add_refunded(d, &split->sub_ops[i]);
            op_refund(sub_op_let_go(&split->sub_ops[i], SUB_OP_ENDED));
        }
    if (refunds) {
        local_charges_refund(parent, d);
        permits_leave(parent->decision_request);
    }
    verdict_conclude(parent->limiter, parent, d);
    if (by_redis) {
        verdict_remember(parent->limiter, parent, d);
        histogram_add(&parent->limiter->stats->redis_latency, clock_us() - parent->started_us);
    }
    struct decision_request *decision_request = op_cut(parent);
    if (admitted && decision_request->wants_charge && d->verdict == VERDICT_ALLOWED) {
        op_enter(parent, OP_CHARGE);
        decision_request->charge = parent;
    } else
        op_release(parent);
    decision_request->decided(decision_request);
}

/* --- Progress --------------------------------------------------------------------------------- */

static void sub_op_send(struct sub_op *sub_op, bool alone)
{
    sub_op_enter(sub_op, SUB_OP_SENT);
    sub_op->op->cluster.alone |= alone;
    op_gather(sub_op->op);
}

/* False: the request is rejected, so no further limit is charged. */
static bool goes_on(const struct limit_op *parent)
{
    return decision_admits(&parent->decision_request->decision) || op_charges_each(parent);
}

/* Sends the next sub-operation. If there is none, or if the request is rejected, it is decided. */
static void send_next_sub_op(struct limit_op *parent)
{
    struct limiter *l = parent->limiter;
    struct split *split = parent->cluster.split;

    for (unsigned i = 0; i < split->count && goes_on(parent); i++) {
        struct sub_op *sub_op = &split->sub_ops[i];
        if (sub_op->state != SUB_OP_COMING)
            continue;
        if (redis_client_is_ready(l->redis)) {
            sub_op_send(sub_op, split->each);
            return;
        }
        sub_op_decide_locally(parent, sub_op->op,
                              redis_client_cause(l->redis, sub_op->op->limits[0].slot));
        op_release(sub_op_let_go(sub_op, SUB_OP_FAILED));
    }
    complete_split(parent);
}

bool split_begin(struct limit_op *op, bool each)
{
    if (!op_make_split(op, each))
        return false;
    op_enter(op, OP_SPLIT);
    begin_decision(op, &op->decision_request->decision);
    sub_op_send(&op->cluster.split->sub_ops[0], each);
    return true;
}

bool split_apart(struct limit_op *op)
{
    struct limit_op *parent = op->cluster.parent;

    if (!sub_op_part(op))
        return false;
    send_next_sub_op(parent);
    return true;
}

/* Decides limits whose own script failed without Redis. Returns the replies of the others. NULL:
 * requests them again, since Redis has not charged them; or none is left, or the request is
 * rejected. */
static const struct limit_reply *sub_op_decide_failed(struct limit_op *sub_op,
                                                      const struct limit_reply *replies,
                                                      struct limit_reply *sorted)
{
    struct limit_op *parent = sub_op->cluster.parent;
    bool charged;
    unsigned failed = failed_limits_sort(sub_op, replies, sorted, &charged);

    if (failed == 0)
        return replies;
    parent->denial.barred = true;
    unsigned rest = sub_op->count - failed;
    sub_op->count = failed;
    sub_op_decide_locally(parent, sub_op, REDIS_FAILURE_SCRIPT);
    sub_op->count = rest;
    memmove(sub_op->limits, sub_op->limits + failed, rest * sizeof sub_op->limits[0]);
    if (rest && charged)
        return sorted + failed;
    if (rest == 1)
        op_limit_alone(&sub_op->limits[0]);
    if (rest && goes_on(parent)) {
        op_gather(sub_op);
        return NULL;
    }
    op_release(sub_op_let_go(sub_op_find(sub_op), SUB_OP_FAILED));
    send_next_sub_op(parent);
    return NULL;
}

void split_answer(struct limit_op *op, const struct limit_reply *replies, int64_t time_us)
{
    struct limit_op *parent = op->cluster.parent;
    struct sub_op *sub_op = sub_op_find(op);
    struct decision d = {.delay_us = 0};
    struct limit_reply sorted[LIMITS_PER_RULE_MAX];

    MAGIC_CHECK(parent, OP_MAGIC);
    if (!(replies = sub_op_decide_failed(op, replies, sorted)))
        return;
    op_permits_charged(op, parent->decision_request, replies);
    op_write_charge(op, replies, time_us);
    verdict_from_answer(op->limiter, op, replies, &d);
    sub_op->first_result = parent->decision_request->decision.result_count;
    append_results(&parent->decision_request->decision, &d);
    sub_op->result_count = parent->decision_request->decision.result_count - sub_op->first_result;
    if (decision_admits(&d)) {
        op_enter(op, OP_CHARGE);
        sub_op_enter(sub_op, SUB_OP_CHARGED);
    } else
        op_release(sub_op_let_go(sub_op, SUB_OP_REJECTED));
    send_next_sub_op(parent);
}

void split_failed(struct limit_op *op, enum redis_failure cause)
{
    struct limit_op *parent = op->cluster.parent;

    MAGIC_CHECK(parent, OP_MAGIC);
    sub_op_decide_locally(parent, op, cause);
    op_release(sub_op_let_go(sub_op_find(op), SUB_OP_FAILED));
    send_next_sub_op(parent);
}

/* --- Timeout, cancel, adjustment -------------------------------------------------------------- */

const struct limit_op *split_sent(const struct limit_op *op)
{
    const struct split *split = op->cluster.split;
    unsigned i = 0;

    while (i < split->count && split->sub_ops[i].state != SUB_OP_SENT)
        i++;
    assert(i < split->count);
    return split->sub_ops[i].op;
}

void split_timeout(struct limit_op *op, enum redis_failure cause)
{
    struct split *split = op->cluster.split;

    for (unsigned i = 0; i < split->count && goes_on(op); i++) {
        struct sub_op *sub_op = &split->sub_ops[i];
        if (sub_op->state != SUB_OP_SENT && sub_op->state != SUB_OP_COMING)
            continue;
        sub_op_decide_locally(op, sub_op->op, cause);
        if (sub_op->state == SUB_OP_SENT)
            (void)sub_op_let_go(sub_op, SUB_OP_FAILED); /* the late reply is dropped */
        else
            op_release(sub_op_let_go(sub_op, SUB_OP_FAILED));
    }
    complete_split(op);
}

void split_abandon(struct limit_op *op)
{
    struct split *split = op->cluster.split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->sub_ops[i].state == SUB_OP_CHARGED)
            op_leave_queues(sub_op_let_go(&split->sub_ops[i], SUB_OP_ENDED));
    op_release(op); /* with its sub-operations; other charges stay */
}

void split_adjust(struct limit_op *op, void (*adjust)(struct limit_op *sub_op, const void *facts),
                  const void *facts)
{
    struct split *split = op->cluster.split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->sub_ops[i].state == SUB_OP_CHARGED)
            adjust(sub_op_let_go(&split->sub_ops[i], SUB_OP_ENDED), facts);
    op_release(op);
}
