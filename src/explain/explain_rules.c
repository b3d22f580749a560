/* explain_rules.c - how servers may read the path, and why each rule up to the chosen one does not
 * match. */
#include "explain/explainer.h"
#include "proxy/route.h"

/* Tries the rules up to the first that matches, or may match. Returns that rule. NULL: none. */
static const struct rule *try_rules(struct explainer *m, const struct rule_request *request)
{
    const struct policy *policy = m->policy;
    struct tried_rule *tried = arena_zeroed(&m->arena, policy->rule_count, sizeof *tried);

    m->now.rules = tried;
    for (unsigned i = 0; i < policy->rule_count; i++) {
        tried[i].rule = &policy->rules[i];
        tried[i].truth = rule_try(tried[i].rule, request, &tried[i].miss);
        m->now.rule_count = i + 1;
        if (tried[i].truth != TRUTH_NO)
            return tried[i].rule;
    }
    return NULL;
}

/* `first` is the rule of the normal form. */
static void explain_readings(struct explainer *m, const struct rule_request *request,
                             const struct rule *first)
{
    struct tried_reading *tried = arena_zeroed(&m->arena, READINGS_MAX, sizeof *tried);
    struct readings *readings = &m->room.readings;
    struct slice reading;

    m->now.readings = tried;
    m->now.readings_compared = policy_compares_readings(m->policy);
    readings_begin(readings, m->now.normal);
    while (m->now.reading_count < READINGS_MAX && readings_next(readings, &reading)) {
        struct tried_reading *one = &tried[m->now.reading_count++];
        one->path = explain_copy(m, reading);
        if (m->now.readings_compared && first)
            one->rule = policy_rule_of_reading(m->policy, request, reading, first, &m->room);
    }
    m->now.too_many_readings = readings->too_many;
}

void explain_rules(struct explainer *m, struct exchange *x)
{
    enum content_result result = CONTENT_NONE;
    struct content_facts content = route_content_facts(x, &m->values, &result);
    struct request_facts given = route_facts(x, &m->sorted, &m->identity, &content);
    struct rule_request request;
    struct slice normal;

    if (policy_read_request(m->policy, &given, &m->room, &request, &normal))
        return;
    m->now.normal = explain_copy(m, normal);
    const struct rule *first = try_rules(m, &request);
    if (!m->sorted.path_is_plain)
        explain_readings(m, &request, first);
}
