/* problems.h - what is wrong now: one table for /readyz, /metrics, events and `weir top`, so that
 * they agree. Each problem ends with its cause. */
#ifndef WEIR_ADMIN_PROBLEMS_H
#define WEIR_ADMIN_PROBLEMS_H

#include "admin/metrics.h"
#include "base/text.h"

/* name, label in metrics, whether weir should get no traffic meanwhile */
#define PROBLEMS(X)                                                                                \
    X(PROBLEM_STOPPING, "stopping", true)                                                          \
    X(PROBLEM_STARTING, "starting", true)                                                          \
    X(PROBLEM_WORKER_STUCK, "worker_stuck", true)                                                  \
    X(PROBLEM_REDIS_DENIES, "redis_denies", true) /* on_failure: deny, and Redis is unavailable */ \
    X(PROBLEM_NO_SERVER, "no_server", true)                                                        \
    X(PROBLEM_TOKENS_DENIED, "tokens_denied", true) /* no keys by URL, and invalid: 401 */         \
    X(PROBLEM_DESCRIPTORS, "descriptors", true)                                                    \
    X(PROBLEM_KEYS_MISSING, "keys_missing", false)                                                 \
    X(PROBLEM_KEYS_OLD, "keys_old", false)                                                         \
    X(PROBLEM_REDIS_UNAVAILABLE, "redis_unavailable", false)                                       \
    X(PROBLEM_REDIS_ERRORS, "redis_errors", false)                                                 \
    X(PROBLEM_REDIS_SLOW, "redis_slow", false)                                                     \
    X(PROBLEM_CLOCK, "clock", false)                                                               \
    X(PROBLEM_SERVER_ERRORS, "server_errors", false)                                               \
    X(PROBLEM_SERVER_SLOW, "server_slow", false)                                                   \
    X(PROBLEM_LOG_LINES, "log_lines_lost", false)                                                  \
    X(PROBLEM_CERTIFICATE, "certificate_expired", false)                                           \
    X(PROBLEM_CRL, "crl_expired", false)                                                           \
    X(PROBLEM_RELOAD, "reload_failed", false)                                                      \
    X(PROBLEM_POLICIES, "retired_policies", false)                                                 \
    X(PROBLEM_REJECTIONS, "rejections", false)

enum problem {
#define X(name, label, unready) name,
    PROBLEMS(X)
#undef X
        PROBLEM_COUNT
};

enum { PROBLEM_TEXT_MAX = 512 };

/* Value of the label `problem`. */
const char *problem_name(enum problem problem);
/* Returns whether weir should get no traffic while the problem lasts. */
bool problem_is_unready(enum problem problem);
/* Returns whether the problem exists now, and writes it as a sentence. */
bool problem_exists(const struct admin_view *view, enum problem problem, struct text *sentence);

/* Returns whether a problem exists that should keep traffic away: /readyz is 503. */
bool problems_unready(const struct admin_view *view);

/* Returns whether a server, by its row in view->servers, has the problem now: SERVER_ERRORS or
 * SERVER_SLOW. */
bool problem_of_server(const struct admin_view *view, enum problem problem, unsigned row);

/* Logs certificates and revocation lists that have expired since the last call, once each, and when
 * a problem that is a rate or a difference begins and ends. Call about once a second. */
void problems_watch(const struct admin_view *view);

#endif
