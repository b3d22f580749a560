/* batch.c - sends the ops gathered in a loop iteration as calls of the driver, and makes
 * decisions from the replies. */
#include "limit/batch.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/magic.h"
#include "limit/adjust.h"
#include "limit/arguments.h"
#include "limit/failure_log.h"
#include "limit/op_leases.h"
#include "limit/op_permits.h"
#include "limit/operation.h"
#include "limit/split.h"
#include "limit/verdict.h"

/* --- Without a reply -------------------------------------------------------------------------- */

void op_fail(struct limit_op *op, enum redis_failure cause)
{
    struct decision_request *decision_request = op_cut(op);
    if (!decision_request)
        return;
    verdict_without_redis(op->limiter, op, cause, &decision_request->decision);
    op_permits_locally(op, decision_request);
    decision_request->decided(decision_request);
}

void op_give_up(struct limit_op *op, enum redis_failure cause)
{
    if (op->parent) {
        split_failed(op, cause);
        return;
    }
    op_fail(op, cause);
    op_release(op);
}

/* --- Answers ---------------------------------------------------------------------------------- */

/* Reads the replies of all groups, and the time of the Redis clock behind them. Returns false if
 * `reply` is malformed. */
static bool read_replies(const struct redis_reply *reply, struct batch *batch, int64_t *time_us)
{
    struct limit_reply *to = batch->limiter->replies;
    struct redis_reply unpacked[LIMIT_REPLY_PACKED];
    struct limit_replies from;

    if (!limit_replies_begin(&from, reply, unpacked))
        return false;
    for (unsigned i = 0; i < batch->group_count; i++) {
        struct group *group = &batch->groups[i];
        group->first_reply = (unsigned)(to - batch->limiter->replies);
        for (unsigned j = 0; j < group->count; j++) {
            const struct op_limit *part = &group->first->limits[j];
            if (!limit_reply_read(&from, part->limit, &part->numbers, group->plain, to++))
                return false;
        }
    }
    if (from.end - from.next != 1 || !limit_reply_is_number(from.next))
        return false;
    *time_us = from.next->integer;
    return true;
}

/* If a limit's own script failed, decides such limits without Redis. If that admits, the other
 * limits are requested again. False: no failure matters; the reply is used as it is. */
static bool op_set_failures_aside(struct limit_op *op, const struct limit_reply *replies)
{
    struct limiter *l = op->limiter;
    unsigned failed = failures_sort(op, replies), rest = op->count - failed;

    if (failed == 0)
        return false;
    op->count = failed;
    op->counts_later = rest > 0;
    verdict_without_redis(l, op, REDIS_FAILURE_SCRIPT, &op->decision_request->decision);
    op->count = rest;
    op->counts_later = false;
    if (rest && decision_admits(&op->decision_request->decision)) {
        verdict_set_aside(op, &op->decision_request->decision);
        memmove(op->limits, op->limits + failed, rest * sizeof op->limits[0]);
        if (rest == 1)
            op->limits[0].mode &= ~(unsigned)MODE_SHADOW;
        op_gather_quietly(op);
        return true;
    }
    if (rest)
        verdict_count(l, &op->decision_request->decision);
    struct decision_request *decision_request = op_cut(op);
    op_release(op);
    decision_request->decided(decision_request);
    return true;
}

/* `time_us`: time of the reply by the Redis clock. */
static void op_answer(struct limit_op *op, const struct limit_reply *replies, int64_t time_us,
                      uint64_t now_us)
{
    struct limiter *l = op->limiter;
    struct decision_request *decision_request;
    bool kept = false;

    op_permits_answered(op);
    failures_note(op, replies, now_us);
    if (op->parent) {
        split_answer(op, replies, time_us);
        return;
    }
    if (op->decision_request && op_set_failures_aside(op, replies))
        return;
    decision_request = op_cut(op);
    op_permits_charged(op, decision_request, replies);
    if (!op->is_adjustment)
        histogram_add(&l->stats->redis_latency, now_us - op->started_us);
    if (decision_request) {
        verdict_from_answer(l, op, replies, &decision_request->decision);
        verdict_remember(l, op, &decision_request->decision);
        kept =
            decision_request->wants_charge && decision_request->decision.verdict == VERDICT_ALLOWED;
        if (kept) {
            op_write_charge(op, replies, time_us);
            op_enter(op, OP_CHARGE);
            decision_request->charge = op;
        }
    } else if (op_would_have_waited(op, replies)) {
        op_write_charge(op, replies, time_us);
        op_leave_queue(op, replies);
        return;
    }
    if (!kept)
        op_release(op);
    if (decision_request)
        decision_request->decided(decision_request);
}

/* The group was granted fewer units than it has requests, and none is left for this op. It is
 * sent once more, to get its wait. */
static void op_request_again(struct limit_op *op)
{
    if (!op->decision_request) {
        op_release(op);
        return;
    }
    op->times_repeated++;
    op_gather(op);
}

/* Call before any op of the batch gets its reply, because that may free it. `replies` NULL: there
 * was none. */
static void answer_leases(struct batch *batch, const struct limit_reply *replies, int64_t time_us)
{
    for (unsigned i = 0; i < batch->group_count; i++) {
        struct group *group = &batch->groups[i];
        const struct limit_reply *own = replies ? replies + group->first_reply : NULL;
        if (own && group->first->lease && !group->first->is_adjustment)
            op_note_remaining(group->first, own, batch->sent_us);
        if (group->lease)
            lease_answered(group, own, time_us, batch->sent_us);
    }
}

/* Completes every op of the batch. decided() may cancel other ops or make new requests; the
 * batch stays valid. */
static void batch_answer(struct batch *batch, int64_t time_us)
{
    struct limiter *l = batch->limiter;
    uint64_t now_us = clock_us();
    struct limit_reply own;

    answer_leases(batch, l->replies, time_us);
    for (unsigned i = 0; i < batch->count; i++) {
        struct limit_op *op = batch->ops[i];
        struct group *group = &batch->groups[batch->group_of[i]];
        const struct limit_reply *replies =
            group_answer(group, l->replies + group->first_reply, &own);
        op_enter(op, OP_ANSWERED);
        if (replies != NULL)
            op_answer(op, replies, time_us,
                      now_us); /* the op is now the charge's, reused or free */
        else
            op_request_again(op);
    }
    SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
}

/* The same for a batch without a reply. */
static void batch_fail(struct batch *batch, enum redis_failure failure)
{
    struct limiter *l = batch->limiter;

    answer_leases(batch, NULL, 0);
    for (unsigned i = 0; i < batch->count; i++) {
        op_enter(batch->ops[i], OP_ANSWERED);
        op_permits_failed(batch->ops[i]);
        op_give_up(batch->ops[i], failure);
    }
    SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
}

/* The keys are spread over two nodes of a cluster (a slot is moving), and nothing was charged. A
 * single key can always be found, so each op is sent alone. An op with several keys is then
 * split into one sub-operation per limit. If that is not possible, the op is retried until its
 * deadline. */
static void op_try_again(struct limit_op *op)
{
    struct limiter *l = op->limiter;
    bool apart = op->alone && (op->decision_request || op->parent) && op->count > 1 &&
                 op_key_count(op) == op->count;

    op_enter(op, OP_ANSWERED);
    op_permits_answered(op);
    if (op->alone && op->is_adjustment && ++op->tries > ADJUSTMENT_TRIES_MAX)
        op_release(op);
    else if (!op->alone) {
        op->alone = true;
        op->tries = 0;
        op_gather(op);
    } else if (!apart || !(op->parent ? split_apart(op) : split_begin(op, true))) {
        op_enter(op, OP_GATHERED);
        TAILQ_INSERT_TAIL(&l->later, op, entry);
    }
}

static void batch_try_again(struct batch *batch)
{
    static const struct timeval soon = {0, TRY_AGAIN_US};
    struct limiter *l = batch->limiter;

    answer_leases(batch, NULL, 0);
    for (unsigned i = 0; i < batch->count; i++)
        op_try_again(batch->ops[i]);
    SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
    event_active(l->resume, EV_TIMEOUT, 1);
    if (!TAILQ_EMPTY(&l->later) && !evtimer_pending(l->again, NULL))
        evtimer_add(l->again, &soon);
}

static void on_answer(struct redis_call *call, const struct redis_reply *reply,
                      enum redis_failure failure)
{
    struct batch *batch = CONTAINER_OF(call, struct batch, call);
    struct limiter *l = batch->limiter;
    int64_t time_us;

    MAGIC_CHECK(l, LIMITER_MAGIC);
    l->under_way--;
    l->ops_under_way -= batch->count;
    l->replied_us = clock_cached_us();
    l->round_trip_us = (l->round_trip_us * 7 + (clock_cached_us() - batch->sent_us)) / 8;
    if (reply && read_replies(reply, batch, &time_us)) {
        limiter_stats_note_clock(l->stats, time_us, clock_cached_wall_us());
        batch_answer(batch, time_us);
    } else if (failure == REDIS_FAILURE_MOVING)
        batch_try_again(batch);
    else
        batch_fail(batch, reply ? REDIS_FAILURE_REPLY : failure);
}

/* --- Sending ---------------------------------------------------------------------------------- */

static struct batch *batch_take(struct limiter *l)
{
    struct batch *batch = SLIST_FIRST(&l->spare_batches);
    if (batch)
        SLIST_REMOVE_HEAD(&l->spare_batches, spare);
    else if (!(batch = malloc(sizeof *batch)))
        return NULL;
    batch->limiter = l;
    batch->timed_out = false;
    batch->count = 0;
    return batch;
}

/* Counts each request once: neither adjustments nor requests that are sent again after their
 * group got too few units. */
static unsigned request_count(const struct batch *batch)
{
    unsigned count = 0;

    for (unsigned i = 0; i < batch->count; i++)
        count += !batch->ops[i]->is_adjustment && batch->ops[i]->times_repeated == 0;
    return count;
}

static void batch_send(struct limiter *l, struct batch *batch)
{
    struct arguments *a = &l->arguments;

    arguments_make(a, batch);
    batch->call = (struct redis_call){.done = on_answer};
    if (redis_client_call(l->redis, &batch->call, a->count, a->bytes, a->sizes)) {
        batch->sent_us = clock_cached_us();
        l->under_way++;
        l->ops_under_way += batch->count;
        counter_add(&l->stats->redis_calls, 1);
        counter_add(&l->stats->redis_requests, request_count(batch));
    } else
        batch_fail(batch, redis_client_is_whole(l->redis) ? REDIS_FAILURE_BUSY
                                                          : redis_client_cause(l->redis));
}

/* Moves ops of one slot from the list into a batch. Drops ops that nothing waits for. */
static void batch_fill(struct batch *batch, struct op_list *list)
{
    struct limit_op *op, *next = TAILQ_FIRST(list);
    unsigned keys = 0, slot = next->slot;
    bool alone = next->alone;

    while (batch->count < (alone ? 1 : BATCH_REQUESTS_MAX) && (op = next)) {
        next = TAILQ_NEXT(op, entry);
        if (op->slot != slot || op->alone != alone)
            continue;
        if ((keys += op_key_count(op)) > BATCH_KEYS_MAX)
            break;
        TAILQ_REMOVE(list, op, entry);
        if (!op->decision_request && !op->is_adjustment && !op->parent) {
            op_release(op);
            continue;
        }
        op_enter(op, OP_SENT);
        op->batch = batch;
        op_permits_sent(op);
        batch->ops[batch->count++] = op;
    }
}

static void fail_first(struct op_list *list)
{
    struct limit_op *op = TAILQ_FIRST(list);
    TAILQ_REMOVE(list, op, entry);
    op_permits_sent(op);
    op_permits_failed(op);
    op_give_up(op, REDIS_FAILURE_BUSY);
}

/* Inserts permit calls before all gathered ops: the count that a permit states leaves out units
 * that have not been sent yet. */
static void gather_permit_calls(struct limiter *l)
{
    struct limit_op *op = NULL;

    if (!l->permits || !redis_client_is_ready(l->redis))
        return;
    while ((op = op_take(l)) && op_fill_permit_call(op)) {
        op_enter(op, OP_GATHERED);
        TAILQ_INSERT_HEAD(&l->gathered, op, entry);
    }
    permits_rewind(l->permits);
    if (op) {
        op->decision_request = NULL;
        op_release(op);
    }
}

/* Decides whether gathered ops wait for more, to be sent in one call. A call costs Redis, weir
 * and the kernel as much as about ten of the decisions in it.
 *
 * Ops wait at most gather_us while the loop runs. If the loop sleeps, they wait for the pending
 * reply or for `again`. `again` uses libevent's clock with a precision of 4 ms; a precise timer
 * would cost two system calls each time.
 *
 * - If a call is in progress, ops wait for its reply, which wakes the loop. They wait only if Redis
 *   is near and its reply is not late, or if many decisions arrive.
 * - If no call is in progress and this loop iteration brought two or more ops, they wait as long as
 *   each iteration brings more. The loop then runs without sleeping, so the only delay is reading
 *   other requests.
 * - A single op does not wait.
 * - In a cluster no op waits: a slow node would delay the ops of the other nodes. */
static bool may_gather(struct limiter *l)
{
    unsigned came = l->gathered_count - l->gathered_before;
    uint64_t now_us = clock_cached_us();
    bool near = l->round_trip_us < l->gather_us && now_us - l->sent_us < l->gather_us;

    l->gathered_before = l->gathered_count;
    if (l->gathered_count == 0 || l->in_slots || l->gathered_count >= GATHER_MAX ||
        now_us - l->gathered_since_us >= l->gather_us)
        return false;
    if (!l->under_way && came >= 2)
        event_active(l->resume, EV_TIMEOUT, 1);
    else if (!l->under_way || (!near && l->density < GATHER_WORTH))
        return false;
    else if (!near && !evtimer_pending(l->again, NULL))
        event_timer_arm(l->again, l->gather_us); /* wakes the loop if nothing else does */
    return true;
}

/* Updates l->density: decisions per gather_us, smoothed. */
static void note_density(struct limiter *l)
{
    uint64_t now = clock_cached_us(), since_us = now - l->sent_us;
    uint64_t density = l->gathered_count * l->gather_us / (since_us + 1);

    l->density = (l->density * 3 + (density < GATHER_MAX ? (unsigned)density : GATHER_MAX) + 2) / 4;
    l->sent_us = now;
}

/* As many decisions are under way as Redis can make within a fraction of redis.timeout. In a
 * cluster there is no such bound: a slow node would delay the ops of the other nodes. */
static bool is_full(const struct limiter *l)
{
    return !l->in_slots && l->ops_under_way >= OPS_UNDER_WAY_MAX;
}

/* Slow start after reconnecting limits the load on Redis. Permit calls are exempt: the count
 * that they state must arrive before the ops gathered later. */
static bool must_wait(const struct limiter *l, const struct limit_op *op)
{
    return (is_full(l) || !redis_client_has_room(l->redis, op->slot)) &&
           !(op->is_adjustment && op->permit_count);
}

static void send_list(struct limiter *l, struct op_list *list)
{
    struct limit_op *op;
    struct batch *batch;

    while ((op = TAILQ_FIRST(list))) {
        if (must_wait(l, op)) {
            TAILQ_REMOVE(list, op, entry);
            TAILQ_INSERT_TAIL(&l->beyond, op, entry);
            continue;
        }
        if (!(batch = batch_take(l))) {
            fail_first(list);
            continue;
        }
        batch_fill(batch, list);
        if (batch->count)
            batch_send(l, batch);
        else
            SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
    }
}

/* A call may have keys of one slot only. Distributes the list over shorter lists, which are then
 * searched once per slot. */
static void send_by_slot(struct limiter *l, struct op_list *list)
{
    struct op_list some[SLOT_LISTS];
    struct limit_op *op;

    for (unsigned i = 0; i < SLOT_LISTS; i++)
        TAILQ_INIT(&some[i]);
    while ((op = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, op, entry);
        op->slot = (uint16_t)redis_client_slot(l->redis, op->limits[0].key);
        TAILQ_INSERT_TAIL(&some[op->slot % SLOT_LISTS], op, entry);
    }
    for (unsigned i = 0; i < SLOT_LISTS; i++)
        send_list(l, &some[i]);
}

static void send_gathered(struct limiter *l)
{
    struct op_list turn = TAILQ_HEAD_INITIALIZER(turn);

    gather_permit_calls(l);
    if (l->gathered_count)
        note_density(l);
    l->gathered_count = l->gathered_before = 0;
    TAILQ_CONCAT(&turn, &l->beyond, entry);
    TAILQ_CONCAT(&turn, &l->gathered, entry);
    if (l->in_slots)
        send_by_slot(l, &turn);
    else
        send_list(l, &turn);
}

/* A call is in progress, and its reply wakes the loop. In a cluster each node has its own
 * connection. */
static bool is_held_up(const struct limiter *l)
{
    return !l->in_slots && (is_full(l) || !redis_client_has_room(l->redis, 0));
}

void batches_flush(struct limiter *l)
{
    bool waits;

    if (!l->redis)
        return;
    if (deadlines_are_due(&l->deadlines, clock_cached_us()))
        deadlines_pass(&l->deadlines);
    waits = may_gather(l) || is_held_up(l);
    if (!waits)
        send_gathered(l);
    redis_client_flush(l->redis);
    /* The reply that ops wait for may have been lost with the connection. */
    if (!TAILQ_EMPTY(&l->gathered) && (!waits || !l->under_way))
        event_active(l->resume, EV_TIMEOUT, 1);
}
