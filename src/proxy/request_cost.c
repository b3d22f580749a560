#include "proxy/request_cost.h"

enum { BYTES_PER_TOKEN = 4 }; /* of the estimate `reserve: auto` */

void request_values_read(struct exchange *x, struct json_values *values)
{
    json_values_clear(values);
    if (x->route.rule->request_paths && request_content_state(x) == CONTENT_VALUES)
        (void)request_content_read(x, x->route.rule->request_paths, values);
}

/* Returns the length of the content, as far as it is known before the decision. */
static uint64_t content_length(const struct exchange *x)
{
    const struct framing *framing = &x->worker->incoming.framing;

    return framing->kind == FRAMING_LENGTH ? framing->length : x->request.bytes;
}

static int64_t cost_before_response(const struct limit_cost *own, const struct exchange *x,
                                    int64_t value)
{
    int64_t cost = own->reserve, limit = own->max ? own->max : INT64_MAX;

    if (own->automatic && !x->downstream->origin->decides) {
        uint64_t bytes = content_length(x);
        cost =
            bytes / BYTES_PER_TOKEN > (uint64_t)limit ? limit : (int64_t)(bytes / BYTES_PER_TOKEN);
        cost += value > 0 ? value : 0;
    } else if (value >= 0)
        cost = value;
    cost = cost > limit ? limit : cost;
    return cost > 0 ? cost : 1;
}

bool request_cost_read(struct exchange *x, const struct json_values *values, const char **why)
{
    const struct incoming *in = &x->worker->incoming;
    const struct rule *rule = x->route.rule;

    if (!rule_limit_costs(rule, in->identity.peer_trusted, &in->head->fields, x->reserves, why))
        return false;
    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit_cost *own = rule->limits[i]->own_cost;
        if (own && !x->reserves[i])
            x->reserves[i] =
                cost_before_response(own, x, json_values_first(values, &own->request_json));
    }
    return true;
}
