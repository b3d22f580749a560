/* arguments.c - builds the arguments of a call of the driver (see lua/driver.lua), and groups
 * ops into one request.
 *
 * Requests of one loop iteration that are charged alike on the same key form a group. A group is
 * one request of the driver. It costs as many units as it has requests and, if fewer units are
 * left, takes those. Each op's own reply follows from the group's reply; see group_answer(). */
#include "limit/arguments.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/text.h"
#include "limit/adjust.h"
#include "limit/compose.h"
#include "limit/limiter_parts.h"
#include "limit/permits.h"
#include "limit/wide.h"

enum {
    KEY_SLOTS = 2 * BATCH_KEYS_MAX,
    ARGUMENTS_PER_LIMIT = 9,
    ARGUMENTS_PER_CLOCK = 2,
    WIDE_RUN = RUN_COUNTS + 9, /* begins a run of descriptors */
    ARGUMENTS_PER_WIDE_RUN = 3,
    NUMBER_SIZE = 20,
};

struct arguments {
    struct call_arguments all;
    struct text numbers; /* decimal digits that the arguments point into */
    struct hash_key hash;
    struct slice keys[BATCH_KEYS_MAX];
    unsigned key_count, last_key; /* 1-based index of the last key looked up */
    unsigned plain_keys;          /* keys of the plain runs so far */
    uint16_t slots[KEY_SLOTS];    /* by hash: 1-based key index, 0: free */
    /* By key index: 1-based index of the group that may grow, 0: none. */
    uint8_t groups[BATCH_KEYS_MAX + 1];
};

struct arguments *arguments_new(void)
{
    /* Each descriptor of a wide run has one number, and at least one limit. */
    size_t numbers = 1 +
                     (size_t)BATCH_REQUESTS_MAX * (ARGUMENTS_PER_WIDE_RUN + ARGUMENTS_PER_CLOCK) +
                     (size_t)BATCH_KEYS_MAX * (ARGUMENTS_PER_LIMIT + 1);
    size_t all = 1 + BATCH_KEYS_MAX + numbers;
    struct arguments *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->all.bytes = calloc(all, sizeof *a->all.bytes);
    a->all.sizes = calloc(all, sizeof *a->all.sizes);
    a->numbers = text_over(malloc(numbers * NUMBER_SIZE), numbers * NUMBER_SIZE);
    a->hash = hash_key_random();
    if (a->all.bytes && a->all.sizes && a->numbers.p)
        return a;
    arguments_free(a);
    return NULL;
}

void arguments_free(struct arguments *a)
{
    if (!a)
        return;
    free(a->all.bytes);
    free(a->all.sizes);
    free(a->numbers.p);
    free(a);
}

static void append_argument(struct arguments *a, const char *bytes, size_t size)
{
    a->all.bytes[a->all.count] = bytes;
    a->all.sizes[a->all.count++] = size;
}

static void append_number_argument(struct arguments *a, int64_t value)
{
    size_t start = a->numbers.n;
    text_i64(&a->numbers, value);
    append_argument(a, a->numbers.p + start, a->numbers.n - start);
}

/* --- Keys ------------------------------------------------------------------------------------- */

/* A client's requests tend to follow one another: tries the last key, then the one after it. 0:
 * neither matches. */
static unsigned key_guess(struct arguments *a, struct slice key)
{
    unsigned next = a->last_key < a->key_count ? a->last_key + 1 : 1;

    if (a->key_count && slice_equal(a->keys[a->last_key - 1], key))
        return a->last_key;
    return a->key_count && slice_equal(a->keys[next - 1], key) ? next : 0;
}

/* The 1-based index of a key among the distinct keys of the batch. */
static unsigned key_index(struct arguments *a, struct slice key)
{
    unsigned guess = key_guess(a, key);
    if (guess)
        return a->last_key = guess;
    size_t slot = hash_slice(&a->hash, key) % KEY_SLOTS;

    for (; a->slots[slot]; slot = (slot + 1) % KEY_SLOTS)
        if (slice_equal(a->keys[a->slots[slot] - 1], key))
            return a->last_key = a->slots[slot];
    a->keys[a->key_count++] = key;
    a->slots[slot] = (uint16_t)a->key_count;
    a->groups[a->key_count] = 0;
    return a->last_key = a->key_count;
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* False if the client's numbers differ, even for the same key. */
static bool is_alike(const struct op_limit *a, const struct op_limit *b)
{
    return a->limit == b->limit && a->numbers.limit == b->numbers.limit &&
           a->numbers.burst == b->numbers.burst && a->numbers.share == b->numbers.share;
}

/* A group ends at any other request of its key, so that requests are charged in order. */
static void join_group(struct arguments *a, struct call_ops *ops, unsigned i)
{
    struct limit_op *op = ops->list[i];
    uint8_t *open = &a->groups[op->limits[0].key_index]; /* 1-based */
    bool unit = op->decision_request && op_is_unit(op);

    if (unit && *open && is_alike(&ops->groups[*open - 1].first->limits[0], &op->limits[0])) {
        ops->group_of[i] = *open - 1;
        ops->groups[*open - 1].size++;
        return;
    }
    ops->group_of[i] = (uint8_t)ops->group_count;
    ops->groups[ops->group_count++] = (struct group){.first = op, .count = op->count, .size = 1};
    if (unit && op->leased.lease)
        ops->groups[ops->group_count - 1].leased = op_request_lease(op);
    *open = unit ? (uint8_t)ops->group_count : 0;
    for (unsigned j = 1; j < op->count; j++)
        a->groups[op->limits[j].key_index] = 0;
}

/* A wide op is a group of its own. */
static void add_wide_group(struct arguments *a, struct call_ops *ops, unsigned i)
{
    struct limit_op *op = ops->list[i];
    struct wide *wide = op->wide;

    for (unsigned j = 0; j < wide->count; j++) {
        if (wide->decided[j])
            continue;
        wide->limits[j].key_index = key_index(a, wide->limits[j].key);
        a->groups[wide->limits[j].key_index] = 0;
    }
    ops->group_of[i] = (uint8_t)ops->group_count;
    ops->groups[ops->group_count++] = (struct group){.first = op, .count = wide->count, .size = 1};
}

const struct limit_reply *group_answer(struct group *group, const struct limit_reply *replies,
                                       struct limit_reply *own)
{
    int64_t granted = replies->granted, position = group->answered++;

    if (group->size + group->leased.units == 1 || granted <= 0)
        return replies;
    if (position >= granted)
        return NULL;
    *own = *replies;
    own->granted = 1;
    own->remaining += granted - 1 - position;
    return own;
}

/* --- All arguments ---------------------------------------------------------------------------- */

static void append_keys_arguments(struct arguments *a, struct call_ops *ops)
{
    a->key_count = 0;
    ops->group_count = 0;
    memset(a->slots, 0, sizeof a->slots);
    for (unsigned i = 0; i < ops->count; i++) {
        struct limit_op *op = ops->list[i];
        for (unsigned j = 0; j < op->count; j++) {
            struct op_limit *part = &op->limits[j];
            part->key_index = key_index(a, part->key);
            part->repeat_index = part->repeat_key.n ? key_index(a, part->repeat_key) : 0;
        }
        if (op->wide)
            add_wide_group(a, ops, i);
        else
            join_group(a, ops, i);
    }
    append_number_argument(a, a->key_count);
    for (unsigned i = 0; i < a->key_count; i++)
        append_argument(a, a->keys[i].p, a->keys[i].n);
}

/* The driver's arguments for one limit. `step`: in a run, the increment of the key index per
 * request. */
struct limit_arguments {
    const struct limit *limit;
    int64_t key, step, cost, mode, amount, burst;
    int64_t share; /* of the request's priority; 0: the whole limit */
};

static int64_t wire_mode(const struct op_limit *part)
{
    return part->cost < 0 ? op_limit_refund_mode(part)
                          : part->mode + MODE_REPEAT * part->repeat_index;
}

static void find_limit_arguments(const struct group *group, unsigned count,
                                 struct limit_arguments *found)
{
    const struct limit_op *op = group->first;
    int64_t units = group->size + group->leased.units;

    for (unsigned i = 0; i < count; i++) {
        const struct op_limit *part = &op->limits[i];
        found[i] = (struct limit_arguments){
            .limit = part->limit,
            .key = part->key_index,
            .cost = units > 1 ? units : part->cost,
            .mode = units > 1 ? MODE_BEST_EFFORT : wire_mode(part),
            .amount = part->numbers.limit,
            .burst = part->permit ? permits_holder(op->limiter->permits) : part->numbers.burst,
            .share = op->is_adjustment ? 0 : part->numbers.share};
    }
}

/* Returns true if a request continues a run of `length` requests; `run` holds the limits of the
 * first. */
static bool continues_run(const struct limit_arguments *next, struct limit_arguments *run,
                          unsigned count, int64_t length)
{
    for (unsigned i = 0; i < count; i++)
        if (next[i].limit != run[i].limit || next[i].cost != run[i].cost ||
            next[i].mode != run[i].mode || next[i].amount != run[i].amount ||
            next[i].burst != run[i].burst || next[i].share != run[i].share ||
            (length > 1 && next[i].key != run[i].key + length * run[i].step))
            return false;
    for (unsigned i = 0; i < count && length == 1; i++)
        run[i].step = next[i].key - run[i].key;
    return true;
}

/* Returns true if a run of `length` requests is a plain one. */
static bool is_plain_run(const struct arguments *a, const struct limit_arguments *run,
                         unsigned count, unsigned length)
{
    for (unsigned i = 0; i < count; i++)
        if (run[i].cost != 1 || run[i].mode != MODE_PLAIN || run[i].key != a->plain_keys + i + 1 ||
            (length > 1 && run[i].step != count) || run[i].amount != run[i].limit->limit ||
            run[i].burst != run[i].limit->burst || run[i].share || run[i].limit->rate_unit)
            return false;
    return true;
}

static void append_plain_run(struct arguments *a, const struct limit_arguments *run, unsigned count,
                             unsigned length)
{
    append_number_argument(a, -(int64_t)(length * RUN_COUNTS + count));
    for (unsigned i = 0; i < count; i++)
        append_number_argument(a, run[i].limit->index + 1);
    a->plain_keys += length * count;
}

/* The units that the request leaves to higher priorities, and its longest delay in a queue. */
static void append_reserve_arguments(struct arguments *a, const struct limit_arguments *t)
{
    struct limit_numbers numbers = {.limit = t->amount, .burst = t->burst, .share = t->share};

    if (t->limit->kind == LIMIT_CONCURRENCY) /* `burst` is the holder */
        numbers.burst = t->amount;
    append_number_argument(a, limit_reserve(t->limit, &numbers));
    append_number_argument(a, limit_longest_delay(t->limit, t->share));
}

static void append_limit_arguments(struct arguments *a, const struct limit_arguments *t,
                                   bool several, bool reserved)
{
    append_number_argument(a, t->limit->index + 1);
    append_number_argument(a, t->key);
    append_number_argument(a, t->cost);
    append_number_argument(a, t->mode);
    append_number_argument(a, t->amount);
    if (t->burst == t->amount)
        append_argument(a, a->all.bytes[a->all.count - 1], a->all.sizes[a->all.count - 1]);
    else
        append_number_argument(a, t->burst);
    if (several)
        append_number_argument(a, t->step);
    if (reserved)
        append_reserve_arguments(a, t);
}

static void append_run(struct arguments *a, const struct limit_arguments *run, unsigned count,
                       unsigned length)
{
    bool reserved = false;

    for (unsigned i = 0; i < count; i++)
        reserved |= run[i].share != 0;
    append_number_argument(a, length * RUN_COUNTS + count + (reserved ? RUN_RESERVED : 0));
    for (unsigned i = 0; i < count; i++)
        append_limit_arguments(a, &run[i], length > 1, reserved);
}

/* The clock of Redis need not be named before a plain run. */
static void append_now_argument(struct arguments *a, int64_t now_us, bool plain)
{
    if (now_us)
        append_number_argument(a, now_us);
    else if (!plain)
        append_argument(a, "", 0);
}

static void append_span(struct arguments *a, const struct wide *wide, const struct wide_span *span)
{
    unsigned count = 0;

    for (unsigned k = 0; k < span->count; k++)
        count += !wide->decided[span->first + k];
    append_number_argument(a, 2 * count + span->quota);
    for (unsigned k = 0; k < span->count; k++) {
        const struct op_limit *part = &wide->limits[span->first + k];
        if (wide->decided[span->first + k])
            continue;
        append_limit_arguments(a,
                               &(struct limit_arguments){.limit = part->limit,
                                                         .key = part->key_index,
                                                         .cost = part->cost,
                                                         .mode = wire_mode(part),
                                                         .amount = part->numbers.limit,
                                                         .burst = part->numbers.burst},
                               false, false);
    }
}

static void append_wide_run(struct arguments *a, const struct wide *wide)
{
    unsigned spans = 0;

    for (unsigned i = 0; i < wide->span_count; i++)
        spans += !wide->spans[i].decided;
    append_number_argument(a, WIDE_RUN);
    append_number_argument(a, wide->quota_passes);
    append_number_argument(a, spans);
    for (unsigned i = 0; i < wide->span_count; i++)
        if (!wide->spans[i].decided)
            append_span(a, wide, &wide->spans[i]);
}

/* Appends a run of groups that starts at `first`; returns its length. */
static unsigned append_run_arguments(struct arguments *a, struct call_ops *ops, unsigned first)
{
    struct limit_arguments run[LIMITS_PER_RULE_MAX], next[LIMITS_PER_RULE_MAX];
    unsigned count = ops->groups[first].count, length = 1;

    if (ops->groups[first].first->wide) {
        if (first == 0)
            append_now_argument(a, ops->groups[0].first->now_us, false);
        append_wide_run(a, ops->groups[first].first->wide);
        return 1;
    }
    find_limit_arguments(&ops->groups[first], count, run);
    for (; first + length < ops->group_count; length++) {
        const struct group *group = &ops->groups[first + length];
        if (group->count != count || group->first->wide ||
            group->first->now_us != ops->groups[first].first->now_us)
            break;
        find_limit_arguments(group, count, next);
        if (!continues_run(next, run, count, length))
            break;
    }
    bool plain = is_plain_run(a, run, count, length);
    for (unsigned i = first; i < first + length; i++)
        ops->groups[i].plain = plain;
    if (first == 0)
        append_now_argument(a, ops->groups[0].first->now_us, plain);
    (plain ? append_plain_run : append_run)(a, run, count, length);
    return length;
}

/* In a replay, groups may have different times: a run of 0 requests sets the clock. */
static void append_clock_arguments(struct arguments *a, const struct call_ops *ops, unsigned i)
{
    int64_t now_us = ops->groups[i].first->now_us;

    if (i == 0 || now_us == ops->groups[i - 1].first->now_us)
        return;
    append_argument(a, "0", 1);
    append_number_argument(a, now_us);
}

const struct call_arguments *arguments_make(struct arguments *a, struct call_ops *ops)
{
    a->all.count = 0;
    a->numbers.n = 0;
    a->plain_keys = 0;
    append_keys_arguments(a, ops);
    for (unsigned i = 0; i < ops->group_count;) {
        append_clock_arguments(a, ops, i);
        i += append_run_arguments(a, ops, i);
    }
    assert(!a->numbers.failed);
    return &a->all;
}
