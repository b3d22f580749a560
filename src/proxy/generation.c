#include "proxy/generation.h"

#include <stdlib.h>

#include "base/clock.h"
#include "proxy/rejection.h"

static void generation_free(struct generation *g)
{
    if (g->limiter)
        limiter_free(g->limiter);
    upstream_pools_free(&g->pools);
    token_checker_free(g->tokens);
    rejections_free(g->rejections);
    policy_drop(g->policy);
    endpoint_set_drop(g->endpoint_set);
    free(g);
}

struct generation *generation_new(struct worker *worker, struct endpoint_set *endpoint_set)
{
    struct policy *policy = endpoint_set_policy(endpoint_set);
    struct generation *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->endpoint_set = endpoint_set_hold(endpoint_set);
    g->policy = policy_hold(policy);
    if ((g->rejections = rejections_new(policy->rule_count)) &&
        upstream_pools_init(&g->pools, &worker->upstream, endpoint_set) == 0 &&
        token_checker_new(policy, &worker->stats.tokens, &g->tokens) &&
        (g->limiter = limiter_new(worker->base, policy, worker->shared->fallback,
                                  slice_of(policy->driver), &worker->limiter_stats)))
        return g;
    generation_free(g);
    return NULL;
}

void generation_install(struct worker *worker, struct generation *next)
{
    struct generation *before = worker->now;

    worker->now = next;
    worker->generation_number++;
    worker->policy = next->policy;
    upstream_worker_use(&worker->upstream, &next->pools, worker_connections_max(worker));
    atomic_store(&worker->current_set, next->endpoint_set);
    if (!before)
        return;
    worker->shared->reloaded(worker->shared->context);
    upstream_pools_retire(&before->pools);
    limiter_retire(before->limiter);
    TAILQ_INSERT_TAIL(&worker->retired, before, link);
    counter_add(&worker->stats.retired_policies, 1);
}

static void install_coming(struct worker *worker)
{
    struct generation *next = worker->coming;

    worker->coming = NULL;
    deadline_cancel(&worker->coming_deadline);
    generation_install(worker, next);
}

static void waited_enough(struct deadline *deadline)
{
    struct worker *worker = CONTAINER_OF(deadline, struct worker, coming_deadline);
    if (worker->coming)
        install_coming(worker);
}

void generations_init(struct worker *worker)
{
    TAILQ_INIT(&worker->retired);
    deadline_queue_init(&worker->deadlines, &worker->coming_queue, waited_enough);
}

void generation_announce(struct worker *worker, struct generation *next)
{
    if (worker->coming)
        generation_free(worker->coming);
    worker->coming = next;
    deadline_arm(&worker->coming_queue, &worker->coming_deadline, clock_us(), GENERATION_WAIT_US);
}

void generations_flush(struct worker *worker)
{
    struct generation *g, *next;

    if (worker->coming) {
        limiter_flush(worker->coming->limiter);
        if ((!policy_needs_redis(worker->coming->policy) ||
             limiter_redis_ready(worker->coming->limiter)) &&
            endpoint_set_is_resolved(worker->coming->endpoint_set) &&
            token_checker_is_ready(worker->coming->tokens))
            install_coming(worker);
    }
    limiter_flush(worker->now->limiter);
    for (g = TAILQ_FIRST(&worker->retired); g; g = next) {
        next = TAILQ_NEXT(g, link);
        if (g->limiter)
            limiter_flush(g->limiter);
        if (g->limiter && g->exchanges == g->without_limiter && limiter_is_quiet(g->limiter)) {
            limiter_free(g->limiter);
            g->limiter = NULL;
        }
        if (g->exchanges == 0 && !g->limiter) {
            TAILQ_REMOVE(&worker->retired, g, link);
            counter_subtract(&worker->stats.retired_policies, 1);
            generation_free(g);
        }
    }
}

void generations_wake(struct worker *worker)
{
    limiter_wake(worker->now->limiter);
    for (struct generation *g = TAILQ_FIRST(&worker->retired); g; g = TAILQ_NEXT(g, link))
        if (g->limiter)
            limiter_wake(g->limiter);
}

bool generations_quiet(const struct worker *worker)
{
    const struct generation *g;

    TAILQ_FOREACH (g, &worker->retired, link)
        if (g->limiter && !limiter_is_quiet(g->limiter))
            return false;
    return limiter_is_quiet(worker->now->limiter);
}

void generations_free(struct worker *worker)
{
    for (struct generation *g; (g = TAILQ_FIRST(&worker->retired));) {
        TAILQ_REMOVE(&worker->retired, g, link);
        generation_free(g);
    }
    if (worker->coming)
        generation_free(worker->coming);
    if (worker->now)
        generation_free(worker->now);
    worker->coming = worker->now = NULL;
}
