/* split.c - one request whose limits are kept in several slots of a cluster, where no call can charge them together.
 *
 *   whole (what the caller waits for)
 *     leg, leg, leg: the limits of one slot each, in the order of the rule; an op of its own, asked for in turn
 *
 *   charged -> the next leg -> ... -> all charged: admitted
 *   rejected, or on_failure rejects -> what earlier legs were charged is given back: rejected
 *
 * So a request is admitted only when every limit has charged it, and never above one of them. For as long as a later
 * leg takes to reject, an earlier one holds what it will give back: others may be rejected for it meanwhile.
 *
 * The decision grows in the asker's `decision`, leg by leg; limits that were never asked do not stand in it. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/magic.h"
#include "limit/limiter_internal.h"

enum leg_state { LEG_COMING, LEG_ASKED, LEG_CHARGED, LEG_REJECTED, LEG_FAILED };

struct leg {
    struct limit_op *op; /* COMING, ASKED, CHARGED; else NULL */
    enum leg_state state;
    bool waits;                          /* CHARGED: by a queue in which its request is to be held */
    unsigned first_result, result_count; /* CHARGED: in the decision */
};

struct split {
    unsigned count;
    bool each; /* a leg for each limit */
    struct leg legs[LIMITS_PER_RULE_MAX];
};

/* --- Legs ----------------------------------------------------------------------------------------------- */

bool op_find_slots(struct limit_op *op)
{
    bool several = false;

    for (unsigned i = 0; i < op->count; i++) {
        op->limits[i].slot = (uint16_t)redis_store_slot(op->limiter->store, op->limits[i].key);
        several |= op->limits[i].slot != op->limits[0].slot;
    }
    return several;
}

static struct slice moved(struct slice key, const struct limit_op *from, struct limit_op *to)
{
    return key.n ? (struct slice){to->keys + (key.p - from->keys), key.n} : key;
}

/* What the leg uses of permits is the leg's. */
static void add_limit(struct limit_op *leg, struct limit_op *whole, const struct op_limit *limit)
{
    struct op_limit *part = &leg->limits[leg->count++];

    *part = *limit;
    part->key = moved(limit->key, whole, leg);
    part->repeat_key = moved(limit->repeat_key, whole, leg);
    for (unsigned i = 0; i < whole->permit_count; i++)
        if (whole->permits[i] == part->permit) {
            leg->permits[leg->permit_count++] = part->permit;
            whole->permits[i] = whole->permits[--whole->permit_count];
            break;
        }
}

static struct limit_op *leg_make(struct limit_op *whole)
{
    struct limit_op *leg = op_take(whole->limiter);

    if (!leg)
        return NULL;
    op_copy(leg, whole);
    leg->whole = whole;
    leg->counts_later = true;
    return leg;
}

/* The leg to which the limit belongs, or NULL. */
static struct limit_op *leg_of(const struct split *split, const struct op_limit *limit)
{
    for (unsigned i = 0; i < split->count && !split->each; i++)
        if (split->legs[i].op->limits[0].slot == limit->slot)
            return split->legs[i].op;
    return NULL;
}

static bool make_legs(struct limit_op *whole)
{
    struct split *split = whole->split;

    for (unsigned i = 0; i < whole->count; i++) {
        struct limit_op *leg = leg_of(split, &whole->limits[i]);
        if (!leg) {
            if (!(leg = leg_make(whole)))
                return false;
            split->legs[split->count++] = (struct leg){.op = leg, .state = LEG_COMING};
        }
        add_limit(leg, whole, &whole->limits[i]);
    }
    for (unsigned i = 0; i < split->count; i++)
        if (split->legs[i].op->count == 1) /* as for a rule with one limit */
            split->legs[i].op->limits[0].mode &= ~(unsigned)MODE_SHADOW;
    return split->count > 0;
}

/* What the legs made so far took over. */
static void take_permits_back(struct limit_op *whole)
{
    struct split *split = whole->split;

    for (unsigned i = 0; i < split->count; i++) {
        struct limit_op *leg = split->legs[i].op;
        while (leg->permit_count > 0)
            whole->permits[whole->permit_count++] = leg->permits[--leg->permit_count];
    }
}

static struct leg *find(const struct limit_op *op)
{
    struct split *split = op->whole->split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->legs[i].op == op)
            return &split->legs[i];
    abort(); /* a leg points at its whole for as long as that has it */
}

/* The limiter may do with it what it likes. */
static struct limit_op *let_go(struct leg *leg, enum leg_state state)
{
    struct limit_op *op = leg->op;

    leg->op = NULL;
    leg->state = state;
    op->whole = NULL;
    return op;
}

void split_drop(struct limit_op *op)
{
    struct split *split = op->split;

    op->alone = false;
    op->split = NULL;
    if (!split)
        return;
    for (unsigned i = 0; i < split->count; i++) {
        struct leg *leg = &split->legs[i];
        bool asked = leg->state == LEG_ASKED;
        if (!leg->op)
            continue;
        leg->op->abandoned = op->abandoned;
        if (asked)
            (void)let_go(leg, LEG_FAILED); /* its batch, or what gathers, has it */
        else
            op_release(let_go(leg, LEG_FAILED));
    }
    free(split);
}

/* --- The decision, leg by leg --------------------------------------------------------------------------- */

static void append(struct decision *d, const struct decision *more)
{
    unsigned before = d->result_count;

    for (unsigned i = 0; i < more->result_count && d->result_count < LIMITS_PER_RULE_MAX; i++)
        d->results[d->result_count++] = more->results[i];
    if (more->rejected_by >= 0)
        d->rejected_by = (int)before + more->rejected_by;
    if (more->delay_us > d->delay_us)
        d->delay_us = more->delay_us;
    if (!decision_admits(more) || more->verdict == VERDICT_ALLOWED)
        d->verdict = more->verdict;
}

/* As long as no leg says more. */
static void begin_decision(struct decision *d)
{
    *d = (struct decision){.verdict = VERDICT_FAILED_OPEN, .rejected_by = -1};
}

/* These limits follow their on_failure. */
static void decide_without_redis(struct limit_op *whole, struct limit_op *leg, enum redis_failure cause)
{
    struct ask *ask = whole->ask;
    struct decision d = {.delay_us = 0};

    verdict_without_redis(leg->limiter, leg, cause, &d);
    append(&ask->decision, &d);
    op_permits_locally(leg, ask);
}

/* --- The end -------------------------------------------------------------------------------------------- */

/* The numbers of a limit that gave the charge back are those without it. */
static void take_back(struct decision *d, const struct leg *leg)
{
    for (unsigned i = 0; i < leg->result_count; i++) {
        struct limit_result *r = &d->results[leg->first_result + i];
        for (unsigned k = 0; k < leg->op->count; k++)
            if (leg->op->limits[k].limit == r->limit && !leg->op->limits[k].repeat_key.n)
                r->remaining += leg->op->limits[k].charged;
        if (r->remaining > r->capacity)
            r->remaining = r->capacity;
    }
}

/* What was charged under a name stays: the client's next try under it is free. */
static void give_back(struct limit_op *leg)
{
    int64_t totals[LIMITS_PER_RULE_MAX] = {0};

    for (unsigned i = 0; i < leg->count; i++)
        if (leg->limits[i].repeat_key.n)
            totals[i] = leg->limits[i].charged;
    op_settle(leg, totals);
}

static bool is_by_redis(const struct split *split)
{
    bool all = true;

    for (unsigned i = 0; i < split->count; i++)
        all &= split->legs[i].state != LEG_FAILED;
    return all;
}

/* Whoever waits hears of it. */
static void conclude(struct limit_op *whole)
{
    struct split *split = whole->split;
    struct decision *d = &whole->ask->decision;
    bool admitted = decision_admits(d), by_redis = is_by_redis(split);

    for (unsigned i = 0; i < split->count && !admitted; i++)
        if (split->legs[i].state == LEG_CHARGED) {
            take_back(d, &split->legs[i]);
            give_back(let_go(&split->legs[i], LEG_REJECTED));
        }
    if (!admitted)
        permits_leave(whole->ask);
    verdict_count(whole->limiter, d);
    if (by_redis) {
        verdict_remember(whole->limiter, whole, d);
        histogram_add(&whole->limiter->stats->redis_latency, clock_us() - whole->started_us);
    }
    struct ask *ask = op_cut(whole);
    if (admitted && ask->wants_receipt && d->verdict == VERDICT_ALLOWED)
        ask->receipt = whole;
    else
        op_release(whole);
    ask->decided(ask);
}

/* --- From leg to leg ------------------------------------------------------------------------------------ */

/* The next leg leaves; where there is none the request is admitted. */
static void go_on(struct limit_op *whole)
{
    struct limiter *l = whole->limiter;
    struct split *split = whole->split;

    for (unsigned i = 0; i < split->count; i++) {
        struct leg *leg = &split->legs[i];
        if (leg->state != LEG_COMING)
            continue;
        if (redis_store_is_ready(l->store)) {
            leg->state = LEG_ASKED;
            leg->op->alone |= split->each;
            op_gather(leg->op);
            return;
        }
        decide_without_redis(whole, leg->op, REDIS_FAILURE_DOWN);
        op_release(let_go(leg, LEG_FAILED));
        if (!decision_admits(&whole->ask->decision))
            break;
    }
    conclude(whole);
}

bool split_begin(struct limit_op *op, bool each)
{
    struct split *split = calloc(1, sizeof *split);

    if (!split)
        return false;
    op->split = split;
    op->batch = NULL;
    split->each = each;
    if (!make_legs(op)) {
        take_permits_back(op);
        split_drop(op);
        return false;
    }
    begin_decision(&op->ask->decision);
    split->legs[0].state = LEG_ASKED;
    split->legs[0].op->alone = each;
    op_gather(split->legs[0].op);
    return true;
}

/* For each limit of the leg. False: no memory, and there are none. */
static bool make_parts(const struct limit_op *op, struct limit_op **parts)
{
    for (unsigned i = 0; i < op->count; i++)
        if (!(parts[i] = leg_make(op->whole))) {
            while (i > 0) {
                parts[--i]->whole = NULL;
                op_release(parts[i]);
            }
            return false;
        }
    return true;
}

bool split_apart(struct limit_op *op)
{
    struct limit_op *whole = op->whole, *parts[LIMITS_PER_RULE_MAX];
    struct split *split = whole->split;
    unsigned at = (unsigned)(find(op) - split->legs), count = op->count;

    if (!make_parts(op, parts))
        return false;
    memmove(&split->legs[at + count], &split->legs[at + 1], (split->count - at - 1) * sizeof split->legs[0]);
    split->count += count - 1; /* no more than there are limits */
    for (unsigned i = 0; i < count; i++) {
        add_limit(parts[i], op, &op->limits[i]);
        parts[i]->limits[0].mode &= ~(unsigned)MODE_SHADOW;
        parts[i]->alone = true;
        split->legs[at + i] = (struct leg){.op = parts[i], .state = LEG_COMING};
    }
    op->whole = NULL;
    op_release(op);
    go_on(whole);
    return true;
}

/* Limits whose own script failed are decided without Redis, and the others of the leg asked for anew. */
static bool set_failures_aside(struct limit_op *leg, redisReply *const *values)
{
    unsigned failed = failures_sort(leg, values), rest = leg->count - failed;
    struct limit_op *whole = leg->whole;

    if (failed == 0)
        return false;
    whole->part = true;
    leg->count = failed;
    decide_without_redis(whole, leg, REDIS_FAILURE_SCRIPT);
    leg->count = rest;
    if (rest && decision_admits(&whole->ask->decision)) {
        memmove(leg->limits, leg->limits + failed, rest * sizeof leg->limits[0]);
        if (rest == 1)
            leg->limits[0].mode &= ~(unsigned)MODE_SHADOW;
        op_gather(leg);
        return true;
    }
    op_release(let_go(find(leg), LEG_FAILED));
    if (decision_admits(&whole->ask->decision))
        go_on(whole);
    else
        conclude(whole);
    return true;
}

void split_answer(struct limit_op *op, redisReply *const *values, int64_t time_us)
{
    struct limit_op *whole = op->whole;
    struct leg *leg = find(op);
    struct decision d = {.delay_us = 0};

    MAGIC_CHECK(whole, OP_MAGIC);
    if (set_failures_aside(op, values))
        return;
    op_permits_charged(op, whole->ask, values);
    op_write_receipt(op, values, time_us);
    verdict_from_answer(op->limiter, op, values, &d);
    leg->first_result = whole->ask->decision.result_count;
    append(&whole->ask->decision, &d);
    leg->result_count = whole->ask->decision.result_count - leg->first_result;
    if (decision_admits(&d)) {
        leg->state = LEG_CHARGED;
        leg->waits = d.delay_us > 0;
        go_on(whole);
        return;
    }
    op_release(let_go(leg, LEG_REJECTED));
    conclude(whole);
}

void split_failed(struct limit_op *op, enum redis_failure cause)
{
    struct limit_op *whole = op->whole;

    MAGIC_CHECK(whole, OP_MAGIC);
    decide_without_redis(whole, op, cause);
    op_release(let_go(find(op), LEG_FAILED));
    if (decision_admits(&whole->ask->decision))
        go_on(whole);
    else
        conclude(whole);
}

/* --- Where nobody waits any more ------------------------------------------------------------------------ */

struct batch *split_batch(const struct limit_op *op)
{
    const struct split *split = op->split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->legs[i].state == LEG_ASKED)
            return split->legs[i].op->batch;
    return NULL;
}

void split_timeout(struct limit_op *op)
{
    struct split *split = op->split;

    for (unsigned i = 0; i < split->count && decision_admits(&op->ask->decision); i++) {
        struct leg *leg = &split->legs[i];
        if (leg->state != LEG_ASKED && leg->state != LEG_COMING)
            continue;
        decide_without_redis(op, leg->op, REDIS_FAILURE_TIMEOUT);
        if (leg->state == LEG_ASKED)
            (void)let_go(leg, LEG_FAILED); /* the late answer finds nobody */
        else
            op_release(let_go(leg, LEG_FAILED));
    }
    conclude(op);
}

static void leave_queues(struct limit_op *leg)
{
    int64_t totals[LIMITS_PER_RULE_MAX];

    for (unsigned i = 0; i < leg->count; i++)
        totals[i] = leg->limits[i].limit->max_delay_us ? 0 : leg->limits[i].charged;
    op_settle(leg, totals);
}

void split_abandon(struct limit_op *op)
{
    struct split *split = op->split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->legs[i].state == LEG_CHARGED && split->legs[i].waits)
            leave_queues(let_go(&split->legs[i], LEG_FAILED));
    op_release(op); /* and its legs; what else was charged stays charged */
}

void split_settle(struct limit_op *op, void (*settle)(struct limit_op *leg, const void *facts),
                  const void *facts)
{
    struct split *split = op->split;

    for (unsigned i = 0; i < split->count; i++)
        if (split->legs[i].state == LEG_CHARGED)
            settle(let_go(&split->legs[i], LEG_FAILED), facts);
    op_release(op);
}
