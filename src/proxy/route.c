#include "proxy/route.h"

void route_add_content(struct exchange *x, struct identity_input *input)
{
    struct incoming *in = &x->worker->incoming;

    in->content = (struct content_facts){.state = request_content_state(x), .values = &in->values};
    if (in->content.state == CONTENT_VALUES &&
        request_content_read(x, x->policy->identity.paths, &in->values) != CONTENT_READ)
        in->content.state = CONTENT_UNSURE;
    input->content = &in->content;
}

enum step route_bad_identity(struct exchange *x, const struct identity *identity, const char *why)
{
    bool token = identity->failure == IDENTITY_INVALID_TOKEN;

    return step_fail(x, token ? CAUSE_INVALID_TOKEN : CAUSE_BAD_IDENTITY, why);
}

struct content_facts route_content_facts(struct exchange *x, struct json_values *values,
                                         enum content_result *result)
{
    struct content_facts facts = {.state = CONTENT_ABSENT, .values = values};

    if (!x->policy->match_paths)
        return facts;
    facts.state = request_content_state(x);
    if (facts.state == CONTENT_VALUES &&
        (*result = request_content_read(x, x->policy->match_paths, values)) != CONTENT_READ)
        facts.state = CONTENT_UNSURE;
    return facts;
}

struct request_facts route_facts(const struct exchange *x, const struct request_head *head,
                                 const struct identity *identity, struct content_facts *content)
{
    return (struct request_facts){.head = head,
                                  .identity = identity,
                                  .https = x->downstream->origin->secure,
                                  .content = content};
}

static enum step refuse_content(struct exchange *x, enum content_result result)
{
    if (result == CONTENT_TOO_LARGE)
        return step_fail(x, CAUSE_CONTENT_TOO_LARGE,
                         "a rule matches on it; see size_limits.inspected_content");
    return step_fail(x, CAUSE_BAD_REQUEST,
                     result == CONTENT_COMPRESSED ? "a rule matches on the content, which is "
                                                    "compressed"
                     : result == CONTENT_READ     ? "a name in the content, which a rule matches "
                                                    "on, stands there twice"
                                                  : "a rule matches on the content, which is no "
                                                    "valid JSON object");
}

enum step route_select_rule(struct exchange *x, const struct request_head *head,
                            const struct identity *identity)
{
    struct json_values values;
    enum content_result result = CONTENT_NONE;
    struct content_facts content = route_content_facts(x, &values, &result);
    struct request_facts request = route_facts(x, head, identity, &content);
    struct route route;
    const char *why = policy_route(x->policy, &request, &x->worker->route, &route);

    if (content.state == CONTENT_UNREAD && content.decides)
        return step_enter(x, PHASE_CONTENT);
    if (why && content.decides)
        return refuse_content(x, result);
    if (why)
        return step_fail(x, CAUSE_BAD_REQUEST, why);
    x->route.rule = route.rule;
    x->route.path = route.path;
    x->route.source = identity->source;
    return STEP_WAIT;
}
