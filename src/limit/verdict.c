/* verdict.c - makes decisions from Redis' reply, without Redis, from the client's limits, from a
 * remembered denial, and from a lease. */
#include "limit/verdict.h"
#include "limit/limiter_parts.h"
#include "limit/local_charges.h"
#include "limit/next_unit.h"
#include "limit/wide.h"

/* --- Decisions -------------------------------------------------------------------------------- */

static void count_verdict(struct limiter *l, const struct limit *limit, enum verdict verdict)
{
    counter_add(counter_table_row(&l->stats->by_limit, limit->row) + verdict, 1);
}

/* The result of a limit that the request may use as a whole. */
static inline struct limit_result whole_result_of(const struct op_limit *part)
{
    const struct limit_numbers *n = &part->numbers;
    return (struct limit_result){.limit = part->limit,
                                 .verdict = VERDICT_ALLOWED,
                                 .shadow = part->shadow,
                                 .place = (uint16_t)part->place,
                                 .quota = n->limit,
                                 .granted = part->cost,
                                 .capacity = limit_whole(part->limit, n)};
}

/* Leaves units to higher priorities: the result is then that of the request's priority. A bucket's
 * rate is the same for all of them. */
static __attribute__((noinline)) void leave_reserve(struct limit_result *r, int64_t reserve)
{
    if (r->limit->kind != LIMIT_BUCKET && r->quota == r->capacity)
        r->quota -= reserve;
    r->capacity -= reserve;
    r->remaining = r->remaining > reserve ? r->remaining - reserve : 0;
}

static inline struct limit_result priority_result(const struct op_limit *part)
{
    struct limit_result r = whole_result_of(part);

    if (part->numbers.share)
        leave_reserve(&r, limit_reserve(part->limit, &part->numbers));
    return r;
}

/* What remains for the request's priority, of what remains in all. */
static int64_t above_reserve(const struct op_limit *part, int64_t remaining)
{
    if (part->numbers.share)
        remaining -= limit_reserve(part->limit, &part->numbers);
    return remaining > 0 ? remaining : 0;
}

static bool waits_longer(const struct limit_result *a, const struct limit_result *b)
{
    return b->retry_after_us >= 0 &&
           (a->retry_after_us < 0 || a->retry_after_us > b->retry_after_us);
}

static enum verdict rejection_by(const struct limit_result *r)
{
    return r->shadow ? VERDICT_SHADOW : VERDICT_LIMITED;
}

/* If another limit rejects the request, a limit that allows is counted as not charged. */
static enum verdict counted_as(enum verdict of_limit, const struct decision *d)
{
    return of_limit == VERDICT_ALLOWED && !decision_admits(d) ? VERDICT_NOT_CHARGED : of_limit;
}

static bool is_near(const struct limit_result *r)
{
    return (__int128)r->remaining * SHARE_WHOLE < (__int128)r->capacity * r->limit->near;
}

void verdict_count_result(struct limiter *l, const struct limit_result *r, enum verdict verdict)
{
    count_verdict(l, r->limit, verdict);
    if (verdict == VERDICT_ALLOWED && is_near(r))
        counter_add(counter_table_row(&l->stats->by_limit, r->limit->row) + NEAR_COLUMN, 1);
}

void verdict_count(struct limiter *l, const struct decision *d)
{
    for (unsigned i = 0; i < d->result_count; i++)
        verdict_count_result(l, &d->results[i], counted_as(d->results[i].verdict, d));
}

/* Each limit of the op was charged by itself. */
static void count_each(struct limiter *l, const struct decision *d)
{
    for (unsigned i = 0; i < d->result_count; i++)
        verdict_count_result(l, &d->results[i], d->results[i].verdict);
}

/* Lets the limits that reject the request decide. */
static void apply_rejections(struct decision *d)
{
    for (unsigned i = 0; i < d->result_count; i++) {
        if (d->results[i].verdict != VERDICT_LIMITED)
            continue;
        d->verdict = VERDICT_LIMITED;
        if (d->rejected_by < 0 || waits_longer(&d->results[i], &d->results[d->rejected_by]))
            d->rejected_by = (int)i;
    }
}

void verdict_conclude(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    if (op->counting.partial)
        return;
    if (op->counting.aside_count) {
        local_charges_add_set_aside(op, d);
        apply_rejections(d);
    }
    bool each = d->verdict == VERDICT_LIMITED && op_charges_each(op);
    if (op->counting.aside_count && !decision_admits(d) && !each)
        local_charges_refund(op, d);
    if (op->counting.later)
        return;
    if (each)
        count_each(l, d);
    else
        verdict_count(l, d);
}

/* --- With Redis ------------------------------------------------------------------------------- */

/* Sets the request's verdict from the results of its limits, and counts them. */
static void set_verdict(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->rejected_by = -1;
    apply_rejections(d);
    verdict_conclude(l, op, d);
}

/* The longest delay of its queues applies to the request. */
static void set_delay(struct decision *d, const struct limit_reply *replies, unsigned count)
{
    for (unsigned i = 0; i < count && d->verdict == VERDICT_ALLOWED; i++, replies++)
        if (d->results[i].verdict == VERDICT_ALLOWED && !d->results[i].shadow &&
            replies->delay_us > d->delay_us)
            d->delay_us = replies->delay_us;
}

inline void verdict_set_result(struct limit_result *r, const struct op_limit *part,
                               const struct limit_reply *reply)
{
    *r = priority_result(part);
    if (reply->failure) {
        /* This failure has no effect, see failed_limits_sort(). The reply has no numbers. */
        r->verdict = VERDICT_FAILED_OPEN;
        r->shadow = true;
        return;
    }
    r->verdict = reply->granted > 0 || part->free ? VERDICT_ALLOWED : rejection_by(r);
    r->granted = reply->granted > 0 && !part->free ? reply->granted : r->granted;
    r->remaining = above_reserve(part, reply->remaining);
    r->retry_after_us = r->verdict == VERDICT_ALLOWED ? 0 : reply->retry_after_us;
    r->reset_us = reply->reset_us > 0 ? reply->reset_us : 0;
    next_unit_set(r, reply->next_us);
}

void verdict_from_answer(struct limiter *l, const struct limit_op *op,
                         const struct limit_reply *replies, struct decision *d)
{
    if (op->wide) {
        wide_conclude(l, op, d);
        return;
    }
    d->result_count = op->count;
    for (unsigned i = 0; i < op->count; i++)
        verdict_set_result(&d->results[i], &op->limits[i], &replies[i]);
    set_verdict(l, op, d);
    set_delay(d, replies, op->count);
}

/* --- Without Redis ---------------------------------------------------------------------------- */

void verdict_fail_closed(struct decision *d)
{
    d->verdict = VERDICT_FAILED_CLOSED;
    d->rejected_by = -1;
    d->result_count = 0;
    d->delay_us = d->jitter_us = 0;
}

static bool refuse_if_any_denies(struct limiter *l, const struct limit_op *op, struct decision *d)
{
    bool denied = false;

    for (unsigned i = 0; i < op->count; i++)
        if (op->limits[i].limit->on_failure == ON_FAILURE_DENY && !op->limits[i].shadow) {
            count_verdict(l, op->limits[i].limit, VERDICT_FAILED_CLOSED);
            denied = true;
        }
    if (!denied)
        return false;
    verdict_fail_closed(d);
    verdict_conclude(l, op, d);
    return true;
}

bool verdict_is_local(const struct op_limit *part)
{
    return part->limit->on_failure == ON_FAILURE_LOCAL && !part->limit->counted && part->cost >= 0;
}

/* This instance's share of a limit while Redis is down: 1/redis.instances, at least one unit. */
struct limit_result verdict_local_result(const struct limiter *l, const struct op_limit *part)
{
    struct limit_result r = whole_result_of(part);
    int64_t instances = l->policy->redis.instances;

    if (instances > 1 && r.capacity > 0) {
        r.quota = r.quota > instances ? r.quota / instances : 1;
        r.capacity = r.capacity > instances ? r.capacity / instances : 1;
        r.granted = op_usable_cost(part, r.capacity);
    }
    return r;
}

struct fallback_request verdict_local_request(const struct op_limit *part,
                                              struct limit_result *result)
{
    bool asks = part->cost == 0 && !part->free;
    int64_t cost = asks ? 1 : op_usable_cost(part, result->capacity);
    int64_t whole = limit_whole(part->limit, &part->numbers);

    return (struct fallback_request){
        .key = part->key,
        .cost = cost,
        .reserve = share_reserve(result->capacity, part->numbers.share),
        .result = result,
        .best_effort = part->mode & MODE_BEST_EFFORT && part->mode != MODE_EVERY,
        .asks = asks,
        .fits_whole = cost <= whole - share_reserve(whole, part->numbers.share),
        .debt = part->mode == MODE_EVERY};
}

static bool decide_locally(struct limiter *l, struct fallback_request *requests, unsigned count)
{
    bool admitted = fallback_decide(l->fallback, requests, count);

    for (unsigned i = 0; i < count; i++)
        if (requests[i].reserve)
            leave_reserve(requests[i].result, requests[i].reserve);
    return admitted;
}

/* Shadow limits reject nothing: each is decided alone. `charges`: the request is admitted, or each
 * limit is charged by itself. */
static void decide_shadows_locally(struct limiter *l, const struct limit_op *op, bool charges,
                                   struct decision *d)
{
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        struct limit_result *r = &d->results[d->result_count];
        if (!part->shadow)
            continue;
        if (!verdict_is_local(part)) {
            count_verdict(l, part->limit, VERDICT_FAILED_OPEN);
            continue;
        }
        *r = verdict_local_result(l, part);
        struct fallback_request request = verdict_local_request(part, r);
        request.asks |= !charges;
        if (!decide_locally(l, &request, 1))
            r->verdict = VERDICT_SHADOW;
        d->result_count++;
    }
}

void verdict_without_redis(struct limiter *l, const struct limit_op *op, enum redis_failure cause,
                           struct decision *d)
{
    struct fallback_request requests[LIMITS_PER_RULE_MAX];
    bool admitted = true;
    unsigned local = 0;

    if (op->wide) {
        wide_without_redis(l, op, cause, d);
        return;
    }
    counter_add(&l->stats->redis_failures[cause], 1);
    if (refuse_if_any_denies(l, op, d))
        return;
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        if (part->shadow)
            continue;
        if (!verdict_is_local(part)) {
            count_verdict(l, part->limit, VERDICT_FAILED_OPEN);
            continue;
        }
        d->results[local] = verdict_local_result(l, part);
        requests[local] = verdict_local_request(part, &d->results[local]);
        requests[local].descriptor = part->mode == MODE_EVERY ? local : 0;
        requests[local].quota = part->mode == MODE_EVERY; /* rejects for itself alone */
        local++;
    }
    d->result_count = local;
    if (local)
        admitted = decide_locally(l, requests, local);
    decide_shadows_locally(l, op, admitted || op_charges_each(op), d);
    set_verdict(l, op, d);
    if (d->result_count == 0)
        d->verdict = VERDICT_FAILED_OPEN;
}

/* --- From the client's limits ----------------------------------------------------------------- */

/* If only shadow limits prohibit a client, its request is allowed. */
static void decide_by_shadows(const struct rule *rule, struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->rejected_by = -1;
    d->result_count = rule->limit_count;
    for (unsigned i = 0; i < rule->limit_count; i++)
        d->results[i] = (struct limit_result){.limit = rule->limits[i],
                                              .verdict = VERDICT_SHADOW,
                                              .shadow = true,
                                              .retry_after_us = -1};
}

/* The response fields show one limit: the first enforced one that may be shown, else the first
 * enforced one. */
void verdict_by_client_limits(struct limiter *l, const struct limit_facts *facts, bool prohibited,
                              struct decision *d)
{
    enum verdict verdict = prohibited ? VERDICT_PROHIBITED : VERDICT_UNLIMITED;
    const struct limit *first = NULL;

    for (unsigned i = 0; i < facts->rule->limit_count; i++) {
        const struct limit *limit = facts->rule->limits[i];
        bool shadow = !limit_enforces(limit, facts->identity);
        count_verdict(l, limit, prohibited && shadow ? VERDICT_SHADOW : verdict);
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

void verdict_of_no_limits(struct decision *d)
{
    d->verdict = VERDICT_ALLOWED;
    d->result_count = 0;
    d->rejected_by = -1;
}

/* --- Remembered denials ----------------------------------------------------------------------- */

static struct denial_key denial_key_of(struct limit_op *op)
{
    int64_t numbers[LIMITS_PER_RULE_MAX * 4];
    size_t n = 0;

    if (op->denial.key_known)
        return op->denial.key;
    for (unsigned i = 0; i < op->count; i++) {
        const struct op_limit *part = &op->limits[i];
        /* Best effort, shadow and the share are those of this request; others may share the key. */
        numbers[n++] = part->limit->index | (int64_t)part->shadow << 31 |
                       (int64_t)part->mode << 32 | part->numbers.share << 48;
        numbers[n++] = part->free ? -1 : part->cost;
        numbers[n++] = part->numbers.limit;
        numbers[n++] = part->numbers.burst;
    }
    op->denial.key = denials_key(op->limiter->denials, (struct slice){op->keys, op->keys_size},
                                 (struct slice){(const char *)numbers, n * sizeof numbers[0]});
    op->denial.key_known = true;
    return op->denial.key;
}

/* Returns true if units of a limit that denied were given back since. */
static bool was_refunded(const struct limit_op *op, const struct denial *denial)
{
    uint64_t since_us = denial->requested_us;
    bool refunded = false;

    for (unsigned i = 0; i < op->count && denials_may_be_forgotten(since_us); i++)
        refunded |= denial->limits[i].limited && denials_are_forgotten(op->limits[i].key, since_us);
    return refunded;
}

static int64_t time_left(int64_t us, uint64_t elapsed_us)
{
    return us < 0 ? us : us > (int64_t)elapsed_us ? us - (int64_t)elapsed_us : 0;
}

bool verdict_from_denial(struct limiter *l, struct limit_op *op, uint64_t now_us,
                         struct decision *d)
{
    const struct denial *denial;

    if (op->count > DENIAL_LIMITS_MAX || op->denial.barred ||
        !(denial = denials_find(l->denials, denial_key_of(op), now_us)) || was_refunded(op, denial))
        return false;
    uint64_t elapsed = now_us - denial->requested_us;
    d->result_count = 0;
    for (unsigned i = 0; i < op->count; i++) {
        const struct denial_limit *then = &denial->limits[i];
        struct limit_result *r = &d->results[d->result_count];
        if (then->remaining < 0) /* not checked by Redis */
            continue;
        d->result_count++;
        *r = priority_result(&op->limits[i]);
        r->remaining = then->remaining;
        r->retry_after_us = time_left(then->retry_after_us, elapsed);
        r->verdict = then->limited || r->retry_after_us ? rejection_by(r) : VERDICT_ALLOWED;
        r->reset_us = time_left(then->reset_us, elapsed);
        next_unit_set(r, next_unit_left(r, then->next_us, elapsed));
    }
    set_verdict(l, op, d);
    counter_add(&l->stats->remembered_denials, 1);
    return true;
}

void verdict_from_lease(struct limiter *l, const struct limit_op *op, const struct lease *lease,
                        uint64_t now_us, struct decision *d)
{
    struct limit_result *r = &d->results[0];

    d->result_count = 1;
    *r = priority_result(&op->limits[0]);
    r->remaining = lease_remaining(lease, now_us);
    r->reset_us = time_left(lease->reset_us, now_us - lease->charged_us);
    next_unit_set(r, next_unit_left(r, lease->next_us, now_us - lease->charged_us));
    set_verdict(l, op, d);
}

/* NULL if Redis did not check the limit: limits checked in turn end with the one that rejects. */
static const struct limit_result *result_for(const struct decision *d, unsigned i, unsigned place)
{
    if (i < d->result_count && d->results[i].place == place)
        return &d->results[i];
    for (i = 0; i < d->result_count; i++)
        if (d->results[i].place == place)
            return &d->results[i];
    return NULL;
}

void verdict_remember(struct limiter *l, struct limit_op *op, const struct decision *d)
{
    struct denial denial = {.requested_us = op->started_us, .count = op->count};
    bool any = false;

    if (d->verdict != VERDICT_LIMITED || op->denial.barred || op->now_us ||
        op->count > DENIAL_LIMITS_MAX)
        return;
    denial.key = denial_key_of(op);
    for (unsigned i = 0; i < op->count; i++) {
        const struct limit_result *r = result_for(d, i, op->limits[i].place);
        if (!r) {
            denial.limits[i] = (struct denial_limit){.remaining = -1};
            continue;
        }
        /* Not remembered: a request in flight may end, or be refunded, at any time. */
        bool ends_any_time = r->limit->kind == LIMIT_CONCURRENCY || r->limit->counted ||
                             (r->limit->own_cost && limit_cost_is_adjusted(r->limit->own_cost));
        int64_t wait_us = ends_any_time ? 0 : r->retry_after_us;
        bool limited = r->verdict == VERDICT_LIMITED && !ends_any_time;
        denial.limits[i] =
            (struct denial_limit){limited, r->remaining, wait_us, r->reset_us, r->next_us};
        any = any || limited;
    }
    if (!any)
        return;
    denials_remember(l->denials, &denial);
}
