#include "admin/problems.h"

#include "admin/certificates.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "redis/outage.h"

enum { REFUSED_US = 10 * 1000000 };

static const struct {
    const char *name;
    bool unready;
} problems[PROBLEM_COUNT] = {
#define X(problem, label, unready) [problem] = {label, unready},
    PROBLEMS(X)
#undef X
};

const char *problem_name(enum problem problem)
{
    return problems[problem].name;
}

bool problem_is_unready(enum problem problem)
{
    return problems[problem].unready;
}

static unsigned count_of(const struct admin_view *view, bool (*is)(const struct worker *))
{
    unsigned n = 0;

    for (unsigned i = 0; i < view->worker_count; i++)
        n += is(view->workers[i]);
    return n;
}

/* Returns true if a limit in use rejects requests when Redis is down. */
static bool denies_without_redis(const struct policy *policy)
{
    for (unsigned r = 0; r < policy->rule_count; r++)
        for (unsigned l = 0; l < policy->rules[r].limit_count; l++)
            if (policy->rules[r].limits[l]->on_failure == ON_FAILURE_DENY)
                return true;
    return false;
}

/* Redis has answered calls with errors within the last 10 s. */
static bool redis_refuses(const struct admin_view *view)
{
    return policy_needs_redis(view->policy) && redis_outage_any_refuses(REFUSED_US);
}

static bool redis_denies(const struct admin_view *view, struct text *sentence)
{
    if (!denies_without_redis(view->policy))
        return false;
    if (count_of(view, worker_redis_unreachable) == view->worker_count) {
        text_literal(sentence, "Redis is unavailable and on_failure is deny");
        return true;
    }
    if (redis_refuses(view))
        text_literal(sentence, "Redis answers calls with errors and on_failure is deny");
    return redis_refuses(view);
}

static bool redis_unavailable(const struct admin_view *view, struct text *sentence)
{
    if (!policy_needs_redis(view->policy) ||
        count_of(view, worker_redis_ready) == view->worker_count)
        return false;
    text_put(sentence, count_of(view, worker_redis_unreachable)
                           ? SLICE("Redis is unavailable, on_failure applies")
                           : SLICE("a part of Redis is unavailable, where on_failure applies"));
    return true;
}

/* Returns whether a server of the upstream is not known to be down. */
static bool upstream_is_reachable(const struct admin_view *view, unsigned upstream)
{
    struct endpoint *endpoints[ENDPOINTS_MAX];
    unsigned count = endpoint_set_list(view->endpoint_set, upstream, endpoints);
    bool any = false;

    for (unsigned i = 0; i < count; i++) {
        any |= endpoint_is_reachable(endpoints[i]);
        endpoint_drop(endpoints[i]);
    }
    return any;
}

static bool no_server(const struct admin_view *view, struct text *sentence)
{
    for (unsigned u = 0; u < view->policy->upstream_count; u++) {
        if (upstream_is_reachable(view, u))
            continue;
        text_literal(sentence, "no server of an upstream can be reached: ");
        text_put(sentence, slice_of(view->policy->upstreams[u].name));
        return true;
    }
    return false;
}

static bool certificate_expired(const struct admin_view *view, struct text *sentence)
{
    struct certificate found[CERTIFICATES_LISTED_MAX];
    unsigned count = certificates_list(view->policy, found);
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000);

    for (unsigned i = 0; i < count; i++) {
        if (found[i].until_s > now_s)
            continue;
        text_literal(sentence, "a certificate has expired: ");
        text_put(sentence, slice_of(found[i].path));
        return true;
    }
    return false;
}

static bool say(bool exists, struct text *sentence, struct slice words)
{
    if (exists)
        text_put(sentence, words);
    return exists;
}

bool problem_exists(const struct admin_view *view, enum problem problem, struct text *sentence)
{
    switch (problem) {
    case PROBLEM_STOPPING: return say(view->stopping, sentence, SLICE("stopping"));
    case PROBLEM_STARTING: return say(!view->ready, sentence, SLICE("starting"));
    case PROBLEM_REDIS_DENIES: return redis_denies(view, sentence);
    case PROBLEM_NO_SERVER: return no_server(view, sentence);
    case PROBLEM_DESCRIPTORS:
        return say(descriptors_are_scarce(), sentence,
                   SLICE("no file descriptor is free, so new clients wait"));
    case PROBLEM_REDIS_UNAVAILABLE: return redis_unavailable(view, sentence);
    case PROBLEM_REDIS_ERRORS:
        return say(redis_refuses(view), sentence,
                   SLICE("Redis answers calls with errors, on_failure applies"));
    case PROBLEM_CERTIFICATE: return certificate_expired(view, sentence);
    case PROBLEM_RELOAD:
        return say(view->last_reload_failed, sentence,
                   SLICE("the last reload failed, the policy before it is in effect"));
    case PROBLEM_COUNT: break;
    }
    return false;
}

void problems_watch_certificates(const struct admin_view *view)
{
    static int64_t logged_s; /* expiry times up to here were logged; the main thread's */
    struct certificate found[CERTIFICATES_LISTED_MAX];
    unsigned count = certificates_list(view->policy, found);
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000);

    if (logged_s == 0)
        logged_s = now_s; /* those before were reported when the policy was read */
    for (unsigned i = 0; i < count; i++) {
        if (found[i].until_s > logged_s && found[i].until_s <= now_s)
            log_error("the certificate %s has expired: clients and servers refuse it; replace the "
                      "file and reload weir",
                      found[i].path);
    }
    logged_s = now_s > logged_s ? now_s : logged_s;
}
