/* explain_limits.c - the limits of a request: their numbers for this client, and whether they have
 * room, by the counts in Redis, or as if they were unused. */
#include "base/clock.h"
#include "explain/explainer.h"
#include "proxy/worker_state.h"

/* ---- the decision ---------------------------------------------------------------------------- */

/* Scripts of one's own may admit any cost. */
static int64_t capacity_of(const struct planned_limit *limit)
{
    if (limit->limit->kind == LIMIT_CUSTOM)
        return INT64_MAX;
    return limit_capacity(limit->limit, &limit->numbers) -
           limit_reserve(limit->limit, &limit->numbers);
}

int64_t explained_remaining(const struct explained_limit *limit)
{
    const struct limit *of = limit->planned.limit;
    const struct limit_numbers *numbers = &limit->planned.numbers;
    int64_t left = limit->state.remaining - limit_reserve(of, numbers);
    bool late = of->max_delay_us && limit->state.reset_us > limit_longest_delay(of, numbers->share);

    return late || left < 0 ? 0 : left;
}

/* Returns whether units that a request costs are left. Of more than one unit, the limit says how
 * many remain. */
static bool are_left(const struct explained_limit *limit)
{
    int64_t cost = limit->planned.best_effort ? 1 : limit->planned.cost;

    if (!limit->is_known || limit->state.failed)
        return true;
    return cost == 1 && !limit->planned.numbers.share ? limit->state.admits
                                                      : explained_remaining(limit) >= cost;
}

static int64_t explained_grant(const struct explained_limit *limit)
{
    int64_t left = limit->is_known ? explained_remaining(limit) : limit->capacity;
    return limit->planned.best_effort && left < limit->planned.cost && left > 0
               ? left
               : limit->planned.cost;
}

static void set_as_decided(struct limit_result *result, const struct explained_limit *limit)
{
    const struct planned_limit *planned = &limit->planned;
    bool rejects = !limit->has_room && !planned->shadow && !planned->free;

    *result = (struct limit_result){.limit = planned->limit,
                                    .verdict = rejects ? VERDICT_LIMITED : VERDICT_ALLOWED,
                                    .shadow = planned->shadow,
                                    .quota = planned->numbers.limit,
                                    .capacity = limit->capacity,
                                    .granted = explained_grant(limit),
                                    .retry_after_us = rejects ? -1 : 0};
}

/* Runs a query; sets m->failed. The caller frees it. */
static struct client_query *run_query(struct explainer *m, const struct identity *identity,
                                      const struct client_order *order)
{
    struct client_query *query = client_query_new(m->policy, identity, NULL, order);

    m->failed = !query || !query_redis_run(&m->redis, query);
    return query;
}

static void read_state(struct explainer *m, struct explained_limit *limit)
{
    struct client_query *query =
        run_query(m, &dry_run_exchange(m->run)->worker->incoming.identity,
                  &(struct client_order){.kind = CLIENT_QUERY_KEY, .key = &limit->planned});

    limit->is_known = !m->failed;
    if (limit->is_known)
        limit->state = client_query_result(query)->status[0];
    limit->state.key = SLICE_NONE;
    client_query_free(query);
}

void explain_decide(struct dry_run_answers *answers, const struct planned_limit *limits,
                    unsigned count, struct decision *decision)
{
    struct explainer *m = CONTAINER_OF(answers, struct explainer, answers);

    *decision =
        (struct decision){.rejected_by = -1, .result_count = count, .priority = decision->priority};
    m->now.limit_count = count;
    for (unsigned i = 0; i < count; i++) {
        struct explained_limit *limit = &m->now.limits[i];
        *limit = (struct explained_limit){.planned = limits[i]};
        limit->planned.key = explain_copy(m, limits[i].key);
        limit->planned.repeat_key = explain_copy(m, limits[i].repeat_key);
        limit->capacity = capacity_of(&limits[i]);
        if (m->reads_state && !m->failed)
            read_state(m, limit);
        limit->never = !limits[i].best_effort && limits[i].cost > limit->capacity;
        limit->has_room = !limit->never && are_left(limit);
        set_as_decided(&decision->results[i], limit);
        if (decision->results[i].verdict == VERDICT_LIMITED && decision->rejected_by < 0)
            decision->rejected_by = (int)i;
    }
    decision->verdict = decision->rejected_by < 0 ? VERDICT_ALLOWED : VERDICT_LIMITED;
}

/* ---- the client's numbers -------------------------------------------------------------------- */

bool explain_read_grant(struct explainer *m, const struct identity *identity)
{
    struct explained_client *client = &m->client;
    struct client_query *query =
        run_query(m, identity, &(struct client_order){.kind = CLIENT_QUERY_CLIENT});

    if (!m->failed) {
        const struct client_result *result = client_query_result(query);
        *client = (struct explained_client){.granted = result->granted,
                                            .row_cached = result->row_cached,
                                            .grant_quota = result->quota,
                                            .grant_us = result->us,
                                            .row = result->row};
        grants_publish(NULL);
        if (result->grant_unread)
            fputs("weir: " CLIENT_QUERY_GRANT_UNREAD "\n", stderr);
    }
    client_query_free(query);
    return !m->failed &&
           (!client->granted ||
            grants_note(&(struct grant){.client = identity_text(identity),
                                        .quota = client->grant_quota,
                                        .until_us = clock_us() + (uint64_t)client->grant_us}));
}

/* A row that is not read counts as one without a quota. */
void explain_quota(struct dry_run_answers *answers, const struct identity *identity,
                   enum quota_outcome *outcome, struct quota_row *row)
{
    struct explainer *m = CONTAINER_OF(answers, struct explainer, answers);

    *outcome = QUOTA_FOUND;
    *row = (struct quota_row){.present = true, .quota = QUOTA_OF_ITS_OWN};
    m->now.quota_unread = true;
    if (!m->reads_state || m->failed || !explain_read_grant(m, identity) || !m->client.row_cached)
        return;
    m->now.quota_unread = false;
    *outcome = m->client.row.present ? QUOTA_FOUND : QUOTA_ABSENT;
    *row = m->client.row;
}

static enum limits_of origin_of(const struct explainer *m, const struct client_limits *limits,
                                const struct incoming *in)
{
    if (m->identity.listed == LISTED_ALLOWED)
        return LIMITS_OF_ALLOW_LIST;
    if (limits == &m->granted)
        return LIMITS_OF_GRANT;
    return limits && limits == in->client_limits ? LIMITS_OF_DATABASE : LIMITS_OF_POLICY;
}

void explain_limits(struct explainer *m, struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;
    const struct limit_facts facts = {.identity = &m->identity, .client_limits = in->client_limits};
    struct explanation *now = &m->now;

    now->client_limits = limiter_client_limits(x->generation->limiter, &facts, &m->granted);
    now->limits_of = origin_of(m, now->client_limits, in);
    now->grant_us = m->client.grant_us;
    now->not_charged =
        rule_skips_preflight(now->rule, &m->sorted, in->framing.kind != FRAMING_NONE);
    now->verdict = x->decision_request.decision.verdict;
    now->priority =
        x->limits.progress == LIMITS_DECIDED ? x->decision_request.decision.priority : NULL;
    now->rejected_by = x->decision_request.decision.rejected_by;
}
