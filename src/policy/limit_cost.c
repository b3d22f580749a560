#include "policy/limit_cost.h"

#include "policy/bounds.h"

bool cost_in_request(const struct fields *fields, const char *header, int64_t max, int64_t *cost,
                     const char **why)
{
    const struct field *field = fields_next_named(fields, slice_of(header), NULL);
    uint64_t value;

    *cost = 0;
    if (!field)
        return true;
    if (fields_next_named(fields, slice_of(header), field)) {
        *why = "the cost header occurs twice";
        return false;
    }
    if (!slice_to_u64(field->value, INT64_MAX, &value) || value == 0) {
        *why = "the cost header is not a whole number of 1 or more";
        return false;
    }
    *cost = (int64_t)value < max ? (int64_t)value : max;
    return true;
}

int64_t cost_in_response(const struct fields *fields, const char *header)
{
    const struct field *field = header ? fields_next_named(fields, slice_of(header), NULL) : NULL;
    uint64_t value;

    if (!field || fields_next_named(fields, slice_of(header), field) ||
        !slice_to_u64(field->value, INT64_MAX, &value))
        return -1;
    return value < LIMIT_MAX ? (int64_t)value : LIMIT_MAX;
}
