/* step_quota.c - QUOTA: looks up the client's quota from a database, if the policy has quotas.
 *
 * If the quota is not in the cache, weir requests it, keeps the request, and the exchange waits.
 * With identity.known_clients_only, the reply determines which identity source applies. */
#include "proxy/route.h"
#include "proxy/waiting_request.h"

/* --- Lookup ---------------------------------------------------------------------------------- */

enum quota_lookup {
    LOOKUP_DONE,    /* `outcome` and `row` are set */
    LOOKUP_PENDING, /* EVENT_QUOTA follows */
    LOOKUP_NO_MEMORY
};

/* Requests the quota from the database. LOOKUP_DONE: too many lookups are pending. */
static enum quota_lookup request_quota(struct exchange *x)
{
    struct worker *w = x->worker;

    if (!waiting_request_keep(x))
        return LOOKUP_NO_MEMORY;
    if (quota_client_request(w->quotas, x->policy, &w->incoming.identity, &x->quota))
        return LOOKUP_PENDING;
    counter_add(&w->stats.quota_refused, 1);
    return LOOKUP_DONE;
}

/* Finds the outcome in the cache, else requests it from the database. */
static enum quota_lookup look_up_quota(struct exchange *x, enum quota_outcome *outcome,
                                       struct quota_row *row)
{
    *outcome = QUOTA_UNKNOWN;
    if (!quota_client_find(x->worker->quotas, &x->worker->incoming.identity, outcome, row))
        return request_quota(x);
    counter_add(&x->worker->stats.quota_hits, 1);
    return LOOKUP_DONE;
}

/* Returns why an id without a quota is refused. CAUSE_NONE: the limits apply as configured or, with
 * known_clients_only, the next identity source is used. */
static enum cause cause_without_row(const struct policy *policy, enum quota_outcome outcome)
{
    if (outcome == QUOTA_UNKNOWN)
        return policy->quotas.on_failure == QUOTA_FAILURE_DENY ? CAUSE_QUOTA_UNAVAILABLE
                                                               : CAUSE_NONE;
    return policy->quotas.unknown_client == UNKNOWN_CLIENT_DENY &&
                   !policy->identity.known_clients_only
               ? CAUSE_UNKNOWN_CLIENT
               : CAUSE_NONE;
}

/* An operator's grant admits a client without a row, except with known_clients_only, where only
 * the database counts. */
static bool is_granted(const struct exchange *x, const struct identity *identity)
{
    return !x->policy->identity.known_clients_only &&
           limiter_has_grant(x->generation->limiter, identity);
}

/* The identity is final. If the database does not have the first id, it is another client, which
 * may be blocked or have another rule. */
static enum step identity_is_final(struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;

    if (in->identity.source != x->route.source) {
        if (policy_blocks(x->policy, &in->identity))
            return step_fail(x, CAUSE_CLIENT_BLOCKED, NULL);
        if (x->policy->rules_have_clients) {
            enum step step = route_select_rule(x, in->head, &in->identity);
            if (step != STEP_WAIT)
                return step;
        }
    }
    return route_is_final(x);
}

/* Replaces an id without a row by the identity of the next source. */
static bool next_identity(struct exchange *x, const char **why)
{
    struct incoming *in = &x->worker->incoming;
    struct identity_input input = route_identity_input(x, in->head);

    if (x->policy->identity.paths)
        route_add_content(x, &input);
    if (!identity_next(&input, &in->identity, why))
        return false;
    route_set_identity(x, &in->identity);
    return true;
}

enum step step_quota(struct exchange *x)
{
    const struct policy *policy = x->policy;
    struct incoming *in = &x->worker->incoming;
    bool answered = exchange_has(x, EVENT_QUOTA);
    const char *why;

    if (answered)
        waiting_request_restore(x);
    else if (!exchange_has(x, EVENT_ENTERED))
        return STEP_WAIT;
    for (; in->identity.is_id && !policy_client(policy, &in->identity); answered = false) {
        enum quota_outcome outcome = x->quota.outcome;
        struct quota_row row = x->quota.row;
        enum quota_lookup lookup = answered ? LOOKUP_DONE : look_up_quota(x, &outcome, &row);
        if (lookup != LOOKUP_DONE)
            return lookup == LOOKUP_PENDING ? STEP_WAIT : step_fail(x, CAUSE_NO_MEMORY, NULL);
        if (outcome == QUOTA_FOUND) {
            in->found = quota_client_limits(policy, &row);
            in->client_limits = &in->found;
            break;
        }
        enum cause refused = cause_without_row(policy, outcome);
        if (refused != CAUSE_NONE && !is_granted(x, &in->identity))
            return step_fail(x, refused, NULL);
        if (!policy->identity.known_clients_only)
            break;
        if (!next_identity(x, &why))
            return route_bad_identity(x, &in->identity, why);
    }
    return identity_is_final(x);
}
