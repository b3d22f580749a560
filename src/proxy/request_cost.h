/* request_cost.h - what a request tells about its cost before the decision: in headers and in its
 * content. */
#ifndef WEIR_PROXY_REQUEST_COST_H
#define WEIR_PROXY_REQUEST_COST_H

#include "content/json_values.h"
#include "proxy/exchange_state.h"

/* Returns true if the content must be read before the decision: PHASE_CONTENT. */
static inline bool request_cost_needs_content(const struct exchange *x)
{
    return x->route.rule->reads_request && x->request.kind != FRAMING_NONE &&
           !x->downstream->origin->decides &&
           (x->route.rule->request_paths || x->request.kind != FRAMING_LENGTH);
}

/* Reads the values of rule->request_paths in the content, which is whole in memory. */
void request_values_read(struct exchange *x, struct json_values *values);

/* Sets exchange.reserves of the limits with costs of their own. Returns false if the request must
 * be rejected with 400 and the reason `*why`. */
bool request_cost_read(struct exchange *x, const struct json_values *values, const char **why);

#endif
