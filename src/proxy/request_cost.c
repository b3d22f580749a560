#include "proxy/request_cost.h"

void request_values_read(struct exchange *x, struct json_values *values)
{
    if (request_content_state(x) == CONTENT_VALUES)
        (void)request_content_read(x, x->route.rule->request_paths, values);
}

/* Returns the length of the content, as far as it is known before the decision. */
static uint64_t content_length(const struct exchange *x)
{
    const struct framing *framing = &x->worker->incoming.framing;

    return framing->kind == FRAMING_LENGTH ? framing->length : x->request.bytes;
}

bool request_cost_read(struct exchange *x, const struct json_values *values, const char **why)
{
    const struct incoming *in = &x->worker->incoming;
    uint64_t bytes = x->downstream->origin->decides ? BYTES_UNKNOWN : content_length(x);

    return rule_limit_costs(x->route.rule, in->identity.peer_trusted, &in->head->fields, values,
                            bytes, x->reserves, why);
}
