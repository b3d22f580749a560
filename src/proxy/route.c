#include "proxy/route.h"

enum step route_bad_identity(struct exchange *x, const struct identity *identity, const char *why)
{
    bool token = identity->failure == IDENTITY_INVALID_TOKEN;

    return step_fail(x, token ? CAUSE_INVALID_TOKEN : CAUSE_BAD_IDENTITY, why);
}

const char *route_select_rule(struct exchange *x, const struct request_head *head,
                              const struct identity *identity)
{
    struct route_request request = {head, identity, x->downstream->origin->secure};
    struct route route;
    const char *why = policy_route(x->policy, &request, &x->worker->route, &route);

    if (!why) {
        x->route.rule = route.rule;
        x->route.path = route.path;
        x->route.source = identity->source;
    }
    return why;
}
