/* read_limits.c - section limits. */
#include <stdlib.h>

#include "config/sections.h"
#include "policy/shipped_limiter.h"

bool limit_has_burst(const void *limit)
{
    enum limit_kind kind = ((const struct limit *)limit)->kind;
    return kind != LIMIT_WINDOW && kind != LIMIT_CONCURRENCY;
}

bool limit_has_align(const void *limit)
{
    const struct limit *l = limit;
    return l->shipped ? l->shipped->aligns : l->kind == LIMIT_CUSTOM;
}

bool limit_is_in_flight(const void *limit)
{
    return ((const struct limit *)limit)->kind == LIMIT_CONCURRENCY;
}

bool limit_is_not_in_flight(const void *limit)
{
    return !limit_is_in_flight(limit);
}

static const char large_scripts[] = "token_bucket, gcra, leaky_bucket or fixed_window";

void limit_check_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         const struct limit_numbers *numbers)
{
    int64_t largest = numbers->limit > numbers->burst ? numbers->limit : numbers->burst;

    if (largest > SMALL_LIMIT_MAX && limit->script && !limit_counts_large(limit))
        mistake(l, node, "%s counts to 1000000000; for larger numbers use %s", limit->script,
                large_scripts);
    if (limit->kind != LIMIT_BUCKET || numbers->limit < 1)
        return;
    double refill = (double)numbers->burst * (double)limit->period_us / (double)numbers->limit;
    if (refill > (double)REFILL_MAX_US)
        mistake(l, node,
                "a burst of %lld would take %.0f years to refill, which scripts cannot count "
                "exactly; lower the burst or the period",
                (long long)numbers->burst, refill / 1e6 / 86400 / 365.25);
}

struct limit *limit_named(struct loading *l, const struct node *node, bool is_key)
{
    int index = policy_index(l, node, is_key, limit_at, "limit");
    return index < 0 ? NULL : &l->policy->limits[index];
}

struct limit *limit_in_list(struct loading *l, const struct node *item,
                            const struct limit *const *others, unsigned count)
{
    bool good = expect_scalar(l, item, "a limit's name");
    struct limit *limit = good ? limit_named(l, item, false) : NULL;

    for (unsigned i = 0; limit && i < count; i++)
        if (others[i] == limit) {
            mistake(l, item, "%s is listed twice", QUOTE(item->text));
            return NULL;
        }
    return limit;
}

void print_limit_name(FILE *out, const void *limits, unsigned index)
{
    print_scalar(out, slice_of(((const struct limit *const *)limits)[index]->name));
}

/* --- label --- */

/* The label is sent in quoted strings of response headers (RFC 9651 section 3.3.3). */
static void read_label(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    if (ascii_fits(l, option, node, "\"\\", "printable ASCII without quotes and backslashes"))
        *(char **)field = keep_text(l, node);
}

const struct option_type type_label = {"text", read_label, print_text, false, sizeof(char *)};

/* --- one limit --- */

static void refuse_where_useless(struct loading *l, const struct node *node,
                                 const struct limit *limit)
{
    const struct node *burst = node_find(node, "burst"), *align = node_find(node, "align"),
                      *offset = node_find(node, "offset"), *enforce = node_find(node, "enforce"),
                      *dedup = node_find(node, "dedup"), *own = node_find(node, "options");

    if (burst && !limit_has_burst(limit))
        mistake_of_key(l, burst,
                       "%s has no burst; remove it, or use token_bucket, gcra or leaky_bucket",
                       limit->script);
    if (align && !limit_has_align(limit))
        mistake_of_key(l, align, "%s does not support align; remove it, or use fixed_window",
                       limit->script);
    if (offset && limit_has_align(limit) && limit->align != ALIGN_CLOCK)
        mistake_of_key(l, offset, "offset requires align: clock; add it");
    else if (offset && !limit_has_align(limit))
        mistake_of_key(l, offset,
                       "%s has no offset; remove it, or use fixed_window with align: clock",
                       limit->script);
    else if (offset && limit->period_us && !limit->calendar &&
             llabs(limit->offset_us) >= limit->period_us)
        mistake(l, offset, "must be less than the period");
    if (own && !limit_has_own_options(limit))
        mistake_of_key(l, own,
                       "%s does not support options; lockout and your own scripts (given by path) "
                       "do",
                       limit->script);
    if (limit->dedup.header && limit->counted)
        mistake_of_key(l, dedup,
                       "a limit with count refunds charges, which repeats of a request would "
                       "not see; remove one of the two");
    if (enforce && limit->shadow && node_find(node, "shadow"))
        mistake_of_key(l, enforce, "a shadow limit never rejects; remove one of the two");
}

static void refuse_in_flight(struct loading *l, const struct node *node, const struct limit *limit)
{
    static const struct {
        const char *key, *why;
    } useless[] = {
        {"period", "concurrency counts requests in flight and has no period; remove it"},
        {"best_effort", "a request in flight cannot be charged in part; remove best_effort"},
    };

    if (!limit_is_in_flight(limit))
        return;
    for (size_t i = 0; i < COUNT_OF(useless); i++) {
        const struct node *key = node_find(node, useless[i].key);
        if (key)
            mistake_of_key(l, key, "%s", useless[i].why);
    }
    if (limit->counted)
        mistake_of_key(
            l, node_find(node, "count"),
            "a request in flight has no status yet; remove count, or use another script");
    if (limit->dedup.header)
        mistake_of_key(l, node_find(node, "dedup"),
                       "a repeat is in flight too; remove dedup, or use another script");
}

static void refuse_to_hold(struct loading *l, const struct node *node, const struct limit *limit)
{
    const struct node *max_delay = node_find(node, "max_delay");

    if (limit->max_delay_us && limit->max_delay_us < PERIOD_MIN_US)
        mistake(l, max_delay, "must be 0 or at least 1ms");
    if (limit->max_delay_us && limit->counted)
        mistake_of_key(l, max_delay,
                       "a limit with count refunds charges, so the delays of other requests "
                       "would be too long; remove one of the two");
}

static void check_cost(struct loading *l, const struct node *node, const struct limit *limit)
{
    struct limit_numbers numbers = limit_numbers_of(limit);
    const struct node *cost = node_find(node, "cost");
    const struct limit_cost *own = limit->own_cost;

    if ((limit->cost > SMALL_COST_MAX ||
         (own && (own->reserve > SMALL_COST_MAX || own->max > SMALL_COST_MAX))) &&
        !limit_counts_large(limit))
        mistake(l, cost, "%s takes costs up to 1000000; for larger ones use %s", limit->script,
                large_scripts);
    if (cost && !limit->best_effort && limit->cost > limit_capacity(limit, &numbers))
        mistake(l, cost,
                "a cost of %lld can never be admitted: the limit admits at most %lld at once",
                (long long)limit->cost, (long long)limit_capacity(limit, &numbers));
}

/* Sets and checks everything that depends on several options of the limit. */
static void finish_limit(struct loading *l, const struct node *node, struct limit *limit)
{
    if (!limit->label)
        limit->label = limit->name;
    if (!node_find(node, "on_failure"))
        limit->on_failure = l->policy->redis.on_failure;
    if (!node_find(node, "shadow"))
        limit->shadow = l->policy->shadow;
    if (limit->shadow)
        limit->enforce = 0;
    limit_finish_windows(l, node, limit);
    if (limit->burst == 0 || !limit_has_burst(limit))
        limit->burst = limit->limit;
    if (!limit->script)
        return; /* reported; the other checks depend on it */
    limit_copy_options(limit);
    limit_finish_lease(l, node, limit);
    script_options_refuse(l, node, limit);
    refuse_where_useless(l, node, limit);
    refuse_in_flight(l, node, limit);
    refuse_to_hold(l, node, limit);
    limit_check_granted_header(l, node, limit);
    if (limit->limit && limit->period_us) {
        struct limit_numbers numbers = limit_numbers_of(limit);
        limit_check_numbers(l, node, limit, &numbers);
        check_cost(l, node, limit);
    }
}

void limit_read(struct loading *l, const struct node *node, struct limit *limit)
{
    options_read(l, node, "limits.NAME", limit);
    finish_limit(l, node, limit);
}

static void read_limit(struct loading *l, const struct node *node, struct limit *limit)
{
    limit->name = arena_text(l->arena, node->key);
    limit->position = node->key_position;
    if (name_is_good(l, node) && slice_equal(node->key, SLICE("none")))
        mistake_of_key(l, node, "none means no limits in a rule; choose another name");
    if (expect_map(l, node, "a map with script, limit and period"))
        limit_read(l, node, limit);
}

static void read_limits(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct policy *policy = field;

    if (!expect_entries(l, option, node, "a map of limits by name", "limits"))
        return;
    policy->limits = arena_zeroed(l->arena, node->count, sizeof *policy->limits);
    for (const struct node *child = node->first; child; child = child->next) {
        struct limit *limit = &policy->limits[policy->limit_count];
        limit->index = limit->base = policy->limit_count++;
        read_limit(l, child, limit);
    }
}

PRINT_MAP(print_limits, policy, limits, limit_count, "limits.NAME")

const struct option_type type_limits = {"map by name", read_limits, print_limits, true, 0};
