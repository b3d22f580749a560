/* step_route.c - ROUTE: the client's identity, the rule and the size limits, from a parsed head. */
#include "proxy/access_log.h"
#include "proxy/client_requests.h"
#include "proxy/decision_listener.h"
#include "proxy/route.h"

/* The database may have later sources only, of which one reads the content: it is read before. */
static bool reads_content_first(const struct policy *policy, const struct identity_input *input)
{
    return policy->quotas.connection && policy->identity.known_clients_only && input->content &&
           input->content->state == CONTENT_UNREAD;
}

/* Sets the identity and the client's address, and counts the request there. STEP_NEXT: nothing is
 * wrong with it, or the content is needed. `again`: it has been read for the identity. */
static enum step identify(struct exchange *x, const struct identity_input *input, bool again)
{
    struct identity *identity = &x->worker->incoming.identity;
    const char *why;
    bool good =
        again ? identity_of_content(input, identity, &why) : identity_of(input, identity, &why);

    bool is_final = !identity->needs_content; /* else the content may name another client */
    identity->needs_content |= good && reads_content_first(x->policy, input);
    x->client_ip = identity->ip;
    x->has_client_ip = identity->has_ip;
    if (good)
        route_set_identity(x, identity);
    if (identity->listed == LISTED_BLOCKED)
        return step_fail(x, CAUSE_ADDRESS_BLOCKED, NULL);
    if (!good)
        return route_bad_identity(x, identity, why);
    if (is_final && policy_blocks(x->policy, identity))
        return step_fail(x, CAUSE_CLIENT_BLOCKED, NULL);
    return again || client_requests_enter(x, identity) ? STEP_NEXT
                                                       : step_fail(x, CAUSE_CLIENT_REQUESTS, NULL);
}

/* On the decision listener, the request in the access log is the one to decide on. */
static enum step begin_log(struct exchange *x, struct request_head *head)
{
    enum cause cause = CAUSE_NONE;
    const char *why = NULL;
    bool good = !x->downstream->origin->decides || decision_head(x, head, &cause, &why);

    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin(x, head);
    return good ? STEP_NEXT : step_fail(x, cause, why);
}

/* With Max-Forwards: 0, weir is the recipient of OPTIONS (RFC 9110 section 7.6.2). */
static enum step check_request(struct exchange *x, struct request_head *head)
{
    policy_sort_headers(x->policy, &x->worker->incoming.identity, &head->fields);
    enum cause cause = route_refusal(head, x->downstream->origin->decides);
    if (cause != CAUSE_NONE)
        return step_fail(x, cause, NULL);
    return head->max_forwards == 0 ? step_reply_with(x, 204) : STEP_WAIT;
}

/* The identity is known, and the content if a rule has needed it. */
static enum step choose_rule(struct exchange *x, const struct identity_input *input)
{
    struct incoming *in = &x->worker->incoming;
    uint64_t body_max = x->policy->size_limits.request_body;
    enum step step = route_select_rule(x, in->head, &in->identity);

    if (step != STEP_FAIL && body_max && in->framing.kind == FRAMING_LENGTH &&
        in->framing.length > body_max)
        return step_fail(x, CAUSE_CONTENT_TOO_LARGE, NULL);
    if (step != STEP_WAIT)
        return step;
    in->client_limits = NULL;
    if (!x->policy->quotas.connection || !identity_needs_quota(input, x->route.rule, &in->identity))
        return route_is_final(x);
    /* The database may determine another identity, and so another rule. */
    bool unread = x->policy->match_paths && request_content_state(x) == CONTENT_UNREAD;
    x->route.rule = unread ? NULL : x->route.rule;
    return step_enter(x, unread ? PHASE_CONTENT : PHASE_QUOTA);
}

/* A flood of invented keys must not hold many requests, and one address not all of these. */
enum { KEYS_AWAITED_MAX = 64, KEYS_AWAITED_PER_ADDRESS_MAX = 8 };

/* Returns whether the request's address leaves places to others. */
static bool address_may_await_keys(struct exchange *x, const struct identity_input *input)
{
    const struct exchange *waiting;
    struct identity identity;
    unsigned count = 0;

    identity_find_address(input, &identity);
    if (identity.listed == LISTED_BLOCKED)
        return false;
    x->keys.counts = client_requests_group(x, &identity, &x->keys.group);
    TAILQ_FOREACH (waiting, &x->worker->keys_awaited, keys.link)
        count += waiting->keys.counts && x->keys.counts &&
                 memcmp(&waiting->keys.group, &x->keys.group, sizeof x->keys.group) == 0;
    return count < KEYS_AWAITED_PER_ADDRESS_MAX;
}

/* The issuer may have a new key. Nothing has been counted yet, so ROUTE can begin again. */
static bool waits_for_keys(struct exchange *x, const struct identity_input *input)
{
    return x->generation->tokens && x->keys.wait != KEYS_OVERDUE &&
           x->worker->keys_awaited_count < KEYS_AWAITED_MAX &&
           token_checker_should_wait(x->generation->tokens, input->fields) &&
           address_may_await_keys(x, input);
}

enum step step_route(struct exchange *x)
{
    struct request_head *head = x->worker->incoming.head;

    /* In its second pass, ROUTE has the header that KEYS or CONTENT has kept. */
    if (!x->waiting && begin_log(x, head) == STEP_FAIL)
        return STEP_FAIL;
    struct identity_input input = route_identity_input(x, head);
    if (x->policy->identity.jwt.remote_count && waits_for_keys(x, &input))
        return step_enter(x, PHASE_KEYS);
    if (x->policy->identity.paths)
        route_add_content(x, &input);
    bool again = x->request.inspection != INSPECTION_NONE; /* CONTENT has restored the request */
    if (again && !x->worker->incoming.identity.needs_content)
        return choose_rule(x, &input);
    if (identify(x, &input, again) == STEP_FAIL)
        return STEP_FAIL;
    if (x->worker->incoming.identity.needs_content)
        return step_enter(x, PHASE_CONTENT);
    enum step step = check_request(x, head);
    return step == STEP_WAIT ? choose_rule(x, &input) : step;
}
