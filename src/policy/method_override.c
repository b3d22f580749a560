/* method_override.c - X-HTTP-Method-Override and similar headers, which many frameworks obey. */
#include "http/parse.h"
#include "policy/rule_choice.h"

enum { METHOD_LONGEST = 32 }; /* longest method in a rule */

static bool counts_by_method(const struct rule *rule)
{
    for (unsigned i = 0; i < rule->limit_count; i++)
        for (unsigned k = 0; k < rule->limits[i]->per_count; k++)
            if (rule->limits[i]->per[k].per == PER_METHOD)
                return true;
    return false;
}

/* Frameworks convert the override to upper case. Some trim more than whitespace, so an override
 * that is not a token never agrees. */
static bool override_agrees(const struct policy *policy, const struct rule *rule,
                            const struct rule_request *request, struct slice override)
{
    char room[METHOD_LONGEST];
    size_t n = override.n;

    if (n > sizeof room || !slice_is_token(override))
        return false;
    for (size_t i = 0; i < n; i++)
        room[i] = (char)(override.p[i] >= 'a' && override.p[i] <= 'z' ? override.p[i] & ~0x20
                                                                      : override.p[i]);
    struct rule_request overridden = *request;
    overridden.method = (struct slice){room, n};
    return slice_equal(overridden.method, request->method) ||
           (policy_match(policy, &overridden) == rule && !counts_by_method(rule));
}

bool policy_overrides_agree(const struct policy *policy, const struct rule *rule,
                            const struct rule_request *request)
{
    const struct fields *fields = &request->criteria.facts->head->fields;

    if (!fields_have(fields, FIELD_METHOD_OVERRIDE))
        return true;
    for (const struct field *field = fields->at; field < fields->at + fields->count; field++) {
        struct slice rest = field->value, element;
        if (field->id != FIELD_METHOD_OVERRIDE || field->hop_by_hop)
            continue;
        while (slice_next_element(&rest, &element))
            if (!override_agrees(policy, rule, request, element))
                return false;
    }
    return true;
}
