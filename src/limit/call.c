/* call.c - decides a call of several descriptors, see call_decision.h. call_result.c makes the
 * result. */
#include <stdlib.h>

#include "base/clock.h"
#include "limit/begin.h"
#include "limit/call_decision.h"
#include "limit/key.h"
#include "limit/limiter_parts.h"
#include "limit/op_leases.h"
#include "limit/verdict.h"
#include "limit/wide.h"
#include "policy/shipped_limiter.h"

/* --- Memory ----------------------------------------------------------------------------------- */

void call_request_init(struct call_request *call, void (*decided)(struct call_request *call))
{
    call->decided = decided;
    call->op_count = call->pending = 0;
    call->wide_results = NULL;
    call->more = NULL;
}

/* False: no memory. */
static bool room_for_items(struct call_request *call, unsigned count)
{
    size_t items = count * sizeof *call->items, results = count * sizeof *call->results,
           ops = count * sizeof *call->ops, metadata = count * sizeof *call->metadata;
    char *more;

    call->items = call->few.items;
    call->results = call->few.results;
    call->ops = call->few.ops;
    call->metadata = call->few.metadata;
    if (count <= CALL_FEW)
        return true;
    if (!(call->more = more = malloc(items + results + ops + metadata)))
        return false;
    call->items = (struct call_item *)more;
    call->results = (struct descriptor_result *)(more + items);
    call->ops = (struct call_op *)(more + items + results);
    call->metadata = (const struct metadata **)(more + items + results + ops);
    return true;
}

void call_request_end(struct call_request *call)
{
    for (unsigned i = 0; i < call->op_count; i++) {
        limiter_abandon(&call->ops[i].request);
        limiter_keep_charge(&call->ops[i].request);
    }
    free(call->wide_results);
    free(call->more);
    call_request_init(call, call->decided);
}

/* --- Descriptors ------------------------------------------------------------------------------ */

static int64_t descriptor_cost(const struct rate_limit_call *message,
                               const struct call_descriptor *descriptor)
{
    uint64_t hits = descriptor->has_hits ? descriptor->hits : message->hits ? message->hits : 1;
    int64_t cost = hits > LIMIT_MAX ? LIMIT_MAX : (int64_t)hits;

    return descriptor->refunds ? -cost : cost;
}

/* An operator's grant replaces the numbers of all limits of the descriptor. A refund is never
 * rejected. */
static void apply_grant(struct limiter *l, struct call_item *item)
{
    struct grant grant;

    if (!grants_find_text(&l->grants, descriptor_name_text(&item->name), &grant))
        return;
    if (grant.quota == GRANT_UNLIMITED)
        item->kind = ITEM_UNLIMITED;
    else if (grant.quota > 0)
        item->number = grant.quota;
    else if (item->cost >= 0)
        item->kind = ITEM_PROHIBITED;
}

static unsigned applied_limits(const struct descriptor_match *match)
{
    unsigned count = 0;

    for (unsigned i = 0; i < descriptor_limit_count(match); i++)
        count += descriptor_limit(match, i) != NULL;
    return count;
}

static bool is_shadow(const struct call_item *item, const struct limit *limit)
{
    return !descriptor_enforces(&item->match, limit, descriptor_name_text(&item->name));
}

/* Counts the limits of a descriptor that a grant decides without them. If all of them are shadow
 * limits, it is admitted, as in verdict_by_client_limits(). */
static void count_granted(struct limiter *l, struct call_item *item)
{
    bool prohibited = item->kind == ITEM_PROHIBITED, enforced = false;

    for (unsigned i = 0; i < descriptor_limit_count(&item->match); i++) {
        const struct limit *limit = descriptor_limit(&item->match, i);
        if (!limit)
            continue;
        bool shadow = is_shadow(item, limit);
        verdict_count_result(l, &(struct limit_result){.limit = limit},
                             !prohibited ? VERDICT_UNLIMITED
                             : shadow    ? VERDICT_SHADOW
                                         : VERDICT_PROHIBITED);
        enforced |= !shadow;
    }
    if (prohibited && !enforced)
        item->kind = ITEM_FREE;
}

static void set_item(struct call_request *call, const struct rate_limit_call *message, unsigned i,
                     const struct descriptor_match *match)
{
    const struct call_descriptor *descriptor = &message->descriptors[i];
    struct call_item *item = &call->items[i];
    unsigned count = applied_limits(match);

    item->match = *match;
    item->kind = descriptor_is_unlimited(match) ? ITEM_UNLIMITED : count ? ITEM_COUNTED : ITEM_FREE;
    item->quota = item->kind != ITEM_FREE && match->entry && match->entry->quota;
    item->over = item->has_op = false;
    item->shown = NULL;
    item->cost = descriptor_cost(message, descriptor);
    item->number = match->stated ? (int64_t)descriptor->per_unit : -1;
    item->first = call->limit_count;
    item->count = item->op = 0;
    item->name.size = 0;
    if (item->kind != ITEM_COUNTED)
        return;
    descriptor_name_write(message->domain, descriptor, match, &item->name);
    apply_grant(call->limiter, item);
    if (item->kind == ITEM_COUNTED) {
        item->count = count;
        call->limit_count += count;
    } else
        count_granted(call->limiter, item);
}

static void match_all(struct call_request *call, const struct rate_limit_call *message)
{
    struct descriptor_match matches[DESCRIPTORS_MAX];

    for (unsigned i = 0; i < message->count; i++)
        descriptor_match(call->decision.domain, &message->descriptors[i], &matches[i]);
    descriptor_matches_replace(matches, message->count);
    for (unsigned i = 0; i < message->count; i++) {
        set_item(call, message, i, &matches[i]);
        call->has_quota |= call->items[i].quota;
    }
}

/* --- Ops -------------------------------------------------------------------------------------- */

static struct limit_numbers numbers_of(const struct call_item *item, const struct limit *limit)
{
    int64_t number = limit_bounded(limit, item->number);

    if (item->number < 0)
        return (struct limit_numbers){.limit = limit->limit, .burst = limit->burst};
    return (struct limit_numbers){.limit = number, .burst = number};
}

static int64_t bounded_cost(const struct limit *limit, int64_t cost)
{
    return cost < 0 ? -limit_bounded(limit, -cost) : limit_bounded(limit, cost);
}

/* The driver's mode. `several`: the op has several limits. */
static unsigned call_mode(const struct call_request *call, const struct op_limit *part,
                          bool several)
{
    if (call->charges_each && part->cost > 0)
        return MODE_EVERY;
    return (part->limit->best_effort && part->cost > 0 ? MODE_BEST_EFFORT : MODE_PLAIN) +
           (several && part->shadow ? MODE_SHADOW : 0);
}

/* Writes the limits of a descriptor and their keys. Returns the number of limits. */
static unsigned fill_item(const struct call_request *call, const struct call_item *item,
                          bool several, struct op_limit *to, struct text *keys)
{
    unsigned place = item->first;

    for (unsigned i = 0; i < descriptor_limit_count(&item->match); i++) {
        const struct limit *limit = descriptor_limit(&item->match, i);
        size_t start = keys->n;
        if (!limit)
            continue;
        *to = (struct op_limit){.limit = limit,
                                .numbers = numbers_of(item, limit),
                                .cost = bounded_cost(limit, item->cost),
                                .place = place,
                                .shadow = is_shadow(item, limit),
                                .free = item->cost < 0,
                                .repeat_key = SLICE_NONE};
        to->mode = call_mode(call, to, several);
        key_write_descriptor(keys, call->limiter->policy, limit, descriptor_name_text(&item->name));
        to->key = (struct slice){keys->p + start, keys->n - start};
        place++, to++;
    }
    return item->count;
}

static void on_op_decided(struct decision_request *decision_request);

/* Makes an op for the items from `first` to before `end`. */
static enum decided begin_op(struct call_request *call, unsigned first, unsigned end)
{
    struct call_op *own = &call->ops[call->op_count];
    struct limit_op *op = op_take_or_reserve(call->limiter);
    struct text keys = text_over(op->keys, call->limiter->ops->keys_size);
    unsigned limits = 0;

    own->call = call;
    own->request.op = own->request.charge = NULL;
    own->request.held_count = 0;
    own->request.decision.delay_us = 0;
    own->request.decision.priority = NULL;
    own->request.wants_charge = call->gives_back;
    own->request.decided = on_op_decided;
    op_clear(op);
    for (unsigned i = first; i < end; i++)
        limits += call->items[i].count;
    for (unsigned i = first; i < end; i++) {
        struct call_item *item = &call->items[i];
        item->op = call->op_count;
        item->has_op = item->kind == ITEM_COUNTED;
        if (item->has_op)
            op->count += fill_item(call, item, limits > 1, op->limits + op->count, &keys);
    }
    assert(!keys.failed); /* op_pool.keys_size suffices for all limits of an op */
    op->keys_size = keys.n;
    op->counting.later = call->gives_back;
    op->denial.barred = call->charges_each || call->gives_back; /* until units are given back */
    call->op_count++;
    if (!op->now_us)
        op_meet_lease(op, false);
    return op_begin(op, &own->request);
}

static struct wide *make_wide(struct call_request *call, unsigned count)
{
    size_t keys_size = call->limit_count * key_descriptor_size_max(call->limiter->policy);
    struct wide *wide = wide_new(call->limit_count, keys_size);

    call->wide_results = calloc(call->limit_count, sizeof *call->wide_results);
    if (!wide || !call->wide_results) {
        free(wide);
        return NULL;
    }
    wide->results = call->wide_results;
    for (unsigned i = 0; i < count; i++) {
        const struct call_item *item = &call->items[i];
        wide->quota_passes |=
            item->quota && (item->kind == ITEM_UNLIMITED || item->kind == ITEM_FREE);
        if (item->kind != ITEM_COUNTED)
            continue;
        wide->spans[wide->span_count++] =
            (struct wide_span){.first = item->first, .count = item->count, .quota = item->quota};
        wide->count += fill_item(call, item, true, wide->limits + wide->count, &wide->keys);
    }
    assert(!wide->keys.failed);
    return wide;
}

static enum decided begin_wide(struct call_request *call, unsigned count)
{
    struct limit_op *op = op_take_or_reserve(call->limiter);

    op_clear(op);
    op->denial.barred = true;
    call->ops[0].call = call;
    call->ops[0].request = (struct decision_request){.decided = on_op_decided};
    call->op_count = 1;
    if ((op->wide = make_wide(call, count)))
        return op_begin(op, &call->ops[0].request);
    op_release(op);
    verdict_fail_closed(&call->ops[0].request.decision);
    return DECIDED_NOW;
}

/* --- The call --------------------------------------------------------------------------------- */

/* Returns true if descriptors that a grant prohibits decide the call: one without quota_mode, or
 * all with it. */
static bool is_prohibited(const struct call_request *call, unsigned count)
{
    unsigned quotas = 0, quotas_over = 0;

    for (unsigned i = 0; i < count && !call->charges_each; i++) {
        bool over = call->items[i].kind == ITEM_PROHIBITED;
        if (over && !call->items[i].quota)
            return true;
        quotas += call->items[i].quota;
        quotas_over += over;
    }
    return quotas_over > 0 && quotas_over == quotas;
}

/* Makes an op for each item of the stage. */
static void begin_apart(struct call_request *call, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const struct call_item *item = &call->items[i];
        bool refunds = item->cost < 0;
        if (item->kind != ITEM_COUNTED || (call->stage == STAGE_CHARGES && refunds) ||
            (call->stage == STAGE_REFUNDS && !refunds))
            continue;
        call->pending += begin_op(call, i, i + 1) == DECIDED_LATER;
    }
}

/* Refunds have the rest of the call's time, and at least a quarter of redis.timeout: charges that
 * ended by on_failure may have used all of it. */
static void keep_deadline(struct call_request *call, unsigned first)
{
    struct limiter *l = call->limiter;
    uint64_t timeout_us = l->policy->redis.timeout_us, now_us = clock_us();
    uint64_t until_us = call->started_us + timeout_us, least_us = now_us + timeout_us / 4;

    if (until_us < least_us)
        until_us = least_us;
    for (unsigned i = first; i < call->op_count; i++) {
        struct limit_op *op = call->ops[i].request.op;
        if (op)
            deadline_arm(&l->waiting, &op->deadline, now_us, until_us - now_us);
    }
}

/* The charges of a call are decided: makes its refunds, if these had to wait and the call is
 * admitted. No refund can be undone, since Redis does not return what it has given back. */
static void begin_refunds(struct call_request *call)
{
    unsigned first = call->op_count;

    if (call->stage != STAGE_CHARGES)
        return;
    call->stage = STAGE_REFUNDS;
    if (!call_admits(call))
        return;
    begin_apart(call, call->decision.count);
    keep_deadline(call, first);
}

static void on_op_decided(struct decision_request *decision_request)
{
    struct call_request *call = CONTAINER_OF(decision_request, struct call_op, request)->call;

    if (--call->pending > 0)
        return;
    begin_refunds(call);
    if (call->pending > 0)
        return;
    call_conclude(call);
    call->decided(call);
}

static void begin_ops(struct call_request *call, unsigned count)
{
    const struct limiter *l = call->limiter;
    bool is_wide = call->has_quota || call->limit_count > LIMITS_PER_RULE_MAX;

    call->gives_back =
        !call->charges_each && is_wide && l->in_slots && redis_client_is_ready(l->redis);
    if (call->gives_back) {
        call->stage = STAGE_CHARGES;
        call->started_us = clock_cached_us();
        begin_apart(call, count);
        if (!call->pending)
            begin_refunds(call);
    } else if (call->charges_each)
        begin_apart(call, count);
    else if (is_wide)
        call->pending += begin_wide(call, count) == DECIDED_LATER;
    else
        call->pending += begin_op(call, 0, count) == DECIDED_LATER;
}

enum decided limiter_decide_call(struct limiter *l, const struct rate_limit_call *message,
                                 struct call_request *call)
{
    const struct rate_limit_domain *domain =
        rate_limit_domain(&l->policy->rate_limit_service, message->domain);

    call->limiter = l;
    call->limit_count = 0;
    call->has_quota = call->gives_back = false;
    call->stage = STAGE_ALL;
    call->decision.domain = domain;
    call->decision.count = message->count;
    if (!room_for_items(call, message->count)) {
        call->decision.count = 0;
        call_refuse(call);
        return DECIDED_NOW;
    }
    call->charges_each = domain && domain->charge == CHARGE_EVERY;
    if (domain)
        match_all(call, message);
    else
        for (unsigned i = 0; i < message->count; i++)
            call->items[i] = (struct call_item){.kind = ITEM_FREE};
    if (call->limit_count && !is_prohibited(call, message->count))
        begin_ops(call, message->count);
    if (call->pending)
        return DECIDED_LATER;
    call_conclude(call);
    return DECIDED_NOW;
}
