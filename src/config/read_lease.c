/* read_lease.c - limits.NAME.lease. */
#include "config/sections.h"
#include "policy/shipped_limiter.h"

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

static void print_lease(const struct printer *printer, const struct option *option,
                        const void *field)
{
    const struct limit *limit = field;

    if (limit_is_in_flight(limit))
        type_duration.print(printer, option, &limit->lease_us);
    else if (limit->lease_units == LEASE_AUTO)
        fputs(" auto\n", printer->out);
    else if (limit->lease_units == 0)
        fputs(" off\n", printer->out);
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
