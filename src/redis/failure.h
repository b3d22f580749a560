/* failure.h - why Redis gave no answer: words for the log, labels for the metrics, what the operator should do. */
#ifndef WEIR_REDIS_FAILURE_H
#define WEIR_REDIS_FAILURE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* Causes of failure, for counters and log lines. */
#define REDIS_FAILURES(X)                                                                                    \
    X(REDIS_FAILURE_CONNECT, "connect", "could not connect")                                                 \
    X(REDIS_FAILURE_CLOSED, "closed", "the connection was lost")                                             \
    X(REDIS_FAILURE_TIMEOUT, "timeout", "no answer within redis.timeout")                                    \
    X(REDIS_FAILURE_AUTH, "auth", "the login was refused")                                                   \
    X(REDIS_FAILURE_PERMISSION, "permission", "the user may not run a command, or the command was renamed")  \
    X(REDIS_FAILURE_PROTECTED, "protected", "Redis is in protected mode")                                    \
    X(REDIS_FAILURE_CLIENTS, "clients", "Redis takes no more connections")                                   \
    X(REDIS_FAILURE_SCRIPT, "script", "the script failed")                                                   \
    X(REDIS_FAILURE_LOADING, "loading", "Redis is loading its data")                                         \
    X(REDIS_FAILURE_READONLY, "readonly", "Redis is a read-only replica")                                    \
    X(REDIS_FAILURE_MASTERDOWN, "masterdown", "Redis is a replica that has lost its master")                 \
    X(REDIS_FAILURE_REPLICAS, "replicas", "the master has fewer replicas than it is told to have")           \
    X(REDIS_FAILURE_PERSISTENCE, "persistence", "Redis cannot write its data to disk and takes no writes")   \
    X(REDIS_FAILURE_OOM, "oom", "Redis is out of memory")                                                    \
    X(REDIS_FAILURE_REPLY, "reply", "an answer of the wrong shape")                                          \
    X(REDIS_FAILURE_BUSY, "busy", "too many calls are waiting, or a long script runs")                       \
    X(REDIS_FAILURE_CLUSTER, "cluster", "the cluster does not serve the key")                                \
    X(REDIS_FAILURE_MOVING, "moving", "the keys are on their way to another node")                           \
    X(REDIS_FAILURE_DOWN, "down", "there is no connection")

enum redis_failure {
#define X(name, label, text) name,
    REDIS_FAILURES(X)
#undef X
        REDIS_FAILURE_COUNT,
    REDIS_OK_ANSWER = -1
};

extern const char *const redis_failure_label[REDIS_FAILURE_COUNT];
extern const char *const redis_failure_text[REDIS_FAILURE_COUNT];

/* What the operator should do, by how the policy says where Redis is. */
struct redis_settings;
const char *redis_failure_remedy(enum redis_failure failure, const struct redis_settings *settings);

/* Is this error answer, or the one inside it that a script met, of the code ("NOSCRIPT", "OOM", ...)? */
bool redis_error_is(const char *message, const char *code);

/* Is this a replica's answer to ROLE? */
bool redis_is_replica(const redisReply *role);

/* A new connection may well lead to a better server: the data is loaded, the replica was promoted or the address moved,
 * the login was repaired. */
bool redis_failure_may_pass(enum redis_failure failure);

/* What an error answer to a call of the script means. */
enum redis_failure redis_failure_of(const char *message);

#endif
