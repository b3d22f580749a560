/* failure.h - the causes of Redis failures: log text, metric labels and remedies for the
 * operator. */
#ifndef WEIR_REDIS_FAILURE_H
#define WEIR_REDIS_FAILURE_H

#include <stdbool.h>

#include "redis/redis_reply.h"

/* Each row: name, metric label, log text. */
#define REDIS_FAILURES(X)                                                                          \
    X(REDIS_FAILURE_CONNECT, "connect", "could not connect")                                       \
    X(REDIS_FAILURE_TLS_UNTRUSTED, "tls_untrusted", "its certificate is not trusted")              \
    X(REDIS_FAILURE_TLS_NAME, "tls_name", "its certificate is for another name")                   \
    X(REDIS_FAILURE_TLS_EXPIRED, "tls_expired", "its certificate has expired or is not valid yet") \
    X(REDIS_FAILURE_TLS_TIMEOUT, "tls_timeout", "no TLS handshake in time")                        \
    X(REDIS_FAILURE_TLS_MISSING, "tls_missing", "it does not use TLS")                             \
    X(REDIS_FAILURE_TLS_REQUIRED, "tls_required",                                                  \
      "it closes new connections without a reply, as a server does that requires TLS")             \
    X(REDIS_FAILURE_TLS, "tls", "TLS failed")                                                      \
    X(REDIS_FAILURE_CLOSED, "closed", "the connection was lost")                                   \
    X(REDIS_FAILURE_TIMEOUT, "timeout", "no reply within redis.timeout")                           \
    X(REDIS_FAILURE_AUTH, "auth", "the login was refused")                                         \
    X(REDIS_FAILURE_PERMISSION, "permission",                                                      \
      "the user may not run a command, or the command was renamed")                                \
    X(REDIS_FAILURE_PROTECTED, "protected", "Redis is in protected mode")                          \
    X(REDIS_FAILURE_CLIENTS, "clients", "Redis accepts no more connections")                       \
    X(REDIS_FAILURE_SCRIPT, "script", "the script failed")                                         \
    X(REDIS_FAILURE_LOADING, "loading", "Redis is loading its data")                               \
    X(REDIS_FAILURE_READONLY, "readonly", "Redis is a read-only replica")                          \
    X(REDIS_FAILURE_MASTERDOWN, "masterdown", "Redis is a replica that has lost its master")       \
    X(REDIS_FAILURE_REPLICAS, "replicas",                                                          \
      "the master has fewer replicas than min-replicas-to-write")                                  \
    X(REDIS_FAILURE_PERSISTENCE, "persistence",                                                    \
      "Redis cannot write its data to disk and refuses writes")                                    \
    X(REDIS_FAILURE_OOM, "oom", "Redis is out of memory")                                          \
    X(REDIS_FAILURE_REPLY, "reply", "a reply in an unexpected format")                             \
    X(REDIS_FAILURE_BUSY, "busy", "too many calls are waiting, or a long script runs")             \
    X(REDIS_FAILURE_CLUSTER, "cluster", "the cluster does not serve the key")                      \
    X(REDIS_FAILURE_MOVING, "moving", "the keys are on their way to another node")                 \
    X(REDIS_FAILURE_DOWN, "down", "there is no connection")

enum redis_failure {
#define X(name, label, text) name,
    REDIS_FAILURES(X)
#undef X
        REDIS_FAILURE_COUNT,
    REDIS_OK_ANSWER = -1
};

/* Labels for metrics, and texts for logs. */
extern const char *const redis_failure_label[REDIS_FAILURE_COUNT];
extern const char *const redis_failure_text[REDIS_FAILURE_COUNT];

/* Returns the remedy for the operator. It depends on how `settings` locates Redis (address,
 * sentinels or cluster). */
struct redis_settings;
const char *redis_failure_remedy(enum redis_failure failure, const struct redis_settings *settings);

/* Returns true if the error reply has the code ("NOSCRIPT", "OOM", ...). An error that a script
 * received and that its reply contains counts, too. */
bool redis_error_is(const char *message, const char *code);

/* Returns true if `role` is a replica's reply to ROLE. */
bool redis_is_replica(const struct redis_reply *role);

/* Returns true if reconnecting may help: the data is loaded, the replica was promoted, the
 * address moved, or the login was repaired. */
bool redis_failure_may_pass(enum redis_failure failure);

/* Maps an error reply to a script call to its cause. */
enum redis_failure redis_failure_of(const char *message);

#endif
