/* batch.c - sends the ops gathered in a loop iteration as calls of the driver, and makes
 * decisions from the replies. */
#include "limit/batch.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/free_list.h"
#include "base/magic.h"
#include "limit/adjust.h"
#include "limit/arguments.h"
#include "limit/failed_limits.h"
#include "limit/limiter_parts.h"
#include "limit/op_leases.h"
#include "limit/op_permits.h"
#include "limit/permits.h"
#include "limit/queue.h"
#include "limit/split.h"
#include "limit/sub_op.h"
#include "limit/verdict.h"

enum {
    ADJUSTMENT_TRIES_MAX = 100,
    SLOT_LISTS = 64,
    SPARE_BATCHES_MAX = 128, /* 0.5 MiB; further ones are freed */
};

/* One EVALSHA. */
struct batch {
    struct redis_call call;
    struct limiter *limiter;
    bool timed_out; /* the connection was notified of a timeout */
    uint64_t sent_us;
    struct call_ops ops;
};

struct batches {
    struct free_list spare;
    struct arguments *arguments;
    struct limit_reply replies[BATCH_KEYS_MAX]; /* of the batch that is being answered */
};

static void batch_free(struct batch *batch)
{
    struct free_list *spare = &batch->limiter->batches->spare;

    if (spare->count < SPARE_BATCHES_MAX)
        free_list_put(spare, batch);
    else
        free(batch);
}

/* --- Without a reply -------------------------------------------------------------------------- */

/* Decides the op by on_failure; the op stays. */
static void op_fail(struct limit_op *op, enum redis_failure cause)
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
    if (op->cluster.parent) {
        split_failed(op, cause);
        return;
    }
    op_fail(op, cause);
    op_release(op);
}

/* Returns true if Redis had at least half of redis.timeout for the op's call, or, if the op is not
 * sent yet, sent no reply to others for as long. If not, the op has spent its time in weir's own
 * queue, which does not depend on Redis. */
static bool redis_is_late(const struct limiter *l, const struct batch *batch)
{
    uint64_t half_us = l->policy->redis.timeout_us / 2;

    return batch ? clock_cached_us() - batch->sent_us >= half_us
                 : op_queue_is_silent(l->queue, half_us);
}

void op_time_out(struct limit_op *op)
{
    struct limiter *l = op->limiter;
    const struct limit_op *sent = op->cluster.split ? split_sent(op) : op;
    struct batch *batch = sent->sending.batch;
    bool late = redis_is_late(l, batch), tell = late && batch && !batch->timed_out;
    enum redis_failure cause = sent->cluster.alone ? REDIS_FAILURE_MOVING
                               : late              ? REDIS_FAILURE_TIMEOUT
                                                   : REDIS_FAILURE_BUSY;

    MAGIC_CHECK(op, OP_MAGIC);
    if (tell)
        batch->timed_out = true;
    if (late)
        failures_note_late(op);
    if (op->cluster.split)
        split_timeout(op, cause);
    else
        op_fail(op, cause); /* an op not sent yet stays gathered; the next flush drops it */
    if (tell)
        redis_client_note_timeout(&batch->call);
}

/* --- Answers ---------------------------------------------------------------------------------- */

/* Reads the replies of all groups, and the time of the Redis clock after them. Returns false if
 * `reply` is malformed. */
static bool read_replies(const struct redis_reply *reply, struct batch *batch, int64_t *time_us)
{
    struct limit_reply *to = batch->limiter->batches->replies;
    struct redis_reply unpacked[LIMIT_REPLY_PACKED];
    struct limit_replies from;

    if (!limit_replies_begin(&from, reply, unpacked))
        return false;
    for (unsigned i = 0; i < batch->ops.group_count; i++) {
        struct group *group = &batch->ops.groups[i];
        const struct wide *wide = group->first->wide;
        group->first_reply = (unsigned)(to - batch->limiter->batches->replies);
        for (unsigned j = 0; j < group->count; j++) {
            const struct op_limit *part = &op_limits(group->first)[j];
            if (wide && wide->decided[j]) {
                *to++ = (struct limit_reply){0};
                continue;
            }
            if (!limit_reply_read(&from, part->limit, &part->numbers, group->plain, to++))
                return false;
        }
    }
    if (from.end - from.next != 1 || !limit_reply_is_number(from.next))
        return false;
    *time_us = from.next->integer;
    return true;
}

/* `time_us`: time of the reply by the Redis clock. */
static void op_answer(struct limit_op *op, const struct limit_reply *replies, int64_t time_us,
                      uint64_t now_us)
{
    struct limiter *l = op->limiter;
    struct decision_request *decision_request;
    struct limit_reply sorted[LIMITS_PER_RULE_MAX];
    bool kept = false;

    op_permits_answered(op);
    failures_note(op, replies, now_us);
    if (op->cluster.parent) {
        split_answer(op, replies, time_us);
        return;
    }
    if (op->decision_request && !(replies = failed_limits_decide(op, replies, sorted, time_us)))
        return;
    decision_request = op_cut(op);
    op_permits_charged(op, decision_request, replies);
    if (op->is_adjustment)
        op_forget_denials(op);
    else
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
        op_leave_queues(op);
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
    op->sending.times_repeated++;
    op_gather(op);
}

/* Call before any op of the batch gets its reply, because that may free it. `replies` NULL: there
 * was none. */
static void answer_leases(struct batch *batch, const struct limit_reply *replies, int64_t time_us)
{
    for (unsigned i = 0; i < batch->ops.group_count; i++) {
        struct group *group = &batch->ops.groups[i];
        const struct limit_reply *own = replies ? replies + group->first_reply : NULL;
        if (own && group->first->leased.lease && !group->first->is_adjustment)
            op_note_remaining(group->first, own, batch->sent_us);
        if (group->leased.lease)
            lease_answered(&group->leased, group->first, group->size, own, time_us, batch->sent_us);
    }
}

/* Completes every op of the batch. decided() may cancel other ops or make new requests; the
 * batch stays valid. */
static void batch_answer(struct batch *batch, int64_t time_us)
{
    struct limiter *l = batch->limiter;
    uint64_t now_us = clock_us();
    struct limit_reply own;
    bool sent_again = batch->call.retried || batch->call.redirects;

    answer_leases(batch, l->batches->replies, time_us);
    for (unsigned i = 0; i < batch->ops.count; i++) {
        struct limit_op *op = batch->ops.list[i];
        struct group *group = &batch->ops.groups[batch->ops.group_of[i]];
        const struct limit_reply *replies =
            group_answer(group, l->batches->replies + group->first_reply, &own);
        op_enter(op, OP_ANSWERED);
        if (sent_again)
            op_permits_sent_again(op);
        if (replies != NULL)
            op_answer(op, replies, time_us, now_us); /* the op may be reused or free */
        else
            op_request_again(op);
    }
    batch_free(batch);
}

/* The same for a batch without a reply. */
static void batch_fail(struct batch *batch, enum redis_failure failure)
{
    answer_leases(batch, NULL, 0);
    for (unsigned i = 0; i < batch->ops.count; i++) {
        op_enter(batch->ops.list[i], OP_ANSWERED);
        op_permits_failed(batch->ops.list[i]);
        op_give_up(batch->ops.list[i], failure);
    }
    batch_free(batch);
}

/* The limits of an adjustment do not depend on each other. */
static void adjust_apart(struct limit_op *op)
{
    struct limit_op *own;

    while (op->count > 1 && (own = op_take_last(op))) {
        own->cluster.alone = true;
        own->cluster.tries = 0;
        op_gather_quietly(own);
    }
    if (op->count == 1)
        op_limit_alone(&op->limits[0]);
}

/* The keys are spread over two nodes of a cluster (a slot is moving), and nothing was charged. A
 * single key can always be found, so each op is sent alone. An op with several keys is then
 * split into one sub-operation per limit, or into one adjustment per limit. If that is not
 * possible, the op is retried until its deadline. */
static void op_try_again(struct limit_op *op)
{
    bool apart = op->cluster.alone && (op->decision_request || op->cluster.parent) &&
                 op->count > 1 && op_key_count(op) == op->count;

    op_enter(op, OP_ANSWERED);
    if (op->is_adjustment && op->permits.count) { /* its count may be old; a new call states it */
        op_permits_failed(op);
        op_release(op);
        return;
    }
    op_permits_answered(op);
    if (op->cluster.alone && op->is_adjustment && ++op->cluster.tries > ADJUSTMENT_TRIES_MAX)
        op_release(op);
    else if (!op->cluster.alone) {
        op->cluster.alone = true;
        op->cluster.tries = 0;
        op_gather(op);
    } else if (!apart || !(op->cluster.parent ? split_apart(op) : split_begin(op, true))) {
        if (op->is_adjustment)
            adjust_apart(op);
        op_gather_later(op);
    }
}

static void batch_try_again(struct batch *batch)
{
    struct limiter *l = batch->limiter;

    answer_leases(batch, NULL, 0);
    for (unsigned i = 0; i < batch->ops.count; i++)
        op_try_again(batch->ops.list[i]);
    batch_free(batch);
    op_queue_wake(l->queue);
}

static void on_batch_reply(struct redis_call *call, const struct redis_reply *reply,
                           enum redis_failure failure)
{
    struct batch *batch = CONTAINER_OF(call, struct batch, call);
    struct limiter *l = batch->limiter;
    int64_t time_us;

    MAGIC_CHECK(l, LIMITER_MAGIC);
    op_queue_answered(l->queue, batch->ops.count, batch->sent_us);
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
    struct batch *batch = free_list_take(&l->batches->spare);

    if (!batch && !(batch = malloc(sizeof *batch)))
        return NULL;
    batch->limiter = l;
    batch->timed_out = false;
    batch->ops.count = 0;
    return batch;
}

/* Counts each request once: neither adjustments nor requests that are sent again after their
 * group got too few units. */
static unsigned request_count(const struct batch *batch)
{
    unsigned count = 0;

    for (unsigned i = 0; i < batch->ops.count; i++)
        count +=
            !batch->ops.list[i]->is_adjustment && batch->ops.list[i]->sending.times_repeated == 0;
    return count;
}

static void batch_send(struct limiter *l, struct batch *batch)
{
    const struct call_arguments *a = arguments_make(l->batches->arguments, &batch->ops);

    batch->call = (struct redis_call){.done = on_batch_reply};
    if (redis_client_call(l->redis, &batch->call, a->count, a->bytes, a->sizes)) {
        batch->sent_us = clock_cached_us();
        op_queue_sent(l->queue, batch->ops.count);
        counter_add(&l->stats->redis_calls, 1);
        counter_add(&l->stats->redis_requests, request_count(batch));
    } else
        batch_fail(batch, redis_client_cause(l->redis, batch->ops.list[0]->cluster.slot));
}

/* Moves ops of one slot from the list into a batch. Drops ops that nothing waits for. */
static void batch_fill(struct batch *batch, struct op_list *list)
{
    struct limit_op *op, *next = TAILQ_FIRST(list);
    unsigned keys = 0, slot = next->cluster.slot;
    bool alone = next->cluster.alone;

    while (batch->ops.count < (alone ? 1 : BATCH_REQUESTS_MAX) && (op = next)) {
        next = TAILQ_NEXT(op, sending.entry);
        if (op->cluster.slot != slot || op->cluster.alone != alone)
            continue;
        if ((keys += op_key_count(op)) > BATCH_KEYS_MAX)
            break;
        TAILQ_REMOVE(list, op, sending.entry);
        if (!op->decision_request && !op->is_adjustment && !op->cluster.parent) {
            op_release(op);
            continue;
        }
        op_enter(op, OP_SENT);
        op->sending.batch = batch;
        op_permits_sent(op);
        batch->ops.list[batch->ops.count++] = op;
    }
}

static void fail_first(struct op_list *list)
{
    struct limit_op *op = TAILQ_FIRST(list);
    TAILQ_REMOVE(list, op, sending.entry);
    op_permits_sent(op);
    op_permits_failed(op);
    op_give_up(op, REDIS_FAILURE_BUSY);
}

static void send_list(struct limiter *l, struct op_list *list)
{
    struct limit_op *op;
    struct batch *batch;

    while ((op = TAILQ_FIRST(list))) {
        if (op_queue_holds_back(list, op))
            continue;
        if (!(batch = batch_take(l))) {
            fail_first(list);
            continue;
        }
        batch_fill(batch, list);
        if (batch->ops.count)
            batch_send(l, batch);
        else
            batch_free(batch);
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
        TAILQ_REMOVE(list, op, sending.entry);
        op->cluster.slot = (uint16_t)redis_client_slot(l->redis, op->limits[0].key);
        TAILQ_INSERT_TAIL(&some[op->cluster.slot % SLOT_LISTS], op, sending.entry);
    }
    for (unsigned i = 0; i < SLOT_LISTS; i++)
        send_list(l, &some[i]);
}

static void send_gathered(struct limiter *l)
{
    struct op_list list = TAILQ_HEAD_INITIALIZER(list);

    if (l->permits)
        op_queue_each(l->queue, op_permits_prepare);
    bool some_wait = op_gather_permit_calls(l);
    op_queue_take(l->queue, &list);
    if (some_wait)
        op_queue_return(l->queue, &list, op_waits_for_total);
    if (l->in_slots)
        send_by_slot(l, &list);
    else
        send_list(l, &list);
}

void batches_flush(struct limiter *l)
{
    bool waits;

    l->unflushed = false;
    if (!l->redis)
        return;
    if (deadlines_are_due(&l->deadlines, clock_cached_us()))
        deadlines_pass(&l->deadlines);
    waits = op_queue_waits(l);
    if (!waits)
        send_gathered(l);
    redis_client_flush(l->redis);
    op_queue_end(l->queue, waits);
}

/* --- Creation --------------------------------------------------------------------------------- */

struct batches *batches_new(void)
{
    struct batches *b = calloc(1, sizeof *b);

    if (b && (b->arguments = arguments_new()))
        return b;
    free(b);
    return NULL;
}

void batches_free(struct batches *b)
{
    if (!b)
        return;
    (void)free_list_drop(&b->spare, b->spare.count);
    arguments_free(b->arguments);
    free(b);
}
