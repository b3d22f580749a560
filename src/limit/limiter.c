/* limiter.c - see limiter.h.
 *
 *   limiter_decide() --> op, gathered --limiter_flush()--> batch, with the link --on_answer()--> decided()
 *                         |                                  |
 *                         `----------- deadline -------------'--> on_failure of each limit --> decided()
 *
 * Where the caller wants a receipt, the op of an admitted request stays with its ask and goes into one more
 * batch, as a settlement that nobody waits for.
 *
 * An op belongs to the limiter from limiter_decide() until its batch is answered, whoever still waits for it:
 * the deadline, or limiter_abandon(), only cut ask and op apart, and the late answer finds op->ask == NULL.
 * An op holds the keys as text, so that the facts need not live on. Ops and batches are kept for reuse. */
#include "limit/limiter_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/magic.h"
#include "base/memory.h"
#include "base/timer.h"
#include "limit/key.h"

/* --- Ops and batches ---------------------------------------------------------------------------------- */

static struct limit_op *op_allocate(struct limiter *l)
{
    struct limit_op *op = malloc(sizeof *op + l->op_keys_size);
    if (!op)
        return NULL;
    MAGIC_SET(op, OP_MAGIC);
    op->limiter = l;
    op->deadline.queue = NULL;
    op->split = NULL;
    op->whole = NULL;
    op->slot = 0;
    op->alone = false;
    op->permit_count = 0;
    op->lease = NULL;
    return op;
}

struct limit_op *op_take(struct limiter *l)
{
    struct limit_op *op = TAILQ_FIRST(&l->spare_ops);
    if (!op)
        return op_allocate(l);
    TAILQ_REMOVE(&l->spare_ops, op, entry);
    l->spare_op_count--;
    return op;
}

static void op_free(struct limit_op *op)
{
    MAGIC_WIPE(op);
    free(op);
}

void op_release(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    assert(!op->ask && !deadline_is_armed(&op->deadline));
    op_drop_permits(op);
    op->lease = NULL;
    if (unlikely(op->split || op->alone))
        split_drop(op);
    if (op == l->reserve)
        return;
    if (l->spare_op_count >= SPARE_OPS_MAX) {
        op_free(op);
        return;
    }
    TAILQ_INSERT_HEAD(&l->spare_ops, op, entry);
    l->spare_op_count++;
}

struct ask *op_cut(struct limit_op *op)
{
    struct ask *ask = op->ask;
    deadline_cancel(&op->deadline);
    if (ask)
        ask->op = NULL;
    op->ask = NULL;
    return ask;
}

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

static void fill_repeat(struct op_limit *part, struct text *keys, const struct limit_facts *facts)
{
    struct slice id = key_repeat_id(part->limit, facts->fields);
    size_t start = keys->n;

    if (id.n == 0)
        return;
    key_write_repeat(keys, part->key, id);
    part->repeat_key = (struct slice){keys->p + start, keys->n - start};
}

static unsigned op_key_count(const struct limit_op *op)
{
    unsigned count = op->count;
    for (unsigned i = 0; i < op->count; i++)
        count += op->limits[i].repeat_key.n > 0;
    return count;
}

/* The caller's terms: everything that a decision needs, copied out of the facts. */
static void op_fill(struct limit_op *op, const struct limit_facts *facts, const struct client_terms *terms)
{
    const struct limiter *l = op->limiter;
    const struct rule *rule = facts->rule;
    struct text keys = text_over(op->keys, l->op_keys_size);

    op->ask = NULL;
    op->batch = NULL;
    op->count = rule->limit_count;
    for (unsigned i = 0; i < rule->limit_count; i++) {
        struct op_limit *part = &op->limits[i];
        size_t start = keys.n;
        part->limit = rule->limits[i];
        part->numbers = client_numbers(terms, part->limit);
        part->full_cost = facts->cost ? facts->cost : rule->cost ? rule->cost : part->limit->cost;
        part->cost =
            part->limit->counted ? 0 : part->full_cost; /* 0: only a look, charged after the answer */
        part->shadow = !limit_enforces(part->limit, facts->identity);
        part->mode = part->limit->best_effort + (rule->limit_count > 1 && part->shadow ? MODE_SHADOW : 0);
        key_write(&keys, l->policy, part->limit, facts);
        part->key = (struct slice){op->keys + start, keys.n - start};
        part->repeat_key = SLICE_NONE;
        part->permit = NULL;
        if (part->limit->dedup)
            fill_repeat(part, &keys, facts);
    }
    assert(!keys.failed); /* op_keys_size is the sum of key_size_max() */
    op->keys_size = keys.n;
    op->denial_key_known = op->settles = op->part = op->abandoned = false;
    op->times_asked = 0;
    op_meet_lease(op, facts);
}

/* --- Decisions ---------------------------------------------------------------------------------------- */

/* Ends the wait for this op by on_failure. The asker's object may be gone afterwards; the op is not. */
static void op_fail(struct limit_op *op, enum redis_failure cause)
{
    struct ask *ask = op_cut(op);
    if (!ask)
        return;
    verdict_without_redis(op->limiter, op, cause, &ask->decision);
    op_permits_locally(op, ask);
    ask->decided(ask);
}

static void op_give_up(struct limit_op *op, enum redis_failure cause)
{
    if (op->whole) {
        split_failed(op, cause);
        return;
    }
    op_fail(op, cause);
    op_release(op);
}

/* What holds for a client: its address' place on a list, else what it was granted, else what the policy or the database
 * says of it. NULL: the limits as written. */
static const struct client_terms *terms_of(struct limiter *l, const struct limit_facts *facts,
                                           struct client_terms *granted)
{
    static const struct client_terms unlimited = {.quota = QUOTA_UNLIMITED};
    struct grant grant;

    if (facts->identity->listed == LISTED_ALLOWED)
        return &unlimited;
    if (!grants_find(&l->grants, facts->identity, &grant))
        return facts->terms ? facts->terms : policy_client(l->policy, facts->identity);
    *granted = grant_terms(grant.quota);
    return granted;
}

bool limiter_has_grant(struct limiter *l, const struct identity *identity)
{
    struct grant grant;
    return grants_find(&l->grants, identity, &grant);
}

void op_copy(struct limit_op *op, const struct limit_op *from)
{
    memcpy(op->keys, from->keys, from->keys_size);
    op->keys_size = from->keys_size;
    op->ask = NULL;
    op->batch = NULL;
    op->started_us = from->started_us;
    op->count = 0;
    op->denial_key_known = op->settles = op->part = op->abandoned = false;
    op->times_asked = 0;
    op->lease = NULL;
}

void op_gather(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    op->batch = NULL;
    TAILQ_INSERT_TAIL(&l->gathered, op, entry);
    if (l->gathered_count++ == 0)
        l->gathered_since_us = clock_turn_us();
}

enum decided limiter_decide(struct limiter *l, const struct limit_facts *facts, struct ask *ask)
{
    const struct rule *rule = facts->rule;
    const struct client_terms *terms;
    struct client_terms granted;
    struct limit_op *op;

    ask->op = ask->receipt = NULL;
    ask->held_count = 0;
    ask->decision.delay_us = 0;
    if (rule->limit_count == 0) {
        verdict_of_no_limits(&ask->decision);
        return DECIDED_NOW;
    }
    terms = terms_of(l, facts, &granted);
    if (terms && terms->quota != QUOTA_AS_WRITTEN) {
        verdict_by_terms(l, facts, terms->quota == QUOTA_PROHIBITED, &ask->decision);
        return DECIDED_NOW;
    }
    bool ready = redis_store_is_ready(l->store);
    op = ready ? op_take(l) : l->reserve;
    op = op ? op : l->reserve;
    assert(op); /* the reserve is always there */
    op_fill(op, facts, terms);
    if (l->permits && !op_use_permits(op)) {
        op_release(op);
        verdict_of_no_memory(&ask->decision);
        return DECIDED_NOW;
    }
    if (op->lease && op_spend_lease(op, ask))
        return DECIDED_NOW;
    if (op == l->reserve) {
        verdict_without_redis(l, op, ready ? REDIS_FAILURE_BUSY : redis_store_cause(l->store),
                              &ask->decision);
        op_permits_locally(op, ask);
        op_release(op);
        return DECIDED_NOW;
    }
    op->started_us = clock_turn_us();
    if (denials_any(l->denials, op->started_us) && verdict_from_denial(l, op, clock_us(), &ask->decision)) {
        op_release(op);
        return DECIDED_NOW;
    }
    op->ask = ask;
    ask->op = op;
    deadline_arm(&l->waiting, &op->deadline, op->started_us, l->policy->redis.timeout_us);
    if (likely(!l->in_slots) || !op_find_slots(op))
        op_gather(op);
    else if (!split_begin(op, false)) {
        op_cut(op);
        verdict_without_redis(l, op, REDIS_FAILURE_BUSY, &ask->decision);
        op_permits_locally(op, ask);
        op_release(op);
        return DECIDED_NOW;
    }
    return DECIDED_LATER;
}

void limiter_abandon(struct ask *ask)
{
    struct limit_op *op = ask->op;

    if (!op)
        return;
    MAGIC_CHECK(op, OP_MAGIC);
    op->abandoned = true;
    op_cut(op);
    if (op->split)
        split_abandon(op);
}

/* --- The deadline ------------------------------------------------------------------------------------- */

static void on_deadline(struct deadline *deadline)
{
    struct limit_op *op = CONTAINER_OF(deadline, struct limit_op, deadline);
    struct limiter *l = op->limiter;
    struct batch *batch = op->split ? split_batch(op) : op->batch;
    bool tell = batch && !batch->timed_out;

    MAGIC_CHECK(op, OP_MAGIC);
    if (tell)
        batch->timed_out = true;
    failures_note_late(op);
    if (op->split)
        split_timeout(op);
    else /* an op not sent yet stays gathered; the next flush drops it */
        op_fail(op, op->alone ? REDIS_FAILURE_MOVING : REDIS_FAILURE_TIMEOUT);
    if (tell)
        redis_store_note_timeout(l->store, &batch->call);
}

/* Before deadlines pass: an answer that is there is better than none, however long the loop was busy with other things. */
static void read_answers(void *context)
{
    struct limiter *l = context;
    redis_store_read(l->store);
}

/* --- Answers ------------------------------------------------------------------------------------------ */

static bool are_numbers(redisReply *const *values, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (values[i]->type != REDIS_REPLY_INTEGER || values[i]->integer > ANSWER_LARGEST ||
            values[i]->integer < -ANSWER_LARGEST)
            return false;
    return true;
}

/* Finds the groups' parts of the reply as well. */
static bool answer_has_shape(const redisReply *reply, struct batch *batch)
{
    size_t expected = 0;

    for (unsigned i = 0; i < batch->group_count; i++) {
        batch->groups[i].answer_at = expected;
        expected += batch->groups[i].count * ANSWERS_PER_LIMIT;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != expected + 1) /* the last is the time */
        return false;
    redisReply *const *values = reply->element;
    for (unsigned i = 0; i < batch->group_count; i++)
        for (unsigned j = 0; j < batch->groups[i].count; j++, values += ANSWERS_PER_LIMIT)
            if (!failure_is(&batch->groups[i].first->limits[j], values) &&
                !are_numbers(values, ANSWERS_PER_LIMIT))
                return false;
    return are_numbers(values, 1);
}

/* A script of one's own has failed: its limits are decided without Redis and, where that admits, the others are
 * asked for anew. False: the answer holds as it is. */
static bool op_set_failures_aside(struct limit_op *op, redisReply *const *values)
{
    struct limiter *l = op->limiter;
    unsigned failed = failures_sort(op, values), rest = op->count - failed;

    if (failed == 0)
        return false;
    op->count = failed;
    verdict_without_redis(l, op, REDIS_FAILURE_SCRIPT, &op->ask->decision);
    op->count = rest;
    if (rest && decision_admits(&op->ask->decision)) {
        memmove(op->limits, op->limits + failed, rest * sizeof op->limits[0]);
        op->batch = NULL;
        if (rest == 1)
            op->limits[0].mode &= ~(unsigned)MODE_SHADOW;
        TAILQ_INSERT_TAIL(&l->gathered, op, entry);
        return true;
    }
    struct ask *ask = op_cut(op);
    op_release(op);
    ask->decided(ask);
    return true;
}

/* `time_us`: of the answer, by the clock of Redis. */
static void op_answer(struct limit_op *op, redisReply *const *values, int64_t time_us, uint64_t now_us)
{
    struct limiter *l = op->limiter;
    struct ask *ask;
    bool kept = false;

    op_permits_answered(op);
    failures_note(op, values, now_us);
    if (unlikely(op->whole)) {
        split_answer(op, values, time_us);
        return;
    }
    if (op->ask && op_set_failures_aside(op, values))
        return;
    ask = op_cut(op);
    op_permits_charged(op, ask, values);
    if (!op->settles)
        histogram_add(&l->stats->redis_latency, now_us - op->started_us);
    if (ask) {
        verdict_from_answer(l, op, values, &ask->decision);
        verdict_remember(l, op, &ask->decision);
        kept = ask->wants_receipt && ask->decision.verdict == VERDICT_ALLOWED;
        if (kept) {
            op_write_receipt(op, values, time_us);
            ask->receipt = op;
        }
    } else if (op_would_have_waited(op, values)) {
        op_write_receipt(op, values, time_us);
        op_leave_queue(op, values);
        return;
    }
    if (!kept)
        op_release(op);
    if (ask)
        ask->decided(ask);
}

/* There were fewer units than its group has requests, and none for this one. It is asked for once more, so that it learns how
 * long it has to wait. */
static void op_ask_again(struct limit_op *op)
{
    if (!op->ask) {
        op_release(op);
        return;
    }
    op->times_asked++;
    op_gather(op);
}

/* Before any op of the batch is answered, and another's. `reply`: NULL: there was none. */
static void answer_leases(struct batch *batch, const redisReply *reply, int64_t time_us)
{
    for (unsigned i = 0; i < batch->group_count; i++) {
        struct group *group = &batch->groups[i];
        redisReply *const *values = reply ? reply->element + group->answer_at : NULL;
        if (reply && group->first->lease && !group->first->settles)
            op_note_remaining(group->first, values, batch->sent_us);
        if (group->lease)
            lease_answered(group, values, time_us, batch->sent_us);
    }
}

static void batch_answer(struct batch *batch, const redisReply *reply)
{
    int64_t time_us = reply->element[reply->elements - 1]->integer;
    uint64_t now_us = clock_us();
    struct own_answer own;

    answer_leases(batch, reply, time_us);
    for (unsigned i = 0; i < batch->count; i++) {
        struct limit_op *op = batch->ops[i];
        struct group *group = &batch->groups[batch->group_of[i]];
        redisReply *const *values = group_answer(group, reply->element + group->answer_at, &own);
        if (likely(values != NULL))
            op_answer(op, values, time_us, now_us); /* the op is the receipt's or free from here on */
        else
            op_ask_again(op);
    }
}

/* Settles every op of the batch. decided() may abandon others of them, or ask anew; the batch stays whole. */
static void batch_settle(struct batch *batch, const redisReply *reply, enum redis_failure failure)
{
    struct limiter *l = batch->limiter;

    if (reply)
        batch_answer(batch, reply);
    else
        answer_leases(batch, NULL, 0);
    for (unsigned i = 0; i < batch->count && !reply; i++) {
        op_permits_failed(batch->ops[i]);
        op_give_up(batch->ops[i], failure);
    }
    SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
}

/* Some of the keys are at one node of a cluster and some at another, and nothing was charged. A key by itself is
 * always found: so each op is asked for alone and, where it has several keys, each of its limits. Where that cannot be
 * done it is tried until the deadline. */
static void op_try_again(struct limit_op *op)
{
    struct limiter *l = op->limiter;
    bool apart = op->alone && (op->ask || op->whole) && op->count > 1 && op_key_count(op) == op->count;

    op_permits_answered(op);
    op->batch = NULL;
    if (op->alone && op->settles && ++op->tries > SETTLEMENT_TRIES_MAX)
        op_release(op);
    else if (!op->alone) {
        op->alone = true;
        op->tries = 0;
        op_gather(op);
    } else if (!apart || !(op->whole ? split_apart(op) : split_begin(op, true)))
        TAILQ_INSERT_TAIL(&l->later, op, entry);
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

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct limiter *l = arg;
    (void)fd, (void)what;

    TAILQ_CONCAT(&l->gathered, &l->later, entry);
}

static void on_answer(struct redis_call *call, const redisReply *reply, enum redis_failure failure)
{
    struct batch *batch = CONTAINER_OF(call, struct batch, call);

    struct limiter *l = batch->limiter;

    MAGIC_CHECK(l, LIMITER_MAGIC);
    l->under_way--;
    l->round_trip_us = (l->round_trip_us * 7 + (clock_turn_us() - batch->sent_us)) / 8;
    if (reply && !answer_has_shape(reply, batch))
        reply = NULL, failure = REDIS_FAILURE_REPLY;
    if (unlikely(failure == REDIS_FAILURE_MOVING))
        batch_try_again(batch);
    else
        batch_settle(batch, reply, failure);
}

/* --- Sending ------------------------------------------------------------------------------------------ */

/* Requests, each of them once: not what settles an earlier charge, nor who was rejected with others and is asked for alone. */
static unsigned request_count(const struct batch *batch)
{
    unsigned count = 0;

    for (unsigned i = 0; i < batch->count; i++)
        count += !batch->ops[i]->settles && batch->ops[i]->times_asked == 0;
    return count;
}

static void batch_send(struct limiter *l, struct batch *batch)
{
    struct arguments *a = &l->arguments;

    arguments_make(a, batch);
    batch->call = (struct redis_call){.done = on_answer};
    if (redis_store_call(l->store, &batch->call, a->count, a->bytes, a->sizes)) {
        batch->sent_us = clock_turn_us();
        l->under_way++;
        counter_add(&l->stats->redis_calls, 1);
        counter_add(&l->stats->redis_requests, request_count(batch));
    } else
        batch_settle(batch, NULL,
                     redis_store_is_whole(l->store) ? REDIS_FAILURE_BUSY : redis_store_cause(l->store));
}

/* Moves ops of one slot that somebody still waits for from the list into a batch; drops the others. */
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
        if (!op->ask && !op->settles && !op->whole) {
            op_release(op);
            continue;
        }
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

/* In front of all that is gathered: what a permit says of itself leaves out what has not been sent. */
static void gather_permit_calls(struct limiter *l)
{
    struct limit_op *op = NULL;

    if (!l->permits || !redis_store_is_ready(l->store))
        return;
    while ((op = op_take(l)) && op_fill_permit_call(op))
        TAILQ_INSERT_HEAD(&l->gathered, op, entry);
    permits_rewind(l->permits);
    if (op) {
        op->ask = NULL;
        op_release(op);
    }
}

/* Under load, what is gathered waits for more, and leaves in one call: a call costs Redis, us and the kernel as much as some ten of
 * the decisions in it. Nothing waits for longer than gather_us.
 *
 * While a call is under way it waits for the answer, with which the loop turns: where Redis is near, or where so many come that
 * the call will be worth it. While none is, and this turn has brought several, it waits for as long as each turn brings
 * more: the loop is told to turn without sleeping, so that nobody waits but for other requests to be read. Who comes
 * alone waits for nobody. Not in a cluster, where one node that is slow would hold up what goes to others. */
static bool may_gather(struct limiter *l)
{
    unsigned came = l->gathered_count - l->gathered_before;
    bool near = l->round_trip_us < l->gather_us;

    l->gathered_before = l->gathered_count;
    if (came + l->gathered_before == 0 || l->in_slots || l->gathered_count >= GATHER_MAX ||
        clock_turn_us() - l->gathered_since_us >= l->gather_us)
        return false;
    if (!l->under_way && came >= 2)
        event_active(l->resume, EV_TIMEOUT, 1);
    else if (!l->under_way || (!near && l->density < GATHER_WORTH))
        return false;
    else if (!near && !evtimer_pending(l->again, NULL))
        timer_arm(l->again, l->gather_us); /* where nothing else turns the loop any more */
    return true;
}

/* How many decisions come within gather_us, smoothed. */
static void note_density(struct limiter *l)
{
    uint64_t now = clock_turn_us(), since_us = now - l->sent_us;
    uint64_t density = l->gathered_count * l->gather_us / (since_us + 1);

    l->density = (l->density * 3 + (density < GATHER_MAX ? (unsigned)density : GATHER_MAX) + 2) / 4;
    l->sent_us = now;
}

/* A Redis that has just come back is asked with care. What a permit says of itself goes before all that was gathered after
 * it, and so is not kept back. */
static bool must_wait(const struct limiter *l, const struct limit_op *op)
{
    return unlikely(!redis_store_has_room(l->store, op->slot)) && !(op->settles && op->permit_count);
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

/* A call has keys of one slot: the list is cut into short ones, each of which is looked through for each of its slots. */
static void send_by_slot(struct limiter *l, struct op_list *list)
{
    struct op_list some[SLOT_LISTS];
    struct limit_op *op;

    for (unsigned i = 0; i < SLOT_LISTS; i++)
        TAILQ_INIT(&some[i]);
    while ((op = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, op, entry);
        op->slot = (uint16_t)redis_store_slot(l->store, op->limits[0].key);
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

/* By the link's ramp: a call is under way, with whose end the loop turns. In a cluster each call has its own link. */
static bool is_held_up(const struct limiter *l)
{
    return !l->in_slots && unlikely(!redis_store_has_room(l->store, 0));
}

void limiter_flush(struct limiter *l)
{
    bool waits;

    if (!l->store)
        return;
    if (unlikely(deadlines_are_due(&l->deadlines, clock_turn_us())))
        deadlines_pass(&l->deadlines);
    waits = may_gather(l) || is_held_up(l);
    if (!waits)
        send_gathered(l);
    redis_store_flush(l->store);
    if (!TAILQ_EMPTY(&l->gathered) && !waits)
        event_active(l->resume, EV_TIMEOUT, 1);
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg; /* the worker flushes after every turn */
}

static size_t longest_keys(const struct policy *policy)
{
    size_t longest = 0;

    for (unsigned i = 0; i < policy->rule_count; i++) {
        size_t keys = 0;
        for (unsigned j = 0; j < policy->rules[i].limit_count; j++)
            keys += key_size_max(policy, policy->rules[i].limits[j]) *
                        (policy->rules[i].limits[j]->dedup ? 2 : 1) +
                    (policy->rules[i].limits[j]->dedup ? KEY_REPEAT_MAX : 0);
        if (keys > longest)
            longest = keys;
    }
    return longest;
}

/* 0: the policy counts no requests in flight. */
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

struct limiter *limiter_new(struct event_base *base, struct policy *policy, struct fallback *fallback,
                            struct slice script, struct limiter_stats *stats)
{
    struct limiter *l = xcalloc(1, sizeof *l);

    MAGIC_SET(l, LIMITER_MAGIC);
    l->policy = policy_hold(policy);
    l->fallback = fallback;
    l->stats = stats;
    TAILQ_INIT(&l->gathered);
    TAILQ_INIT(&l->beyond);
    TAILQ_INIT(&l->later);
    TAILQ_INIT(&l->spare_ops);
    SLIST_INIT(&l->spare_batches);
    l->op_keys_size = longest_keys(policy);
    l->denials = denials_new();
    l->reserve = op_allocate(l);
    l->resume = event_new(base, -1, 0, on_resume, l);
    l->again = evtimer_new(base, on_again, l);
    arguments_init(&l->arguments);
    if (!l->reserve || !l->resume || !l->again || deadlines_init(&l->deadlines, base) != 0) {
        limiter_free(l);
        return NULL;
    }
    deadline_queue_init(&l->deadlines, &l->waiting, on_deadline);
    limiter_leases_init(l);
    if (shortest_lease(policy))
        l->permits = permits_new(&l->deadlines, shortest_lease(policy), fallback);
    if (!policy_needs_redis(policy))
        return l;
    l->store = redis_store_new(base, &policy->redis, script, NULL);
    l->in_slots = redis_store_has_slots(l->store);
    l->deadlines.before = read_answers;
    l->deadlines.context = l;
    l->gather_us = policy->redis.timeout_us / 4 < GATHER_US ? policy->redis.timeout_us / 4 : GATHER_US;
    return l;
}

static void drop_gathered(struct limiter *l)
{
    struct limit_op *op;

    TAILQ_CONCAT(&l->gathered, &l->beyond, entry);
    TAILQ_CONCAT(&l->gathered, &l->later, entry);
    while ((op = TAILQ_FIRST(&l->gathered))) {
        TAILQ_REMOVE(&l->gathered, op, entry);
        op_give_up(op, REDIS_FAILURE_DOWN);
    }
}

static void free_spares(struct limiter *l)
{
    struct limit_op *op;
    struct batch *batch;

    while ((op = TAILQ_FIRST(&l->spare_ops))) {
        TAILQ_REMOVE(&l->spare_ops, op, entry);
        op_free(op);
    }
    while ((batch = SLIST_FIRST(&l->spare_batches))) {
        SLIST_REMOVE_HEAD(&l->spare_batches, spare);
        free(batch);
    }
}

void limiter_free(struct limiter *l)
{
    if (!l)
        return;
    drop_gathered(l); /* before the link: who is told may ask again */
    redis_store_free(l->store);
    permits_free(l->permits);
    limiter_leases_free(l);
    free_spares(l);
    if (l->deadlines.timer)
        deadlines_clear(&l->deadlines);
    if (l->resume)
        event_free(l->resume);
    if (l->again)
        event_free(l->again);
    free(l->reserve);
    denials_free(l->denials);
    grants_let_go(&l->grants);
    arguments_free(&l->arguments);
    policy_drop(l->policy);
    MAGIC_WIPE(l);
    free(l);
}

const struct limiter_stats *limiter_stats(const struct limiter *l)
{
    return l->stats;
}

bool limiter_redis_ready(const struct limiter *l)
{
    return l->store && redis_store_is_whole(l->store);
}

enum redis_breaker limiter_breaker(const struct limiter *l)
{
    return l->store ? redis_store_breaker(l->store) : REDIS_BREAKER_OPEN;
}

bool limiter_redis_away(const struct limiter *l)
{
    return !l->store || !redis_store_is_ready(l->store);
}
