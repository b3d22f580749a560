/* request_cost.h - what a request states about its cost before the decision: in headers and in its
 * content. */
#ifndef WEIR_PROXY_REQUEST_COST_H
#define WEIR_PROXY_REQUEST_COST_H

#include "proxy/request_content.h"

/* Returns true if costs or keys of the rule's limits are in the content, which was not read. */
static inline bool request_cost_needs_content(const struct exchange *x)
{
    return x->route.rule->reads_request && request_content_state(x) == CONTENT_UNREAD &&
           (x->route.rule->request_paths || x->route.rule->adds_usage ||
            x->request.kind != FRAMING_LENGTH);
}

/* Reads the values of rule->request_paths, which are not NULL, in the content, if that was read. */
void request_values_read(struct exchange *x, struct json_values *values);

/* Sets exchange.reserves of the limits with costs of their own. Returns false if the request must
 * be rejected with 400 and the reason `*why`. */
bool request_cost_read(struct exchange *x, const struct json_values *values, const char **why);

#endif
