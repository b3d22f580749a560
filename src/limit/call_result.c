#include "limit/call_decision.h"

#include "limit/key.h"
#include "limit/limiter_parts.h"
#include "limit/local_charges.h"
#include "limit/verdict.h"

/* --- The results of limits -------------------------------------------------------------------- */

/* Returns the result of the limit at `place` of the call; NULL: there is none. */
static const struct limit_result *result_at(const struct call_request *call,
                                            const struct call_item *item, unsigned place)
{
    const struct decision *d = &call->ops[item->op].request.decision;

    if (call->wide_results)
        return call->wide_results[place].limit ? &call->wide_results[place] : NULL;
    for (unsigned i = 0; i < d->result_count; i++)
        if (d->results[i].place == place)
            return &d->results[i];
    return NULL;
}

static bool limit_rejects(const struct limit_result *r)
{
    return r->verdict == VERDICT_LIMITED;
}

/* Returns true if a response shows `a` rather than `b`: one that rejects, and of several the
 * longest wait; then limits that are enforced, and the least left. */
static bool tells_more(const struct limit_result *a, const struct limit_result *b)
{
    if (limit_rejects(a) != limit_rejects(b))
        return limit_rejects(a);
    if (limit_rejects(a))
        return b->retry_after_us >= 0 &&
               (a->retry_after_us < 0 || a->retry_after_us > b->retry_after_us);
    return a->shadow != b->shadow ? b->shadow : a->remaining < b->remaining;
}

/* Sets whether the descriptor is over its limit, and its limit that is shown. */
static void conclude_item(const struct call_request *call, struct call_item *item)
{
    if (item->kind == ITEM_PROHIBITED) {
        const struct limit *limit = NULL;
        for (unsigned i = 0; !limit; i++)
            limit = descriptor_limit(&item->match, i);
        item->prohibited =
            (struct limit_result){.limit = limit, .verdict = VERDICT_LIMITED, .retry_after_us = -1};
        item->shown = &item->prohibited;
        item->over = true;
    }
    for (unsigned i = 0; i < item->count && call->op_count; i++) {
        const struct limit_result *r = result_at(call, item, item->first + i);
        if (!r || r->verdict == VERDICT_FAILED_OPEN)
            continue;
        item->over |= limit_rejects(r);
        if (!item->shown || tells_more(r, item->shown))
            item->shown = r;
    }
}

/* --- The call --------------------------------------------------------------------------------- */

static bool call_is_over(const struct call_request *call)
{
    unsigned quotas = 0, quotas_over = 0;

    for (unsigned i = 0; i < call->decision.count; i++) {
        const struct call_item *item = &call->items[i];
        if (item->over && !item->quota)
            return true;
        quotas += item->quota;
        quotas_over += item->quota && item->over;
    }
    return quotas > 0 && quotas == quotas_over;
}

/* Concludes the descriptors, and returns the verdict of the call. */
static enum verdict verdict_of(struct call_request *call)
{
    bool failed = call->op_count > 0;

    for (unsigned i = 0; i < call->decision.count; i++)
        conclude_item(call, &call->items[i]);
    for (unsigned i = 0; i < call->op_count; i++) {
        enum verdict verdict = call->ops[i].request.decision.verdict;
        if (verdict == VERDICT_FAILED_CLOSED)
            return verdict;
        failed &= verdict == VERDICT_FAILED_OPEN;
    }
    return call_is_over(call) ? VERDICT_LIMITED : failed ? VERDICT_FAILED_OPEN : VERDICT_ALLOWED;
}

static bool is_admitted(enum verdict verdict)
{
    return verdict != VERDICT_LIMITED && verdict != VERDICT_FAILED_CLOSED;
}

bool call_admits(struct call_request *call)
{
    return is_admitted(verdict_of(call));
}

/* The numbers of a charge that is given back. */
static void show_refunded(struct decision *d)
{
    for (unsigned i = 0; i < d->result_count; i++) {
        struct limit_result *r = &d->results[i];
        int64_t left = r->remaining + r->granted;
        if (r->verdict == VERDICT_ALLOWED && r->granted > 0)
            r->remaining = left < r->capacity ? left : r->capacity;
    }
}

/* Gives back what the descriptor was charged in this process, without Redis. */
static void refund_local(const struct call_request *call, const struct call_item *item,
                         struct decision *d)
{
    char room[1024]; /* key_descriptor_size_max() of the longest prefix and name */

    for (unsigned i = 0; i < d->result_count; i++) {
        struct text key = text_over(room, sizeof room);
        if (!d->results[i].local)
            continue;
        key_write_descriptor(&key, call->limiter->policy, d->results[i].limit,
                             descriptor_name_text(&item->name));
        assert(!key.failed);
        local_charges_refund_limit(call->limiter, &d->results[i], text_slice(&key),
                                   call->started_us);
    }
}

/* A call with an op per descriptor is charged as one: gives the charges back if it is over its
 * limit. Counts the limits, which had to wait for that. */
static void conclude_charges(struct call_request *call)
{
    bool admits = is_admitted(call->decision.verdict);

    for (unsigned i = 0; i < call->decision.count; i++) {
        const struct call_item *item = &call->items[i];
        struct decision_request *request = &call->ops[item->op].request;
        struct decision *d = &request->decision;
        if (!item->has_op)
            continue;
        if (!admits)
            refund_local(call, item, d);
        if (!admits && request->charge && item->cost > 0)
            show_refunded(d);
        if (admits)
            limiter_keep_charge(request);
        else
            limiter_refund(request, NULL);
        if (!admits && d->verdict == VERDICT_ALLOWED)
            d->verdict = VERDICT_LIMITED; /* verdict_count(): none of its limits was charged */
        verdict_count(call->limiter, d);
    }
}

/* --- What the response shows ------------------------------------------------------------------ */

/* Adds the result, or replaces the one that tells least. */
static void show(struct decision *shown, const struct limit_result *r)
{
    unsigned least = 0;

    if (shown->result_count < LIMITS_PER_RULE_MAX) {
        shown->results[shown->result_count++] = *r;
        return;
    }
    for (unsigned i = 1; i < shown->result_count; i++)
        if (tells_more(&shown->results[least], &shown->results[i]))
            least = i;
    if (tells_more(r, &shown->results[least]))
        shown->results[least] = *r;
}

static void show_item(const struct call_request *call, const struct call_item *item,
                      struct decision *shown)
{
    if (item->over && shown->verdict != VERDICT_LIMITED)
        return;
    if (item->kind == ITEM_PROHIBITED)
        show(shown, &item->prohibited);
    for (unsigned i = 0; i < item->count && call->op_count; i++) {
        const struct limit_result *r = result_at(call, item, item->first + i);
        if (r && !r->shadow && r->verdict != VERDICT_FAILED_OPEN)
            show(shown, r);
    }
}

static void make_shown(struct call_request *call)
{
    struct decision *shown = &call->decision.shown;

    shown->verdict = call->decision.verdict;
    shown->result_count = 0;
    shown->rejected_by = -1;
    shown->priority = NULL;
    shown->delay_us = shown->jitter_us = 0;
    for (unsigned i = 0; i < call->decision.count && shown->verdict != VERDICT_FAILED_CLOSED; i++)
        show_item(call, &call->items[i], shown);
    for (unsigned i = 0; i < shown->result_count; i++)
        if (limit_rejects(&shown->results[i]) &&
            (shown->rejected_by < 0 ||
             tells_more(&shown->results[i], &shown->results[shown->rejected_by])))
            shown->rejected_by = (int)i;
}

static uint32_t capped(int64_t number)
{
    return number > UINT32_MAX ? UINT32_MAX : number < 0 ? 0 : (uint32_t)number;
}

static struct slice limit_name(const struct call_item *item, const struct limit *limit)
{
    const struct configured_entry *entry = item->match.entry;

    if (entry && entry->name && (item->match.stated || entry->rate_limit))
        return slice_of(entry->name);
    return item->match.stated ? SLICE("") : slice_of(limit->name);
}

static void set_descriptor_result(const struct call_item *item, struct descriptor_result *result)
{
    const struct limit_result *r = item->shown;

    *result = (struct descriptor_result){
        .over = item->over, .reset_us = -1, .client = item->name.size ? &item->name : NULL};
    if (item->kind == ITEM_UNLIMITED)
        result->remaining = UINT32_MAX;
    if (!r)
        return;
    result->has_limit = true;
    result->name = limit_name(item, r->limit);
    result->per_unit = capped(r->quota);
    result->unit = limit_unit(r->limit);
    result->remaining = item->over ? 0 : capped(r->remaining);
    result->reset_us = item->over ? r->retry_after_us : r->next_us;
}

/* Adds a map as the last one. A map that is there already moves. */
static void add_metadata(struct call_request *call, const struct metadata *metadata)
{
    unsigned count = 0;

    for (unsigned i = 0; i < call->decision.metadata_count; i++)
        if (call->metadata[i] != metadata)
            call->metadata[count++] = call->metadata[i];
    call->metadata[count++] = metadata;
    call->decision.metadata_count = count;
}

void call_conclude(struct call_request *call)
{
    struct call_decision *d = &call->decision;

    d->verdict = verdict_of(call);
    if (call->gives_back)
        conclude_charges(call);
    d->metadata = call->metadata;
    d->metadata_count = 0;
    d->results = call->results;
    for (unsigned i = 0; i < d->count; i++) {
        const struct call_item *item = &call->items[i];
        if (item->cost < 0 && item->count && (call->charges_each || d->verdict != VERDICT_LIMITED))
            denials_forget(descriptor_name_text(&item->name));
        set_descriptor_result(item, &call->results[i]);
        if (item->match.entry && item->match.entry->metadata && !item->over)
            add_metadata(call, item->match.entry->metadata);
    }
    make_shown(call);
}

void call_refuse(struct call_request *call)
{
    struct call_decision *d = &call->decision;

    d->verdict = VERDICT_FAILED_CLOSED;
    d->results = NULL;
    d->metadata = NULL;
    d->metadata_count = 0;
    d->shown = (struct decision){.verdict = VERDICT_FAILED_CLOSED, .rejected_by = -1};
}
