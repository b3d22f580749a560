#include "proxy/route.h"

#include "http/via.h"

/* A request may pass through the same weir twice, on its way through a gateway behind it. */
enum { PASSES_MAX = 3 };

/* TRACE is refused: the response would show the sender the fields that proxies have added (RFC 9110
 * section 9.3.8). */
enum cause route_refusal(const struct request_head *head, bool decides)
{
    if (head->method == METHOD_TRACE)
        return CAUSE_METHOD_NOT_ALLOWED;
    bool loops = fields_have(&head->fields, FIELD_VIA) && !decides &&
                 via_passes(&head->fields) >= PASSES_MAX;
    return loops ? CAUSE_LOOP : CAUSE_NONE;
}

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
    if (why) {
        enum cause cause =
            content.decides ? request_content_refusal(result, &why) : CAUSE_BAD_REQUEST;
        return step_fail(x, cause, why);
    }
    x->route.rule = route.rule;
    x->route.path = route.path;
    x->route.source = identity->source;
    return STEP_WAIT;
}
