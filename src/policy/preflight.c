/* preflight.c - CORS preflights, which browsers send before a request to another origin. */
#include "policy/rule.h"

/* Returns true if the server receives the field, once and with a value. */
static bool has_value(const struct fields *fields, struct slice name)
{
    const struct field *field = fields_next_named(fields, name, NULL);
    return field && !field->hop_by_hop && field->value.n > 0 &&
           !fields_next_named(fields, name, field);
}

static bool names_options(const struct rule *rule)
{
    for (unsigned i = 0; i < rule->method_count; i++)
        if (slice_equal(rule->methods[i], SLICE("OPTIONS")))
            return true;
    return false;
}

bool rule_skips_preflight(const struct rule *rule, const struct request_head *head,
                          bool has_content)
{
    return head->method == METHOD_OPTIONS && !has_content &&
           !fields_have(&head->fields, FIELD_METHOD_OVERRIDE) &&
           has_value(&head->fields, SLICE("Origin")) &&
           has_value(&head->fields, SLICE("Access-Control-Request-Method")) && !names_options(rule);
}
