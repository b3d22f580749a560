/* route.h - the identity and the rule of an exchange's request: for step_route.c, and for
 * step_quota.c, where the database determines which identity source applies. */
#ifndef WEIR_PROXY_ROUTE_H
#define WEIR_PROXY_ROUTE_H

#include "proxy/request_content.h"
#include "proxy/step.h"

/* Returns the parts of the request that determine its identity. */
static inline struct identity_input route_identity_input(const struct exchange *x,
                                                         const struct request_head *head)
{
    return (struct identity_input){
        .policy = x->policy,
        .peer = {.source = &x->downstream->origin->peer,
                 .unknown = x->downstream->origin->peer_unknown,
                 .trusted = x->downstream->origin->decides},
        .certificate = x->downstream->origin->certificate,
        .fields = &head->fields,
        .query = head->query,
        .tokens = x->generation->tokens,
    };
}

/* Lets the sources of `input` see the content, as far as it is read, during this step: for a policy
 * with json sources. */
void route_add_content(struct exchange *x, struct identity_input *input);

/* Stores the identity's text in the exchange. */
static inline void route_set_identity(struct exchange *x, const struct identity *identity)
{
    memcpy(x->identity, identity->text, identity->size);
    x->identity_size = identity->size;
}

/* Client and rule are final: the next phase is CONTENT, if costs or keys of the rule's limits are
 * in content that was not read, or LIMIT. */
static inline enum step route_is_final(struct exchange *x)
{
    const struct rule *rule = x->route.rule;
    bool reads = rule->reads_request && request_content_state(x) == CONTENT_UNREAD &&
                 (rule->request_paths || rule->adds_usage || x->request.kind != FRAMING_LENGTH);

    return step_enter(x, reads ? PHASE_CONTENT : PHASE_LIMIT);
}

/* The identity is malformed: `why` is the detail. */
enum step route_bad_identity(struct exchange *x, const struct identity *identity, const char *why);

/* Returns why weir does not forward any request with this header; CAUSE_NONE: there is no reason.
 * `decides`: on the decision listener. */
enum cause route_refusal(const struct request_head *head, bool decides);

/* Returns what rules match on in the content. `values` is room for it. Sets `*result` if the
 * content has been read. */
struct content_facts route_content_facts(struct exchange *x, struct json_values *values,
                                         enum content_result *result);

/* Returns what rules match on. It points to the other arguments. */
struct request_facts route_facts(const struct exchange *x, const struct request_head *head,
                                 const struct identity *identity, struct content_facts *content);

/* Sets rule and path: STEP_WAIT. STEP_NEXT: a rule matches on the content, which is read first.
 * STEP_FAIL: the request must be rejected. */
enum step route_select_rule(struct exchange *x, const struct request_head *head,
                            const struct identity *identity);

#endif
