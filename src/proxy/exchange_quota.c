/* exchange_quota.c - looks up the client's quota from a database, before LIMIT, if the policy has
 * quotas.
 *
 * If the quota is not in the cache, weir requests it, keeps the request, and the exchange waits in
 * phase QUOTA. With identity.known_clients_only, the reply determines which identity source
 * applies. */
#include <stdlib.h>

#include "http/head_copy.h"
#include "proxy/exchange_internal.h"

/* A request that waits in phase QUOTA. */
struct waiting_request {
    struct head_copy *head;
    struct framing framing;
    struct identity identity;
    size_t path_size; /* of exchange.path */
    char path[];
};

static void find(struct exchange *x, const struct request_head *head, const struct framing *framing,
                 struct identity *identity, bool answered, struct quota_result *result);

/* --- Waiting --------------------------------------------------------------------------------- */

static void waiting_free(struct waiting_request *waiting)
{
    if (waiting)
        head_copy_free(waiting->head);
    free(waiting);
}

static struct waiting_request *waiting_new(const struct exchange *x,
                                           const struct request_head *head,
                                           const struct framing *framing,
                                           const struct identity *identity)
{
    struct waiting_request *waiting = malloc(sizeof *waiting + x->path.n);

    if (!waiting)
        return NULL;
    if (!(waiting->head = head_copy_new(head))) {
        free(waiting);
        return NULL;
    }
    waiting->framing = *framing;
    waiting->identity = *identity;
    waiting->path_size = x->path.n;
    if (x->path.n)
        memcpy(waiting->path, x->path.p, x->path.n);
    return waiting;
}

static void settled(struct quota_wait *wait)
{
    struct exchange *x = CONTAINER_OF(wait, struct exchange, quota);
    struct request_head *head = &x->worker->request;
    struct waiting_request *waiting = x->waiting;
    struct quota_result result;

    x->waiting = NULL;
    head_copy_restore(waiting->head, head);
    x->path = (struct slice){waiting->path, waiting->path_size};
    find(x, head, &waiting->framing, &waiting->identity, true, &result);
    exchange_quota_known(x, head, &waiting->framing, &waiting->identity, &result);
    waiting_free(waiting);
}

/* Requests the quota from the database. QUOTA_KNOWN: too many lookups are pending. */
static enum quota_known request_quota(struct exchange *x, const struct request_head *head,
                                      const struct framing *framing,
                                      const struct identity *identity)
{
    struct worker *w = x->worker;
    struct waiting_request *waiting = waiting_new(x, head, framing, identity);

    if (!waiting)
        return QUOTA_NO_MEMORY;
    x->quota.settled = settled;
    if (quota_client_ask(w->quotas, x->policy, identity, &x->quota)) {
        x->waiting = waiting;
        return QUOTA_PENDING;
    }
    waiting_free(waiting);
    counter_add(&w->stats.quota_refused, 1);
    return QUOTA_KNOWN;
}

void quota_wait_cancel(struct exchange *x)
{
    quota_client_abandon(&x->quota);
    waiting_free(x->waiting);
    x->waiting = NULL;
}

/* --- Lookup ---------------------------------------------------------------------------------- */

/* Finds the outcome in the cache. False: it must be requested from the database. */
static bool is_cached(struct exchange *x, const struct identity *identity,
                      enum quota_outcome *outcome, struct quota_row *row)
{
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
    return !x->policy->identity.known_clients_only &&
           limiter_has_grant(x->generation->limiter, identity);
}

/* `answered`: x->quota has the database's reply for `identity`. */
static void find(struct exchange *x, const struct request_head *head, const struct framing *framing,
                 struct identity *identity, bool answered, struct quota_result *result)
{
    const struct policy *policy = x->policy;

    result->known = QUOTA_KNOWN;
    result->client_limits = NULL;
    for (; identity->is_id && !policy_client(policy, identity); answered = false) {
        enum quota_outcome outcome;
        struct quota_row row;
        if (answered) {
            outcome = x->quota.outcome;
            row = x->quota.row;
        } else if (!is_cached(x, identity, &outcome, &row)) {
            if ((result->known = request_quota(x, head, framing, identity)) != QUOTA_KNOWN)
                return;
            outcome = QUOTA_UNKNOWN;
        }
        if (outcome == QUOTA_FOUND) {
            result->found = quota_client_limits(policy, &row);
            result->client_limits = &result->found;
            return;
        }
        if (is_denied(policy, outcome) && !is_granted(x, identity)) {
            result->known = QUOTA_CLIENT_DENIED;
            return;
        }
        if (!policy->identity.known_clients_only)
            return;
        struct address address;
        const struct identity_input input = exchange_identity_input(x, head, &address);
        if (!identity_next(&input, identity, &result->why)) {
            result->known = QUOTA_IDENTITY_BAD;
            return;
        }
    }
}

void quota_wait_begin(struct exchange *x, const struct request_head *head,
                      const struct framing *framing, struct identity *identity,
                      struct quota_result *result)
{
    find(x, head, framing, identity, false, result);
}
