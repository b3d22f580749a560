#include "proxy/dry_run.h"

#include <stdlib.h>

#include "http/via.h"
#include "net/ip_shares.h"
#include "policy/identity_token.h"
#include "proxy/drain.h"
#include "proxy/exchange.h"
#include "proxy/generation.h"
#include "proxy/step.h"
#include "proxy/worker_tables.h"

struct dry_run {
    struct worker *worker;
    struct generation generation;
    struct quotas *quotas;
    struct dry_run_answers *answers;
    struct limiter_observer observer;
    struct downstream downstream;
    struct downstream_ops ops; /* as of a client that has left, but with content */
    struct client_origin origin;
    struct exchange *exchange; /* of the request; NULL: none */
    struct slice content;      /* that the exchange has not read */
};

/* ---- the client ------------------------------------------------------------------------------ */

static enum body_status read_body(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **why)
{
    struct dry_run *run = CONTAINER_OF(d, struct dry_run, downstream);
    size_t size = run->content.n < IOBUF_READ_MAX ? run->content.n : IOBUF_READ_MAX;
    char *received = run->worker->receive;
    (void)receive, (void)why;

    if (size)
        memcpy(received, run->content.p, size);
    run->content.p += size;
    run->content.n -= size;
    *piece = (struct content_piece){.bytes = received, .size = size, .last = run->content.n == 0};
    return BODY_READ;
}

static void end(struct downstream *d, enum downstream_end how)
{
    (void)d, (void)how;
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void plan(struct limiter_observer *observer, const struct planned_limit *limits,
                 unsigned count)
{
    struct dry_run *run = CONTAINER_OF(observer, struct dry_run, observer);
    struct decision *decision = &run->exchange->decision_request.decision;

    *decision = (struct decision){.rejected_by = -1, .priority = decision->priority};
    run->answers->decide(run->answers, limits, count, decision);
}

static void answer_quota(struct dry_run *run)
{
    struct exchange *x = run->exchange;

    quota_client_abandon(&x->quota);
    run->answers->quota(run->answers, &run->worker->incoming.identity, &x->quota.outcome,
                        &x->quota.row);
}

/* What the exchange waits for happens. */
static void end_wait(struct dry_run *run)
{
    struct exchange *x = run->exchange;

    switch (x->phase) {
    case PHASE_QUOTA:
        answer_quota(run);
        x->noted |= EVENT_QUOTA;
        return;
    case PHASE_CONTENT: x->noted |= EVENT_CLIENT_READABLE; return;
    default: x->noted |= EVENT_DECIDED; return;
    }
}

static enum step run_step(struct exchange *x)
{
    if (exchange_has(x, EVENT_FAILED))
        return STEP_FAIL;
    switch (x->phase) {
    case PHASE_ROUTE: return step_route(x);
    case PHASE_QUOTA: return step_quota(x);
    case PHASE_CONTENT: return step_content(x);
    default: return step_limit(x);
    }
}

static bool is_at_its_end(const struct exchange *x)
{
    return x->phase == PHASE_HOLD || x->phase == PHASE_CONNECT || x->phase == PHASE_REPLY;
}

bool dry_run_request(struct dry_run *run, const struct dry_request *request,
                     struct dry_run_result *result)
{
    struct exchange *x;
    enum step step = STEP_NEXT;

    run->origin = request->origin;
    run->content = request->content;
    if (!(x = run->exchange = exchange_prepare(&run->downstream, request->head, &request->framing)))
        return false;
    x->keys.wait = KEYS_OVERDUE; /* nothing fetches keys */
    while (step != STEP_FAIL && !is_at_its_end(x)) {
        x->events = x->noted;
        x->noted = 0;
        step = run_step(x);
        if (step == STEP_WAIT)
            end_wait(run);
    }
    *result = (struct dry_run_result){.cause = CAUSE_NONE};
    if (step == STEP_FAIL)
        *result = (struct dry_run_result){cause_table[x->failure.cause].status, x->failure.cause,
                                          x->failure.why};
    else if (x->phase == PHASE_REPLY)
        result->status = x->record.status;
    return true;
}

struct exchange *dry_run_exchange(struct dry_run *run)
{
    return run->exchange;
}

void dry_run_end(struct dry_run *run)
{
    struct exchange *x = run->exchange;

    if (!x)
        return;
    run->exchange = NULL;
    iobuf_put(&run->worker->buffers, &x->record.log); /* no line is due */
    if (x->phase == PHASE_HOLD)
        exchange_enter(x, PHASE_CONNECT); /* it was not held */
    exchange_cut(x, CAUSE_NONE);
}

/* ---- creation -------------------------------------------------------------------------------- */

static bool make_worker(struct dry_run *run, struct policy *policy)
{
    const unsigned rows[NAMES_COUNT] = {[NAMES_RULES] = policy->rule_count,
                                        [NAMES_PRIORITIES] = policy->priority_count,
                                        [NAMES_LIMITS] = policy->limit_count};
    struct worker *w = run->worker = calloc(1, sizeof *w);

    if (!w)
        return false;
    MAGIC_SET(w, WORKER_MAGIC);
    w->policy = policy;
    w->now = &run->generation;
    memset(w->id_start, '0', sizeof w->id_start); /* ids are the same in every run, as the name */
    via_set_pseudonym(0);
    if (!(w->base = event_base_new()) || deadlines_init(&w->deadlines, w->base) != 0)
        return false;
    exchanges_init(w);
    return worker_tables_grow(w, rows) && top_clients_init(&w->top_clients) &&
           (w->requests_by_ip = ip_shares_new(NULL, 1)) && (run->quotas = quotas_new()) &&
           quotas_prepare(run->quotas, policy) &&
           (w->quotas = quota_client_new(run->quotas, w->base, &w->deadlines));
}

static bool make_generation(struct dry_run *run, struct policy *policy)
{
    struct worker *w = run->worker;

    return token_checker_new(policy, &w->stats.tokens, &run->generation.tokens) &&
           (run->generation.limiter =
                limiter_new_observed(w->base, policy, &run->observer, &w->limiter_stats));
}

struct dry_run *dry_run_new(struct policy *policy, struct dry_run_answers *answers)
{
    struct dry_run *run = calloc(1, sizeof *run);

    if (!run)
        return NULL;
    run->answers = answers;
    run->observer.plan = plan;
    run->generation.policy = policy_hold(policy);
    if (make_worker(run, policy) && make_generation(run, policy)) {
        run->ops = drain_ops;
        run->ops.read_body = read_body;
        run->ops.end = end;
        run->downstream =
            (struct downstream){.ops = &run->ops, .worker = run->worker, .origin = &run->origin};
        return run;
    }
    dry_run_free(run);
    return NULL;
}

static void free_worker(struct worker *w)
{
    if (!w)
        return;
    if (w->base)
        exchanges_free(w);
    quota_client_free(w->quotas);
    if (w->base)
        deadlines_clear(&w->deadlines);
    if (w->base)
        event_base_free(w->base);
    iobuf_pool_clear(&w->buffers);
    top_clients_clear(&w->top_clients);
    ip_shares_free(w->requests_by_ip);
    worker_tables_clear(w);
    MAGIC_WIPE(w);
    free(w);
}

void dry_run_free(struct dry_run *run)
{
    if (!run)
        return;
    dry_run_end(run);
    limiter_free(run->generation.limiter);
    token_checker_free(run->generation.tokens);
    free_worker(run->worker);
    quotas_free(run->quotas);
    policy_drop(run->generation.policy);
    free(run);
}
