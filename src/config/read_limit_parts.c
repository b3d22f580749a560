/* read_limit_parts.c - single options of a limit: dedup, granted_header and lease; copies of a
 * limit with other periods. */
#include <stdlib.h>

#include "config/sections.h"
#include "http/head.h"
#include "policy/shipped_limiter.h"
#include "policy/zone.h"

/* ---- dedup ----------------------------------------------------------------------------------- */

static void read_dedup(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct dedup_settings *dedup = field;

    if (node->null)
        return;
    if (node->kind == NODE_SCALAR) { /* only the header name */
        dedup->repeats = DEDUP_REPEATS_DEFAULT;
        type_text.read(l, option, node, &dedup->header);
    } else if (expect_map(l, node, "a header name or a map such as { header: Idempotency-Key }"))
        options_read(l, node, option->path, field);
    if (dedup->header && !slice_is_token(slice_of(dedup->header))) {
        const struct node *header = node->kind == NODE_SCALAR ? node : node_find(node, "header");
        mistake(l, header, "%s is not a header name", QUOTE(slice_of(dedup->header)));
    }
}

static void print_dedup(const struct printer *printer, const void *field)
{
    const struct dedup_settings *dedup = field;

    if (dedup->header)
        type_section.print(printer, field);
    else
        fputs(" null\n", printer->out);
}

const struct option_type type_dedup = {"map or text", read_dedup, print_dedup, true, 0};

/* ---- granted_header -------------------------------------------------------------------------- */

static void read_own_header(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    if (node->null)
        return;
    if (!expect_text(l, option, node, "a header's name"))
        return;
    const enum field_id id = field_id_of(node->text);
    if (!slice_is_token(node->text) || (id != FIELD_OTHER && id != FIELD_PROXY_CLAIM)) {
        mistake(l, node, "%s cannot be set: use the name of a header that weir does not know",
                QUOTE(node->text));
        return;
    }
    *(char **)field = keep_text(l, node);
}

const struct option_type type_own_header = {"text", read_own_header, print_text, true,
                                            sizeof(char *)};

static bool any_rule_has_best_effort(const struct node *rules)
{
    const struct node *item = rules && rules->kind == NODE_LIST ? list_first(rules) : NULL;

    for (; item; item = list_next(rules, item))
        if (node_find(item, "best_effort"))
            return true;
    return false;
}

void limit_check_granted_header(struct loading *l, const struct node *node,
                                const struct limit *limit)
{
    const struct node *key = node_find(node, "granted_header");

    if (!limit->granted_header)
        return;
    l->policy->has_granted_headers = true;
    if (!limit->best_effort && !any_rule_has_best_effort(node_find(l->root, "rules")))
        mistake_of_key(l, key,
                       "without best_effort the whole cost is granted; add best_effort: true");
    for (const struct limit *other = l->policy->limits; other < limit; other++)
        if (other->granted_header &&
            slice_equal_nocase(slice_of(other->granted_header), slice_of(limit->granted_header)))
            mistake(l, key, "limit %s has this header too; choose another name", other->name);
}

/* ---- lease ----------------------------------------------------------------------------------- */

#define LEASE_DEFAULT_US INT64_C(10000000) /* default lease of concurrency limits, µs */

/* limit->script is set, since it is read earlier. */
static void read_lease(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    static const char expected[] = "auto, off, or the number of units per lease, 1 to 100000";
    struct limit *limit = field;
    uint64_t units = 0;

    if (limit_is_in_flight(limit)) {
        type_duration.read(l, option, node, &limit->lease_us);
        return;
    }
    if (!expect_scalar(l, node, expected))
        return;
    if (slice_equal(node->text, SLICE("auto")))
        limit->lease_units = LEASE_AUTO;
    else if (slice_equal(node->text, SLICE("off")))
        limit->lease_units = 0;
    else if (slice_to_u64(node->text, LEASE_MOST, &units) && units > 0)
        limit->lease_units = (int64_t)units;
    else
        mistake(l, node, "%s is neither; expected %s", QUOTE(node->text), expected);
}

static void print_lease(const struct printer *printer, const void *field)
{
    const struct limit *limit = field;

    if (limit_is_in_flight(limit))
        type_duration.print(printer, &limit->lease_us);
    else if (limit->lease_units == LEASE_AUTO)
        fputs(" auto\n", printer->out);
    else if (limit->lease_units == 0)
        print_scalar_value(printer, SLICE("off"));
    else
        fprintf(printer->out, " %lld\n", (long long)limit->lease_units);
}

const struct option_type type_lease = {"auto, off or number", read_lease, print_lease, false, 0};

/* Returns why units of this limit cannot be leased, that is, charged before use; NULL: they can. */
static const char *no_lease(const struct limit *limit)
{
    if (limit->kind == LIMIT_CUSTOM)
        return "it is not known how your own script counts units that are used later than they are "
               "charged";
    if (limit->max_delay_us)
        return "a queue delays each request individually";
    if (limit->own_cost)
        return "its requests have different costs";
    if (limit->shipped && !limit->shipped->leases)
        return "a unit that is used later than it is charged would expire too early";
    return NULL;
}

void limit_finish_lease(struct loading *l, const struct node *node, struct limit *limit)
{
    const struct node *lease = node_find(node, "lease");
    const char *why = no_lease(limit);

    if (limit_is_in_flight(limit)) {
        if (!limit->lease_us)
            limit->lease_us = LEASE_DEFAULT_US;
        limit->period_us = limit->lease_us;
        return;
    }
    if (!lease)
        limit->lease_units = why ? 0 : LEASE_AUTO;
    if (lease && why && limit->lease_units != 0)
        mistake(l, lease, "%s does not support leases: %s; remove it, or use off", limit->script,
                why);
    if (why)
        limit->lease_units = 0;
}

/* ---- periods of plans and clients: copies of limits that differ only in the period ----------- */

static const int64_t day_us = INT64_C(86400000000);

static bool same_period(const struct limit *a, const struct limit *b)
{
    return a->base == b->base && a->period_us == b->period_us && a->calendar == b->calendar;
}

/* A counter that several clients share has one period: with two, each request would count it by
 * its own client's, and the shorter would reset what the longer one counts. */
static bool may_vary(struct loading *l, const struct node *period, const struct limit *limit)
{
    if (limit->kind == LIMIT_CONCURRENCY)
        mistake_of_key(l, period,
                       "concurrency counts requests in flight and has no period; remove it");
    else if (!limit_is_per_client(limit))
        mistake_of_key(
            l, period,
            "clients share the count of limit %s, so it has one period; add client to its per, or "
            "write a rule with match: { client: ... } and a limit of its own",
            limit->name);
    else
        return true;
    return false;
}

/* Sets the windows of a limit whose period has changed, as limit_finish_windows() does. */
static bool windows_fit(struct loading *l, const struct node *period, struct limit *made)
{
    bool was_calendar = made->zone != NULL;

    if (!made->calendar && was_calendar && made->period_us == day_us)
        made->calendar = CALENDAR_DAY;
    if (made->calendar && !limit_has_align(made)) {
        mistake(l, period,
                "%s does not support calendar periods; write a duration, or use fixed_window",
                made->script);
        return false;
    }
    if (made->calendar && !made->zone) {
        made->time_zone = arena_text(l->arena, SLICE("UTC"));
        made->zone = arena_zeroed(l->arena, 1, sizeof *made->zone);
    }
    if (made->calendar)
        made->align = ALIGN_CLOCK;
    if (llabs(made->offset_us) >= limit_shortest_window(made)) {
        mistake(l, period, "is not more than the offset of limit %s", made->name);
        return false;
    }
    if (made->calendar && made->offset_us % 1000000 != 0) {
        mistake(l, period, "follows the calendar, so the offset of limit %s takes whole seconds",
                made->name);
        return false;
    }
    return true;
}

const struct limit *limit_variant(struct loading *l, const struct node *period,
                                  const struct limit *limit, const struct limit *written)
{
    struct policy *policy = l->policy;
    struct limit made = *limit;

    if (!limit->script || !limit->period_us || !may_vary(l, period, limit))
        return NULL;
    made.period_us = written->period_us;
    limit_copy_options(&made);
    made.calendar = written->calendar;
    if (!windows_fit(l, period, &made) || same_period(&made, limit))
        return NULL;
    for (unsigned i = 0; i < policy->variant_count; i++)
        if (same_period(policy->variants[i], &made))
            return policy->variants[i];
    if (policy->variant_count == VARIANTS_MAX) {
        mistake(l, period, "plans and clients have more than %d other periods", VARIANTS_MAX);
        return NULL;
    }
    if (!policy->variants)
        policy->variants = arena_zeroed(l->arena, VARIANTS_MAX, sizeof *policy->variants);
    made.index = policy->limit_count + policy->variant_count;
    policy->variants[policy->variant_count] = arena_zeroed(l->arena, 1, sizeof made);
    *policy->variants[policy->variant_count] = made;
    return policy->variants[policy->variant_count++];
}
