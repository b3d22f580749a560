/* method_override.c - X-HTTP-Method-Override and similar headers, which many frameworks obey. */
#include "http/parse.h"
#include "policy/rule_choice.h"

enum {
    METHOD_LONGEST = 32, /* longest method in a rule */
    OVERRIDES_MAX = 4    /* per request: each is matched in all readings of the path */
};

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

/* The elements of all fields that override the method. */
struct overrides {
    const struct field *field, *end;
    struct slice rest;
};

static struct overrides overrides_of(const struct fields *fields)
{
    bool any = fields_have(fields, FIELD_METHOD_OVERRIDE);
    const struct field *end = fields->at + fields->count;

    return (struct overrides){.field = any ? fields->at : end, .end = end};
}

static bool next_override(struct overrides *overrides, struct slice *method)
{
    while (!slice_next_element(&overrides->rest, method)) {
        if (overrides->field == overrides->end)
            return false;
        const struct field *field = overrides->field++;
        if (field->id == FIELD_METHOD_OVERRIDE && !field->hop_by_hop)
            overrides->rest = field->value;
    }
    return true;
}

bool policy_overrides_are_few(const struct fields *fields)
{
    struct overrides overrides = overrides_of(fields);
    struct slice method;
    unsigned count = 0;

    while (next_override(&overrides, &method))
        if (++count > OVERRIDES_MAX)
            return false;
    return true;
}

bool policy_overrides_agree(const struct policy *policy, const struct rule *rule,
                            const struct rule_request *request)
{
    struct overrides overrides = overrides_of(&request->criteria.facts->head->fields);
    struct slice method;

    while (next_override(&overrides, &method))
        if (!override_agrees(policy, rule, request, method))
            return false;
    return true;
}
