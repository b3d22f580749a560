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
#include "limit/limiter.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/magic.h"
#include "base/memory.h"
#include "limit/denials.h"
#include "limit/key.h"

enum {
    LIMITER_MAGIC = 0x4c4d5452,
    OP_MAGIC = 0x4c4f5053,
    BATCH_REQUESTS_MAX = 64, /* in one EVALSHA: Redis serves nobody else meanwhile, some 0.2 ms */
    BATCH_KEYS_MAX = BATCH_REQUESTS_MAX * LIMITS_PER_RULE_MAX,
    KEY_SLOTS = 2 * BATCH_KEYS_MAX,
    ARGUMENTS_PER_LIMIT = 6,
    ANSWERS_PER_LIMIT = 5,
    MODE_PLAIN = 0,
    MODE_DEBT = 2,
    MODE_REPEAT = 8, /* times the key that remembers the answer */
    MODE_SHADOW = 4, /* beside the limiter's mode: this limit's rejection does not reject the request */
    NUMBER_SIZE = 20,
    SPARE_OPS_MAX = 4096,
};

struct op_limit {
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t cost;
    int64_t full_cost; /* what it comes to, where the answer is charged */
    unsigned mode;     /* the driver's */
    bool shadow;       /* rejects nobody */
    bool granted;
    int64_t charged;         /* what Redis granted */
    int64_t counts_us;       /* from then on the charge counts for so long */
    struct slice key;        /* in op->keys */
    unsigned key_index;      /* from 1, in the batch's KEYS */
    struct slice repeat_key; /* the same for what remembers the answer; n == 0: nothing does */
    unsigned repeat_index;
};

struct limit_op {
    uint32_t magic;
    struct limiter *limiter;
    struct ask *ask;     /* NULL: nobody waits any more */
    struct batch *batch; /* NULL: not sent yet */
    struct deadline deadline;
    TAILQ_ENTRY(limit_op) entry; /* of gathered or spare */
    uint64_t started_us;
    struct denial_key denial_key;
    bool denial_key_known;
    bool settles; /* nobody waits, and it is sent all the same */
    size_t keys_size;
    unsigned count;
    struct op_limit limits[LIMITS_PER_RULE_MAX];
    char keys[];
};
TAILQ_HEAD(op_list, limit_op);

/* What one EVALSHA asks for. */
struct batch {
    struct redis_call call;
    struct limiter *limiter;
    SLIST_ENTRY(batch) spare;
    bool timed_out; /* the link was told */
    unsigned count;
    struct limit_op *ops[BATCH_REQUESTS_MAX];
};

/* The arguments of the batch being made; reused. */
struct arguments {
    int count;
    const char **bytes;
    size_t *sizes;
    struct text numbers; /* decimal digits that the arguments point into */
    struct hash_key hash;
    struct slice keys[BATCH_KEYS_MAX];
    unsigned key_count;
    uint16_t slots[KEY_SLOTS]; /* by hash: key index from 1, 0: free */
};

struct limiter {
    uint32_t magic;
    struct policy *policy;
    struct fallback *fallback;
    struct redis_link *link;
    struct deadlines deadlines;
    struct deadline_queue waiting; /* everything that somebody waits for; one length, so in order of time */
    struct event *resume;          /* makes the loop turn again when something was gathered during a flush */
    size_t op_keys_size;           /* the longest keys of one request together */
    struct op_list gathered, spare_ops;
    unsigned spare_op_count;
    SLIST_HEAD(batch_list, batch) spare_batches;
    struct denials *denials;
    struct limit_op *reserve; /* for decisions without Redis when there is no memory for an op */
    struct arguments arguments;
    struct limiter_stats *stats; /* the worker's, over all its limiters */
};

/* --- Ops and batches ---------------------------------------------------------------------------------- */

static struct limit_op *op_allocate(struct limiter *l)
{
    struct limit_op *op = malloc(sizeof *op + l->op_keys_size);
    if (!op)
        return NULL;
    MAGIC_SET(op, OP_MAGIC);
    op->limiter = l;
    op->deadline.queue = NULL;
    return op;
}

static struct limit_op *op_take(struct limiter *l)
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

static void op_release(struct limit_op *op)
{
    struct limiter *l = op->limiter;

    assert(!op->ask && !deadline_is_armed(&op->deadline));
    if (op == l->reserve)
        return;
    if (l->spare_op_count >= SPARE_OPS_MAX) {
        op_free(op);
        return;
    }
    TAILQ_INSERT_HEAD(&l->spare_ops, op, entry);
    l->spare_op_count++;
}

/* Cuts the op and whoever waits for it apart; both ends. */
static struct ask *op_cut(struct limit_op *op)
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
        part->numbers = terms && terms->numbers
                            ? terms->numbers[part->limit->index]
                            : (struct limit_numbers){part->limit->limit, part->limit->burst};
        part->full_cost = facts->cost ? facts->cost : rule->cost ? rule->cost : part->limit->cost;
        part->cost =
            part->limit->counted ? 0 : part->full_cost; /* 0: only a look, charged after the answer */
        part->shadow = !limit_enforces(part->limit, facts->identity);
        part->mode = part->limit->best_effort + (rule->limit_count > 1 && part->shadow ? MODE_SHADOW : 0);
        key_write(&keys, l->policy, part->limit, facts);
        part->key = (struct slice){op->keys + start, keys.n - start};
        part->repeat_key = SLICE_NONE;
        if (part->limit->dedup)
            fill_repeat(part, &keys, facts);
    }
    assert(!keys.failed); /* op_keys_size is the sum of key_size_max() */
    op->keys_size = keys.n;
    op->denial_key_known = op->settles = false;
}

/* --- Decisions ---------------------------------------------------------------------------------------- */

static void count_limit(struct limiter *l, const struct limit *limit, enum verdict verdict)
{
    counter_add(tally_row(&l->stats->by_limit, limit->row) + verdict, 1);
}

static struct limit_result result_of(const struct op_limit *part)
{
    const struct limit_numbers *n = &part->numbers;
    return (struct limit_result){.limit = part->limit,
                                 .verdict = VERDICT_ALLOWED,
                                 .shadow = part->shadow,
                                 .quota = n->limit,
                                 .capacity = part->limit->kind == LIMIT_WINDOW ? n->limit : n->burst};
}

static bool waits_longer(const struct limit_result *a, const struct limit_result *b)
{
    return b->retry_after_us >= 0 && (a->retry_after_us < 0 || a->retry_after_us > b->retry_after_us);
}

static enum verdict rejection_by(const struct limit_result *r)
{
    return r->shadow ? VERDICT_SHADOW : VERDICT_LIMITED;
}

/* From the results to the verdict of the request; counts them. */
static void conclude(struct limiter *l, struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->rejected_by = -1;
    d->jitter_us = 0;
    for (unsigned i = 0; i < d->result_count; i++) {
        count_limit(l, d->results[i].limit, d->results[i].verdict);
        if (d->results[i].verdict != VERDICT_LIMITED)
            continue;
        d->verdict = VERDICT_LIMITED;
        if (d->rejected_by < 0 || waits_longer(&d->results[i], &d->results[d->rejected_by]))
            d->rejected_by = (int)i;
    }
}

static void decide_from_answer(struct limiter *l, const struct limit_op *op, redisReply *const *values,
                               struct decision *d)
{
    d->result_count = op->count;
    for (unsigned i = 0; i < op->count; i++, values += ANSWERS_PER_LIMIT) {
        struct limit_result *r = &d->results[i];
        *r = result_of(&op->limits[i]);
        r->verdict = values[0]->integer > 0 ? VERDICT_ALLOWED : rejection_by(r);
        r->remaining = values[1]->integer > 0 ? values[1]->integer : 0;
        r->retry_after_us = r->verdict == VERDICT_ALLOWED ? 0 : values[2]->integer;
        r->reset_us = values[3]->integer > 0 ? values[3]->integer : 0;
    }
    conclude(l, d);
}

static bool refuse_if_any_denies(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    bool denied = false;

    for (unsigned i = 0; i < op->count; i++)
        if (op->limits[i].limit->on_failure == ON_FAILURE_DENY && !op->limits[i].shadow) {
            count_limit(l, op->limits[i].limit, VERDICT_FAILED_CLOSED);
            denied = true;
        }
    if (denied)
        *d = (struct decision){.verdict = VERDICT_FAILED_CLOSED, .rejected_by = -1};
    return denied;
}

/* What answers are charged is not known here: such a limit lets through. */
static bool is_local(const struct op_limit *part)
{
    return part->limit->on_failure == ON_FAILURE_LOCAL && !part->limit->counted;
}

/* Shadow limits of a request that is admitted: each by itself, since none of them rejects. */
static void ask_shadows_locally(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        struct limit_result *r = &d->results[d->result_count];
        if (!part->shadow)
            continue;
        if (!is_local(part)) {
            count_limit(l, part->limit, VERDICT_FAILED_OPEN);
            continue;
        }
        *r = result_of(part);
        if (!fallback_decide(l->fallback, &(struct fallback_ask){part->key, part->cost, r}, 1,
                             clock_wall_us()))
            r->verdict = VERDICT_SHADOW;
        d->result_count++;
    }
}

/* Redis does not answer: each limit follows its own on_failure. */
static void decide_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                                 struct decision *d)
{
    struct fallback_ask asks[LIMITS_PER_RULE_MAX];
    bool admitted = true;
    unsigned local = 0;

    counter_add(&l->stats->redis_failures[cause], 1);
    if (refuse_if_any_denies(l, op, d))
        return;
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        if (part->shadow)
            continue;
        if (!is_local(part)) {
            count_limit(l, part->limit, VERDICT_FAILED_OPEN);
            continue;
        }
        d->results[local] = result_of(part);
        asks[local] = (struct fallback_ask){part->key, part->cost, &d->results[local]};
        local++;
    }
    d->result_count = local;
    if (local)
        admitted = fallback_decide(l->fallback, asks, local, clock_wall_us());
    if (admitted)
        ask_shadows_locally(l, op, d);
    conclude(l, d);
    if (d->result_count == 0)
        d->verdict = VERDICT_FAILED_OPEN;
}

/* Where shadow limits alone prohibit a client, it is let through. */
static void decide_by_shadows(const struct rule *rule, struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->rejected_by = -1;
    d->result_count = rule->limit_count;
    for (unsigned i = 0; i < rule->limit_count; i++)
        d->results[i] = (struct limit_result){
            .limit = rule->limits[i], .verdict = VERDICT_SHADOW, .shadow = true, .retry_after_us = -1};
}

/* Prohibited and unlimited clients: one limit stands for all in the answer's fields, the first that may be
 * there. */
static void decide_by_terms(struct limiter *l, const struct limit_facts *facts, bool prohibited,
                            struct decision *d)
{
    enum verdict verdict = prohibited ? VERDICT_PROHIBITED : VERDICT_UNLIMITED;
    const struct limit *first = NULL;

    for (unsigned i = 0; i < facts->rule->limit_count; i++) {
        const struct limit *limit = facts->rule->limits[i];
        bool shadow = !limit_enforces(limit, facts->identity);
        count_limit(l, limit, prohibited && shadow ? VERDICT_SHADOW : verdict);
        if (!shadow && (!first || (!first->headers && limit->headers)))
            first = limit;
    }
    if (!first && prohibited) {
        decide_by_shadows(facts->rule, d);
        return;
    }
    d->verdict = verdict;
    d->result_count = first ? 1 : 0;
    d->rejected_by = prohibited ? 0 : -1;
    d->results[0] = (struct limit_result){.limit = first,
                                          .verdict = verdict,
                                          .quota = prohibited ? 0 : -1,
                                          .retry_after_us = prohibited ? -1 : 0};
}

static void decide_nothing(struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->result_count = 0;
    d->rejected_by = -1;
}

/* Ends the wait for this op by on_failure. The asker's object may be gone afterwards; the op is not. */
static void op_fail(struct limit_op *op, enum redis_failure cause)
{
    struct ask *ask = op_cut(op);
    if (!ask)
        return;
    decide_without_redis(op->limiter, op, cause, &ask->decision);
    ask->decided(ask);
}

/* --- Local knowledge: denials that still hold --------------------------------------------------------- */

static struct denial_key denial_key_of(struct limit_op *op)
{
    int64_t numbers[LIMITS_PER_RULE_MAX * 5];
    size_t n = 0;

    if (op->denial_key_known)
        return op->denial_key;
    for (unsigned i = 0; i < op->count; i++) {
        numbers[n++] = op->limits[i].limit->index;
        numbers[n++] = op->limits[i].shadow; /* for this client: others may share the key */
        numbers[n++] = op->limits[i].cost;
        numbers[n++] = op->limits[i].numbers.limit;
        numbers[n++] = op->limits[i].numbers.burst;
    }
    op->denial_key = denials_key(op->limiter->denials, (struct slice){op->keys, op->keys_size},
                                 (struct slice){(const char *)numbers, n * sizeof numbers[0]});
    op->denial_key_known = true;
    return op->denial_key;
}

static int64_t time_left(int64_t us, uint64_t elapsed_us)
{
    return us < 0 ? us : us > (int64_t)elapsed_us ? us - (int64_t)elapsed_us : 0;
}

static bool decide_from_denial(struct limiter *l, struct limit_op *op, uint64_t now_us, struct decision *d)
{
    const struct denial *denial;

    if (op->count > DENIAL_LIMITS_MAX || !denials_any(l->denials, now_us) ||
        !(denial = denials_find(l->denials, denial_key_of(op), now_us)))
        return false;
    uint64_t elapsed = now_us - denial->asked_us;
    d->result_count = op->count;
    for (unsigned i = 0; i < op->count; i++) {
        const struct denial_limit *then = &denial->limits[i];
        struct limit_result *r = &d->results[i];
        *r = result_of(&op->limits[i]);
        r->remaining = then->remaining;
        r->retry_after_us = time_left(then->retry_after_us, elapsed);
        r->verdict = then->limited || r->retry_after_us ? rejection_by(r) : VERDICT_ALLOWED;
        r->reset_us = time_left(then->reset_us, elapsed);
    }
    conclude(l, d);
    counter_add(&l->stats->remembered_denials, 1);
    return true;
}

static void remember_denial(struct limiter *l, struct limit_op *op, const struct decision *d)
{
    struct denial denial = {.asked_us = op->started_us, .count = op->count};

    if (d->verdict != VERDICT_LIMITED || op->count > DENIAL_LIMITS_MAX)
        return;
    denial.key = denial_key_of(op);
    for (unsigned i = 0; i < op->count; i++) {
        const struct limit_result *r = &d->results[i];
        denial.limits[i] = (struct denial_limit){r->verdict == VERDICT_LIMITED, r->remaining,
                                                 r->retry_after_us, r->reset_us};
    }
    denials_remember(l->denials, &denial);
}

/* ------------------------------------------------------------------------------------------------------ */

enum decided limiter_decide(struct limiter *l, const struct limit_facts *facts, struct ask *ask)
{
    const struct rule *rule = facts->rule;
    const struct client_terms *terms;
    struct limit_op *op;

    ask->op = ask->receipt = NULL;
    if (rule->limit_count == 0) {
        decide_nothing(&ask->decision);
        return DECIDED_NOW;
    }
    terms = policy_client(l->policy, facts->identity);
    if (terms && terms->quota != QUOTA_AS_WRITTEN) {
        decide_by_terms(l, facts, terms->quota == QUOTA_PROHIBITED, &ask->decision);
        return DECIDED_NOW;
    }
    bool ready = redis_link_is_ready(l->link);
    op = ready ? op_take(l) : l->reserve;
    op = op ? op : l->reserve;
    assert(op); /* the reserve is always there */
    op_fill(op, facts, terms);
    if (op == l->reserve) {
        decide_without_redis(l, op, ready ? REDIS_FAILURE_BUSY : REDIS_FAILURE_DOWN, &ask->decision);
        return DECIDED_NOW;
    }
    op->started_us = clock_us();
    if (decide_from_denial(l, op, op->started_us, &ask->decision)) {
        op_release(op);
        return DECIDED_NOW;
    }
    op->ask = ask;
    ask->op = op;
    deadline_arm(&l->waiting, &op->deadline, op->started_us, l->policy->redis.timeout_us);
    TAILQ_INSERT_TAIL(&l->gathered, op, entry);
    return DECIDED_LATER;
}

void limiter_abandon(struct ask *ask)
{
    if (ask->op) {
        MAGIC_CHECK(ask->op, OP_MAGIC);
        op_cut(ask->op);
    }
}

/* --- The deadline ------------------------------------------------------------------------------------- */

static void on_deadline(struct deadline *deadline)
{
    struct limit_op *op = CONTAINER_OF(deadline, struct limit_op, deadline);
    struct limiter *l = op->limiter;
    bool tell = op->batch && !op->batch->timed_out;

    MAGIC_CHECK(op, OP_MAGIC);
    if (tell)
        op->batch->timed_out = true;
    op_fail(op, REDIS_FAILURE_TIMEOUT); /* an op not sent yet stays gathered; the next flush drops it */
    if (tell)
        redis_link_note_timeout(l->link);
}

/* --- Answers ------------------------------------------------------------------------------------------ */

static bool answer_has_shape(const redisReply *reply, const struct batch *batch)
{
    size_t expected = 0;

    for (unsigned i = 0; i < batch->count; i++)
        expected += batch->ops[i]->count * ANSWERS_PER_LIMIT;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != expected)
        return false;
    for (size_t i = 0; i < expected; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER)
            return false;
    return true;
}

/* What a settlement has to know of the charge. */
static void write_receipt(struct limit_op *op, redisReply *const *values)
{
    for (unsigned i = 0; i < op->count; i++, values += ANSWERS_PER_LIMIT) {
        struct op_limit *part = &op->limits[i];
        int64_t reset_us = values[3]->integer;
        bool repeat = part->repeat_key.n && values[2]->integer == 1;
        part->granted = values[0]->integer > 0 && !repeat;
        part->charged = part->cost && !repeat ? values[0]->integer : 0;
        /* In its second period a unit of this limiter weighs less than it would be given back. */
        bool weighs = strcmp(part->limit->script, "sliding_window_counter") == 0;
        part->counts_us = weighs ? reset_us - part->limit->period_us : reset_us;
    }
}

static void op_answer(struct limit_op *op, redisReply *const *values, uint64_t now_us)
{
    struct limiter *l = op->limiter;
    struct ask *ask = op_cut(op);
    bool kept = false;

    if (!op->settles)
        histogram_add(&l->stats->redis_latency, now_us - op->started_us);
    if (ask) {
        decide_from_answer(l, op, values, &ask->decision);
        remember_denial(l, op, &ask->decision);
        kept = ask->wants_receipt && ask->decision.verdict == VERDICT_ALLOWED;
        if (kept) {
            write_receipt(op, values);
            ask->receipt = op;
        }
    }
    if (!kept)
        op_release(op);
    if (ask)
        ask->decided(ask);
}

/* Settles every op of the batch. decided() may abandon others of them, or ask anew; the batch stays whole. */
static void batch_settle(struct batch *batch, const redisReply *reply, enum redis_failure failure)
{
    struct limiter *l = batch->limiter;
    redisReply *const *values = reply ? reply->element : NULL;
    uint64_t now_us = clock_us();

    for (unsigned i = 0; i < batch->count; i++) {
        struct limit_op *op = batch->ops[i];
        if (reply) {
            redisReply *const *own = values;
            values += op->count * ANSWERS_PER_LIMIT;
            op_answer(op, own, now_us); /* the op is the receipt's or free from here on */
        } else {
            op_fail(op, failure);
            op_release(op);
        }
    }
    SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
}

static void on_answer(struct redis_call *call, const redisReply *reply, enum redis_failure failure)
{
    struct batch *batch = CONTAINER_OF(call, struct batch, call);

    MAGIC_CHECK(batch->limiter, LIMITER_MAGIC);
    if (reply && !answer_has_shape(reply, batch))
        reply = NULL, failure = REDIS_FAILURE_REPLY;
    batch_settle(batch, reply, failure);
}

/* --- Settlements -------------------------------------------------------------------------------------- */

/* May so much be given back? A charge that no longer counts would be taken from others' charges. */
static bool can_give_back(const struct limit_op *op, const struct op_limit *part, uint64_t now_us)
{
    int64_t elapsed_us = (int64_t)(now_us - op->started_us); /* from before the charge */
    return elapsed_us + (int64_t)op->limiter->policy->redis.timeout_us < part->counts_us;
}

/* Leaves in the op what there is to do, with the difference as the cost. */
static void keep_differences(struct limit_op *op, const int64_t *totals)
{
    uint64_t now_us = clock_us();
    unsigned left = 0;

    for (unsigned i = 0; i < op->count; i++) {
        struct op_limit *part = &op->limits[i];
        int64_t difference = totals[i] - part->charged;
        if (difference == 0 || (difference < 0 && !can_give_back(op, part, now_us)))
            continue;
        part->cost = difference;
        part->repeat_key = SLICE_NONE;
        part->mode = difference > 0 ? MODE_DEBT : MODE_PLAIN;
        op->limits[left++] = *part;
    }
    op->count = left;
    for (unsigned i = 0; i < left && left > 1; i++)
        op->limits[i].mode += MODE_SHADOW; /* each by itself */
}

/* Brings what was charged to these totals, by limit. */
static void settle_to(struct ask *ask, const int64_t *totals)
{
    struct limit_op *op = ask->receipt;
    struct limiter *l = op->limiter;

    MAGIC_CHECK(op, OP_MAGIC);
    ask->receipt = NULL;
    keep_differences(op, totals);
    if (op->count == 0 || !redis_link_is_ready(l->link)) {
        op_release(op);
        return;
    }
    op->settles = true;
    op->batch = NULL;
    TAILQ_INSERT_TAIL(&l->gathered, op, entry);
}

void limiter_refund(struct ask *ask)
{
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    if (!ask->receipt)
        return;
    for (unsigned i = 0; i < ask->receipt->count; i++)
        if (ask->receipt->limits[i].repeat_key.n) /* the client's next try will be free */
            totals[i] = ask->receipt->limits[i].charged;
    settle_to(ask, totals);
}

/* What a limit comes to now that the answer is known. One that would have rejected charges nothing. */
static int64_t total_of(const struct op_limit *part, unsigned status, int64_t cost)
{
    if (!part->granted)
        return part->charged;
    if (!part->limit->counted)
        return cost >= 0 ? cost : part->charged;
    if (!limit_counts(part->limit, status))
        return 0;
    return cost >= 0 ? cost : part->full_cost;
}

void limiter_settle(struct ask *ask, unsigned status, int64_t cost)
{
    int64_t totals[LIMITS_PER_RULE_MAX];

    if (!ask->receipt)
        return;
    for (unsigned i = 0; i < ask->receipt->count; i++)
        totals[i] = total_of(&ask->receipt->limits[i], status, cost);
    settle_to(ask, totals);
}

void limiter_forget(struct ask *ask)
{
    if (ask->receipt)
        op_release(ask->receipt);
    ask->receipt = NULL;
}

/* --- Sending ------------------------------------------------------------------------------------------ */

static void argue(struct arguments *a, const char *bytes, size_t size)
{
    a->bytes[a->count] = bytes;
    a->sizes[a->count++] = size;
}

static void argue_number(struct arguments *a, int64_t value)
{
    size_t start = a->numbers.n;
    text_i64(&a->numbers, value);
    argue(a, a->numbers.p + start, a->numbers.n - start);
}

/* The place of a key among the distinct keys of the batch, from 1. */
static unsigned key_index(struct arguments *a, struct slice key)
{
    size_t slot = hash_slice(&a->hash, key) % KEY_SLOTS;

    for (; a->slots[slot]; slot = (slot + 1) % KEY_SLOTS)
        if (slice_equal(a->keys[a->slots[slot] - 1], key))
            return a->slots[slot];
    a->keys[a->key_count++] = key;
    a->slots[slot] = (uint16_t)a->key_count;
    return a->key_count;
}

static void argue_keys(struct arguments *a, const struct batch *batch)
{
    a->key_count = 0;
    memset(a->slots, 0, sizeof a->slots);
    for (unsigned i = 0; i < batch->count; i++)
        for (unsigned j = 0; j < batch->ops[i]->count; j++) {
            struct op_limit *part = &batch->ops[i]->limits[j];
            part->key_index = key_index(a, part->key);
            part->repeat_index = part->repeat_key.n ? key_index(a, part->repeat_key) : 0;
        }
    argue_number(a, a->key_count);
    for (unsigned i = 0; i < a->key_count; i++)
        argue(a, a->keys[i].p, a->keys[i].n);
}

static void argue_request(struct arguments *a, const struct limit_op *op)
{
    argue_number(a, op->count);
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        argue_number(a, part->limit->index + 1);
        argue_number(a, part->key_index);
        argue_number(a, part->cost);
        argue_number(a, part->mode + MODE_REPEAT * part->repeat_index);
        argue_number(a, part->numbers.limit);
        argue_number(a, part->numbers.burst);
    }
}

/* The driver's protocol, see lua/driver.lua. */
static void argue_batch(struct arguments *a, const struct batch *batch)
{
    a->count = 0;
    a->numbers.n = 0;
    argue_keys(a, batch);
    argue(a, "", 0); /* now: the clock of Redis */
    for (unsigned i = 0; i < batch->count; i++)
        argue_request(a, batch->ops[i]);
    assert(!a->numbers.failed);
}

static void batch_send(struct limiter *l, struct batch *batch)
{
    struct arguments *a = &l->arguments;

    argue_batch(a, batch);
    batch->call = (struct redis_call){.done = on_answer};
    if (redis_link_call(l->link, &batch->call, a->count, a->bytes, a->sizes)) {
        counter_add(&l->stats->redis_calls, 1);
        counter_add(&l->stats->redis_requests, batch->count);
    } else
        batch_settle(batch, NULL, redis_link_is_ready(l->link) ? REDIS_FAILURE_BUSY : REDIS_FAILURE_DOWN);
}

/* Moves ops that somebody still waits for from the list into a batch; drops the others. */
static void batch_fill(struct batch *batch, struct op_list *list)
{
    struct limit_op *op;
    unsigned keys = 0;

    while (batch->count < BATCH_REQUESTS_MAX && (op = TAILQ_FIRST(list)) &&
           (keys += op_key_count(op)) <= BATCH_KEYS_MAX) {
        TAILQ_REMOVE(list, op, entry);
        if (!op->ask && !op->settles) {
            op_release(op);
            continue;
        }
        op->batch = batch;
        batch->ops[batch->count++] = op;
    }
}

static void fail_first(struct op_list *list)
{
    struct limit_op *op = TAILQ_FIRST(list);
    TAILQ_REMOVE(list, op, entry);
    op_fail(op, REDIS_FAILURE_BUSY);
    op_release(op);
}

void limiter_flush(struct limiter *l)
{
    struct op_list turn = TAILQ_HEAD_INITIALIZER(turn);
    struct batch *batch;

    TAILQ_CONCAT(&turn, &l->gathered, entry);
    while (!TAILQ_EMPTY(&turn)) {
        if (!(batch = batch_take(l))) {
            fail_first(&turn);
            continue;
        }
        batch_fill(batch, &turn);
        if (batch->count)
            batch_send(l, batch);
        else
            SLIST_INSERT_HEAD(&l->spare_batches, batch, spare);
    }
    redis_link_flush(l->link);
    if (!TAILQ_EMPTY(&l->gathered))
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

static void arguments_init(struct arguments *a)
{
    size_t numbers = 1 + (size_t)BATCH_REQUESTS_MAX * (1 + ARGUMENTS_PER_LIMIT * LIMITS_PER_RULE_MAX);
    size_t all = 1 + BATCH_KEYS_MAX + numbers;

    a->bytes = xcalloc(all, sizeof *a->bytes);
    a->sizes = xcalloc(all, sizeof *a->sizes);
    a->numbers = text_over(xmalloc(numbers * NUMBER_SIZE), numbers * NUMBER_SIZE);
    a->hash = hash_key_random();
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
    TAILQ_INIT(&l->spare_ops);
    SLIST_INIT(&l->spare_batches);
    l->op_keys_size = longest_keys(policy);
    l->denials = denials_new();
    l->reserve = op_allocate(l);
    l->resume = event_new(base, -1, 0, on_resume, l);
    arguments_init(&l->arguments);
    if (!l->reserve || !l->resume || deadlines_init(&l->deadlines, base) != 0) {
        limiter_free(l);
        return NULL;
    }
    deadline_queue_init(&l->deadlines, &l->waiting, on_deadline);
    l->link = redis_link_new(base, &policy->redis, script, NULL);
    return l;
}

static void drop_gathered(struct limiter *l)
{
    struct limit_op *op;

    while ((op = TAILQ_FIRST(&l->gathered))) {
        TAILQ_REMOVE(&l->gathered, op, entry);
        op_fail(op, REDIS_FAILURE_DOWN);
        op_release(op);
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
    redis_link_free(l->link);
    free_spares(l);
    if (l->deadlines.timer)
        deadlines_clear(&l->deadlines);
    if (l->resume)
        event_free(l->resume);
    free(l->reserve);
    denials_free(l->denials);
    free(l->arguments.bytes);
    free(l->arguments.sizes);
    free(l->arguments.numbers.p);
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
    return l->link && redis_link_is_ready(l->link);
}
