#include "admin/problems.h"

#include <stdlib.h>

#include "admin/certificates.h"
#include "admin/recent_counts.h"
#include "admin/top_api.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "jwks/key_fetcher.h"
#include "policy/identity.h"
#include "redis/outage.h"

enum {
    REFUSED_US = 10 * 1000000,
    /* Rates count from so many requests, decisions or failures on. */
    LEAST_FAILURES = 3,
    LEAST_RESPONSES = 5,
    LEAST_REJECTIONS = 20,
    RETIRED_POLICIES_MAX = 8,
    CLOCK_US = 2 * 1000000, /* a larger difference between two clocks is a problem */
    LOG_EVERY_US = 60 * 1000000
};

/* A server is slow if its median time to the first byte of a response is longer than this, and than
 * so many times the usual one: responses of some APIs take several seconds. Medians are at most
 * 10 s, the last bound of the histogram: a server that usually needs 3.4 s is never slow. */
static const double slow_seconds = 1, slow_ratio = 3;

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

/* Returns whether the limit rejects requests when Redis is down; a shadow limit rejects none. */
static bool limit_denies(const struct limit *limit)
{
    return limit->on_failure == ON_FAILURE_DENY && limit->enforce > 0;
}

static bool entries_deny(const struct entry_level *level)
{
    for (unsigned i = 0; i < level->count; i++) {
        const struct configured_entry *entry = &level->entries[i];
        for (unsigned l = 0; l < entry->limit_count; l++)
            if (!entry->shadow && limit_denies(entry->limits[l]))
                return true;
        if (entries_deny(&entry->below))
            return true;
    }
    return false;
}

static bool denies_without_redis(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->rate_limit_service.domain_count; i++)
        if (entries_deny(&policy->rate_limit_service.domains[i].top))
            return true;
    for (unsigned r = 0; r < policy->rule_count; r++)
        for (unsigned l = 0; l < policy->rules[r].limit_count; l++)
            if (limit_denies(policy->rules[r].limits[l]))
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
    bool away = count_of(view, worker_redis_unreachable) == view->worker_count;

    if ((!away && !redis_refuses(view)) || !denies_without_redis(view->policy))
        return false;
    text_put(sentence, away ? SLICE("Redis is unavailable and on_failure is deny")
                            : SLICE("Redis answers calls with errors and on_failure is deny"));
    return true;
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
    bool any = endpoint_set_awaits(view->endpoint_set, upstream);

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

/* Names the first certificate, or the first file of revocation lists, that has expired. */
static bool file_expired(const struct admin_view *view, bool is_crl, struct text *sentence)
{
    struct certificate found[CERTIFICATES_LISTED_MAX];
    unsigned count = certificates_list(view->policy, found);
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000);

    for (unsigned i = 0; i < count; i++) {
        if (found[i].until_s > now_s || found[i].is_crl != is_crl)
            continue;
        text_put(sentence, is_crl ? SLICE("a revocation list has expired, all clients of its "
                                          "issuer are refused: ")
                                  : SLICE("a certificate has expired: "));
        text_put(sentence, slice_of(found[i].path));
        return true;
    }
    return false;
}

/* Writes the first URL whose keys are missing, or whose last fetches have failed. */
static bool keys_problem(const struct admin_view *view, bool missing, struct text *sentence)
{
    struct key_status status[KEY_URLS_MAX];
    unsigned count = key_fetcher_list(view->keys, status);

    for (unsigned i = 0; i < count; i++) {
        if (missing ? status[i].has_keys : !status[i].has_keys || !status[i].why)
            continue;
        if (missing)
            text_literal(sentence, "tokens are invalid: there are no keys yet from ");
        else
            text_printf(sentence, "the keys of tokens are %llu s old and cannot be fetched from ",
                        (unsigned long long)status[i].age_us / 1000000);
        text_printf(sentence, "%.200s", status[i].url);
        if (status[i].why)
            text_printf(sentence, ": %.200s", status[i].why);
        return true;
    }
    return false;
}

static bool keys_are_missing(const struct admin_view *view, enum jwt_invalid invalid,
                             struct text *sentence)
{
    return view->policy->identity.jwt.invalid == invalid && keys_problem(view, true, sentence);
}

/* --- Rates and differences -------------------------------------------------------------------- */

static bool redis_is_slow(const struct admin_view *view, struct text *sentence)
{
    if (!view->recent || !policy_needs_redis(view->policy))
        return false;
    struct recent_decisions recent = recent_decisions(view->recent, view);
    double timeout = (double)view->policy->redis.timeout_us / 1e6;
    bool late = recent.late >= LEAST_FAILURES && recent.late * 100 > recent.all;

    if (!late && (recent.all < LEAST_RESPONSES || recent.worst_seconds <= timeout / 2))
        return false;
    if (late)
        text_printf(sentence, "Redis is slow: it has not answered %llu of %llu decisions in time",
                    (unsigned long long)recent.late, (unsigned long long)recent.all);
    else
        text_printf(sentence,
                    "Redis is slow: 1 %% of decisions take longer than %.1f ms, and redis.timeout "
                    "is %.0f ms",
                    recent.worst_seconds * 1e3, timeout * 1e3);
    return true;
}

/* Limits use the clock of Redis; tokens, certificates and logs that of this machine. */
static bool clock_differs(const struct admin_view *view, struct text *sentence)
{
    int64_t worst_us = 0;

    for (unsigned w = 0; w < view->worker_count; w++) {
        int64_t ahead_us = limiter_stats_clock_ahead(worker_limiter_stats(view->workers[w]));
        if (llabs(ahead_us) > llabs(worst_us))
            worst_us = ahead_us;
    }
    if (llabs(worst_us) < CLOCK_US || !policy_needs_redis(view->policy))
        return false;
    text_printf(sentence, "the clock of this machine is %.1f s %s that of Redis",
                (double)llabs(worst_us) / 1e6, worst_us < 0 ? "ahead of" : "behind");
    return true;
}

static bool server_fails(const struct recent_server *recent)
{
    return recent->failed >= LEAST_FAILURES && recent->failed * 20 > recent->all;
}

static bool server_is_slow(const struct recent_server *recent)
{
    return recent->all >= LEAST_RESPONSES && recent->first_seconds > slow_seconds &&
           recent->usual_seconds > 0 && recent->first_seconds > slow_ratio * recent->usual_seconds;
}

bool problem_of_server(const struct admin_view *view, enum problem problem, unsigned row)
{
    struct recent_server recent;

    if (!view->recent)
        return false;
    recent = recent_of_server(view->recent, view, row);
    return problem == PROBLEM_SERVER_ERRORS ? server_fails(&recent) : server_is_slow(&recent);
}

/* Names the first of the servers that have the problem. */
static bool server_problem(const struct admin_view *view, enum problem problem,
                           struct text *sentence)
{
    const struct counter_names *names = &view->names[NAMES_SERVERS];

    for (unsigned row = 0; row < names->count; row++) {
        if (!metric_row_is_shown(view, NAMES_SERVERS, row) ||
            !problem_of_server(view, problem, row))
            continue;
        struct recent_server recent = recent_of_server(view->recent, view, row);
        text_printf(sentence, "server %s of upstream %s", names->name[row], names->owner[row]);
        if (problem == PROBLEM_SERVER_ERRORS)
            text_printf(sentence, " fails %.0f %% of its requests",
                        100 * (double)recent.failed / (double)recent.all);
        else
            text_printf(sentence, " takes %.1f s to begin half of its responses",
                        recent.first_seconds);
        return true;
    }
    return false;
}

/* /readyz is public, so the clients are not named here. */
static bool many_rejections(const struct admin_view *view, struct text *sentence)
{
    if (!view->recent)
        return false;
    struct metric_requests recent = recent_requests(view->recent, view);
    if (recent.rejected < LEAST_REJECTIONS || recent.rejected * 5 <= recent.all)
        return false;
    text_printf(sentence, "%.0f %% of the requests are rejected; see the most limited clients",
                100 * (double)recent.rejected / (double)recent.all);
    return true;
}

/* Each keeps its servers, and its Redis connection if requests hold permits or read usage. */
static bool many_retired_policies(const struct admin_view *view, struct text *sentence)
{
    uint64_t policies = METRIC_SUM(view, worker_stats, retired_policies) /
                        (view->worker_count ? view->worker_count : 1);

    if (policies <= RETIRED_POLICIES_MAX)
        return false;
    text_printf(sentence,
                "requests in progress use %llu policies from before a reload; reload less often, "
                "or lower timeouts.tunnel or timeouts.exchange",
                (unsigned long long)policies);
    return true;
}

/* --- All of them ------------------------------------------------------------------------------ */

static bool describe_if(bool exists, struct text *sentence, struct slice words)
{
    if (exists)
        text_put(sentence, words);
    return exists;
}

bool problem_exists(const struct admin_view *view, enum problem problem, struct text *sentence)
{
    switch (problem) {
    case PROBLEM_STOPPING: return describe_if(view->stopping, sentence, SLICE("stopping"));
    case PROBLEM_STARTING: return describe_if(!view->ready, sentence, SLICE("starting"));
    case PROBLEM_REDIS_DENIES: return redis_denies(view, sentence);
    case PROBLEM_WORKER_STUCK:
        return describe_if(view->worker_stuck, sentence,
                           SLICE("a worker does not complete its loop iterations; restart weir"));
    case PROBLEM_NO_SERVER: return no_server(view, sentence);
    case PROBLEM_TOKENS_DENIED: return keys_are_missing(view, JWT_INVALID_401, sentence);
    case PROBLEM_KEYS_MISSING: return keys_are_missing(view, JWT_INVALID_FALL_THROUGH, sentence);
    case PROBLEM_KEYS_OLD: return keys_problem(view, false, sentence);
    case PROBLEM_DESCRIPTORS:
        return describe_if(descriptors_are_scarce(), sentence,
                           SLICE("no file descriptor is free, so new clients wait"));
    case PROBLEM_REDIS_UNAVAILABLE: return redis_unavailable(view, sentence);
    case PROBLEM_REDIS_ERRORS:
        return describe_if(redis_refuses(view), sentence,
                           SLICE("Redis answers calls with errors, on_failure applies"));
    case PROBLEM_REDIS_SLOW: return redis_is_slow(view, sentence);
    case PROBLEM_CLOCK: return clock_differs(view, sentence);
    case PROBLEM_SERVER_ERRORS:
    case PROBLEM_SERVER_SLOW: return server_problem(view, problem, sentence);
    case PROBLEM_REJECTIONS: return many_rejections(view, sentence);
    case PROBLEM_LOG_LINES:
        return describe_if(view->recent && recent_lost_lines(view->recent), sentence,
                           SLICE("log lines are lost: the disk of the log is slow or full"));
    case PROBLEM_CERTIFICATE: return file_expired(view, false, sentence);
    case PROBLEM_CRL: return file_expired(view, true, sentence);
    case PROBLEM_RELOAD:
        return describe_if(view->last_reload_failed, sentence,
                           SLICE("the last reload failed, the policy before it is in effect"));
    case PROBLEM_POLICIES: return many_retired_policies(view, sentence);
    case PROBLEM_COUNT: break;
    }
    return false;
}

bool problems_unready(const struct admin_view *view)
{
    char bytes[PROBLEM_TEXT_MAX];

    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        struct text sentence = text_over(bytes, sizeof bytes);
        if (problem_is_unready(i) && problem_exists(view, i, &sentence))
            return true;
    }
    return false;
}

/* --- The log ---------------------------------------------------------------------------------- */

static void watch_certificates(const struct admin_view *view)
{
    static int64_t logged_s; /* expiry times up to here were logged; the main thread's */
    struct certificate found[CERTIFICATES_LISTED_MAX];
    unsigned count = certificates_list(view->policy, found);
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000);

    if (logged_s == 0)
        logged_s = now_s; /* those before were reported when the policy was read */
    for (unsigned i = 0; i < count; i++) {
        if (found[i].until_s > logged_s && found[i].until_s <= now_s)
            log_error("%s %s has expired: %s; replace the file and reload weir",
                      found[i].is_crl ? "the revocation list" : "the certificate", found[i].path,
                      found[i].is_crl ? "all clients of its issuer are refused"
                                      : "clients and servers refuse it");
    }
    logged_s = now_s > logged_s ? now_s : logged_s;
}

/* Writes the client with the most rejections. */
static void write_most_limited(struct text *out, const struct admin_view *view)
{
    struct top_entry most;
    double seconds;

    if (top_read(view, TOP_BY_LIMITED, &most, 1, &seconds) == 0)
        return;
    text_literal(out, "; most of them of ");
    identity_write_full_name(out, (struct slice){most.key, most.size});
}

/* Logs the beginning and the end of a problem that no other line reports. A problem that begins
 * again within LOG_EVERY_US is not logged. */
static void watch(const struct admin_view *view, enum problem problem)
{
    static struct {
        bool exists, logged;
        uint64_t since_us, logged_us;
    } states[PROBLEM_COUNT]; /* the main thread's */
    char bytes[2 * PROBLEM_TEXT_MAX];
    struct text sentence = text_over(bytes, sizeof bytes);
    uint64_t now_us = clock_us();
    bool exists = problem_exists(view, problem, &sentence);

    if (exists == states[problem].exists)
        return;
    states[problem].exists = exists;
    if (!exists && states[problem].logged)
        log_info("the problem %s has ended after %llu s", problem_name(problem),
                 (unsigned long long)(now_us - states[problem].since_us) / 1000000);
    if (!exists)
        return;
    states[problem].since_us = now_us;
    states[problem].logged =
        !states[problem].logged_us || now_us - states[problem].logged_us > LOG_EVERY_US;
    if (!states[problem].logged)
        return;
    states[problem].logged_us = now_us;
    if (problem == PROBLEM_REJECTIONS)
        write_most_limited(&sentence, view);
    log_warn("problem %s: %.*s", problem_name(problem), (int)sentence.n, bytes);
}

void problems_watch(const struct admin_view *view)
{
    static const enum problem watched[] = {
        PROBLEM_REDIS_SLOW, PROBLEM_CLOCK,     PROBLEM_SERVER_ERRORS, PROBLEM_SERVER_SLOW,
        PROBLEM_REJECTIONS, PROBLEM_LOG_LINES, PROBLEM_POLICIES};

    watch_certificates(view);
    for (unsigned i = 0; i < COUNT_OF(watched); i++)
        watch(view, watched[i]);
}
