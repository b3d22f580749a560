#include "proxy/quota_wait.h"

#include "proxy/exchange_internal.h"

/* --- Waiting --------------------------------------------------------------------------------- */

static void settled(struct quota_wait *wait)
{
    struct exchange *x = CONTAINER_OF(wait, struct exchange, quota);
    struct worker *w = x->worker;
    struct iobuf *kept = x->head;
    struct framing framing;
    struct refusal refusal;

    x->head = NULL;
    x->quota_told = true;
    /* The header was parsed before, so parsing it again succeeds. */
    if (request_head_parse(iobuf_slice(kept), &w->request, &refusal) &&
        request_framing(&w->request, &framing, &refusal))
        exchange_quota_arrived(x, &w->request, &framing);
    else
        exchange_fail(x, CAUSE_BAD_REQUEST, refusal.why);
    iobuf_put(&w->buffers, &kept);
}

static enum quota_known decision_request(struct exchange *x, const struct request_head *head,
                                         const struct identity *identity)
{
    struct worker *w = x->worker;

    if (!(x->head = iobuf_get(&w->buffers, head->whole.n)))
        return QUOTA_NO_MEMORY;
    iobuf_append(x->head, head->whole);
    x->quota.settled = settled;
    x->quota_source = identity->source;
    if (quota_client_ask(w->quotas, x->policy, identity, &x->quota))
        return QUOTA_PENDING;
    iobuf_put(&w->buffers, &x->head);
    counter_add(&x->worker->stats.quota_refused, 1);
    x->quota.outcome = QUOTA_UNKNOWN; /* too many lookups are pending */
    x->quota_told = true;
    return QUOTA_KNOWN;
}

void quota_wait_cancel(struct exchange *x)
{
    quota_client_abandon(&x->quota);
}

/* --- Lookup ---------------------------------------------------------------------------------- */

/* Finds the outcome in the last reply or the cache. False: it must be requested from the
 * database. Sources before the one requested last have no row. */
static bool outcome_of(struct exchange *x, const struct identity *identity, enum quota_outcome *outcome,
                       struct quota_row *row)
{
    if (x->quota_told && identity->source <= x->quota_source) {
        *outcome = identity->source < x->quota_source ? QUOTA_ABSENT : x->quota.outcome;
        *row = x->quota.row;
        return true;
    }
    if (!quota_client_find(x->worker->quotas, identity, outcome, row))
        return false;
    counter_add(&x->worker->stats.quota_hits, 1);
    return true;
}

/* With `deny`: refuses an id whose lookup failed. Also refuses an id without a row, except with
 * known_clients_only, where the next identity source applies. */
static bool is_denied(const struct policy *policy, enum quota_outcome outcome)
{
    return policy->quotas.unknown_client == UNKNOWN_CLIENT_DENY &&
           (outcome == QUOTA_UNKNOWN || !policy->identity.known_clients_only);
}

/* An operator's grant admits a client without a row, except with known_clients_only, where only
 * the database counts. */
static bool is_granted(const struct exchange *x, const struct identity *identity)
{
    return !x->policy->identity.known_clients_only && limiter_has_grant(x->generation->limiter, identity);
}

enum quota_known quota_wait_begin(struct exchange *x, const struct request_head *head,
                                  struct identity *identity, struct client_limits *room,
                                  const struct client_limits **client_limits, const char **why)
{
    const struct policy *policy = x->policy;
    enum quota_outcome outcome;
    struct quota_row row;

    while (identity->from_header && !policy_client(policy, identity)) {
        if (!outcome_of(x, identity, &outcome, &row)) {
            enum quota_known quota_known = decision_request(x, head, identity);
            if (quota_known != QUOTA_KNOWN)
                return quota_known;
            outcome = QUOTA_UNKNOWN;
        }
        if (outcome == QUOTA_FOUND) {
            *room = quota_client_limits(policy, &row);
            *client_limits = room;
            return QUOTA_KNOWN;
        }
        if (is_denied(policy, outcome) && !is_granted(x, identity))
            return QUOTA_CLIENT_DENIED;
        if (!policy->identity.known_clients_only)
            return QUOTA_KNOWN;
        if (!identity_next(policy, &head->fields, identity, why))
            return QUOTA_IDENTITY_BAD;
    }
    return QUOTA_KNOWN;
}
