/* lint_costs.c - warns about clients whose own limit is below the cost of a request. */
#include "config/lint.h"

/* Returns the highest fixed cost of a request per limit. */
static int64_t *highest_costs(struct loading *l)
{
    const struct policy *policy = l->policy;
    int64_t *highest = arena_zeroed(&l->scratch, policy->limit_count, sizeof *highest);

    for (unsigned i = 0; i < policy->rule_count; i++)
        for (unsigned j = 0; j < policy->rules[i].limit_count; j++) {
            const struct rule *rule = &policy->rules[i];
            const struct limit *limit = rule->limits[j];
            int64_t cost = rule_cost_in(rule, limit);
            if (!rule_best_effort(rule, limit) && limit->kind != LIMIT_CONCURRENCY &&
                cost > highest[limit->index])
                highest[limit->index] = cost;
        }
    return highest;
}

static void warn_of_numbers(struct loading *l, const int64_t *highest,
                            const struct limit_numbers *numbers, const char *section,
                            const char *name, struct position position)
{
    char text[256];

    for (unsigned i = 0; numbers && i < l->policy->limit_count; i++) {
        const struct limit *limit = &l->policy->limits[i];
        int64_t capacity = limit_capacity(limit, &numbers[i]);
        if (highest[i] <= capacity)
            continue;
        snprintf(text, sizeof text,
                 "%s.%s: a request may cost %lld, and limit %s holds %lld: it is always rejected",
                 section, name, (long long)highest[i], limit->name, (long long)capacity);
        report_line_add(l->report, true, position, text);
        return;
    }
}

void warn_of_costs(struct loading *l)
{
    const struct policy *policy = l->policy;
    const int64_t *highest = highest_costs(l);

    for (unsigned i = 0; i < policy->plan_count; i++)
        warn_of_numbers(l, highest, policy->plans[i].numbers, "plans", policy->plans[i].name,
                        policy->plans[i].position);
    for (unsigned i = 0; i < clients_count(policy->clients); i++) {
        const struct client_limits *client_limits = &clients_at(policy->clients, i)->client_limits;
        bool as_in_plan = client_limits->plan && client_limits->plan->numbers &&
                          client_limits->numbers &&
                          memcmp(client_limits->plan->numbers, client_limits->numbers,
                                 policy->limit_count * sizeof *client_limits->numbers) == 0;
        if (client_limits->quota == QUOTA_AS_WRITTEN && !as_in_plan)
            warn_of_numbers(l, highest, client_limits->numbers, "clients", client_limits->name,
                            client_limits->position);
    }
}
