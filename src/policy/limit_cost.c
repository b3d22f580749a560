#include "policy/limit_cost.h"

#include "policy/bounds.h"

enum { BYTES_PER_TOKEN = 4 }; /* of the estimate `reserve: auto` */

int64_t limit_cost_reserve(const struct limit_cost *own, const struct json_values *values,
                           uint64_t bytes)
{
    int64_t cost = own->reserve, limit = own->max ? own->max : INT64_MAX;
    int64_t value = json_values_first(values, &own->request_json);

    if (own->automatic && bytes != BYTES_UNKNOWN) {
        uint64_t tokens = bytes / BYTES_PER_TOKEN;
        cost = tokens > (uint64_t)limit ? limit : (int64_t)tokens;
        cost += value > 0 ? value : 0;
    } else if (value >= 0 && (value > cost || !values->doubtful))
        cost = value;
    cost = cost > limit ? limit : cost;
    return cost > 0 ? cost : 1;
}

int64_t limit_cost_final(const struct limit_cost *own, int64_t stated, bool error)
{
    if (!own || !limit_cost_is_adjusted(own))
        return -1;
    return stated < 0 && error && own->on_error == COST_ON_ERROR_REFUND ? 0 : stated;
}

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
