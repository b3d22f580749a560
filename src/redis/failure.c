#include "redis/failure.h"

#include <stddef.h>
#include <string.h>

#include "base/macros.h"
#include "policy/policy.h"

const char *const redis_failure_label[REDIS_FAILURE_COUNT] = {
#define X(name, label, text) [name] = label,
    REDIS_FAILURES(X)
#undef X
};

const char *const redis_failure_text[REDIS_FAILURE_COUNT] = {
#define X(name, label, text) [name] = text,
    REDIS_FAILURES(X)
#undef X
};

static const char *const remedy[REDIS_FAILURE_COUNT] = {
    [REDIS_FAILURE_CONNECT] = "check that Redis runs there and that redis.address is right",
    [REDIS_FAILURE_CLOSED] = "check that Redis runs there, and check the Redis log",
    [REDIS_FAILURE_TLS_UNTRUSTED] = "name the authority of its certificate in redis.tls.ca",
    [REDIS_FAILURE_TLS_NAME] =
        "give Redis a certificate for this host or address, or set redis.tls.server_name",
    [REDIS_FAILURE_TLS_EXPIRED] = "renew the certificate of Redis, and check both clocks",
    [REDIS_FAILURE_TLS_TIMEOUT] =
        "check that redis.address is Redis' tls-port, or remove redis.tls",
    [REDIS_FAILURE_TLS_MISSING] =
        "check that redis.address is Redis' tls-port, or remove redis.tls",
    [REDIS_FAILURE_TLS_REQUIRED] = "set redis.tls (or write rediss://) if this is Redis' tls-port",
    [REDIS_FAILURE_TLS] = "check redis.tls.certificate and Redis' own log",
    [REDIS_FAILURE_TIMEOUT] =
        "check Redis' load (SLOWLOG, INFO) and the network, or raise redis.timeout",
    [REDIS_FAILURE_AUTH] = "check redis.username and redis.password, and that this user is enabled",
    [REDIS_FAILURE_PERMISSION] =
        "allow this user the commands and keys listed in docs/backends.md (ACL SETUSER)",
    [REDIS_FAILURE_PROTECTED] =
        "set a password in Redis and here or, in a private network, protected-mode no",
    [REDIS_FAILURE_CLIENTS] =
        "raise maxclients in Redis, or find the clients that use the connections (CLIENT LIST)",
    [REDIS_FAILURE_SCRIPT] = "check the limiter scripts with weir check",
    [REDIS_FAILURE_LOADING] = "no action needed: it is available when its data is loaded",
    [REDIS_FAILURE_READONLY] =
        "point redis.address at the master, or name the sentinels in redis.sentinel",
    [REDIS_FAILURE_MASTERDOWN] =
        "point redis.address at the master, or name the sentinels in redis.sentinel",
    [REDIS_FAILURE_REPLICAS] = "restore the replicas, or lower min-replicas-to-write in Redis",
    [REDIS_FAILURE_PERSISTENCE] = ("check the Redis log and its disk (INFO persistence), or set "
                                   "stop-writes-on-bgsave-error no"),
    [REDIS_FAILURE_OOM] = "raise maxmemory in Redis",
    [REDIS_FAILURE_REPLY] = "check that redis.address is a Redis server",
    [REDIS_FAILURE_BUSY] = "check for slow scripts or commands in Redis (SLOWLOG)",
    [REDIS_FAILURE_CLUSTER] =
        "this is a cluster node: list the nodes in redis.cluster instead of redis.address",
    [REDIS_FAILURE_MOVING] = "no action needed: it ends with the resharding",
    [REDIS_FAILURE_DOWN] = "see the previous message",
};

/* The address comes from sentinels. */
static const char *const remedy_with_sentinels[REDIS_FAILURE_COUNT] = {
    [REDIS_FAILURE_CONNECT] =
        "check that Redis runs there: the sentinels of redis.sentinel name it as the master",
    [REDIS_FAILURE_CLOSED] = "if no sentinel names another master soon, check the Redis log",
    [REDIS_FAILURE_READONLY] =
        "if no sentinel names another master soon, check the logs of the sentinels",
    [REDIS_FAILURE_MASTERDOWN] =
        "if no sentinel names another master soon, check the logs of the sentinels",
    [REDIS_FAILURE_REPLY] = "check that what the sentinels name as the master is a Redis server",
    [REDIS_FAILURE_CLUSTER] =
        "this is a cluster node: list the nodes in redis.cluster instead of redis.sentinel",
};

/* The address comes from the cluster's map, which is read from the nodes in redis.cluster. */
static const char *const remedy_in_cluster[REDIS_FAILURE_COUNT] = {
    [REDIS_FAILURE_CONNECT] =
        "check that this node of redis.cluster runs, and that its announced address is reachable",
    [REDIS_FAILURE_CLOSED] =
        "if no replica takes over its slots soon, run redis-cli --cluster check",
    [REDIS_FAILURE_CLUSTER] = "run redis-cli --cluster check",
    [REDIS_FAILURE_READONLY] = "if this persists, run redis-cli --cluster check",
    [REDIS_FAILURE_MASTERDOWN] = "if this persists, run redis-cli --cluster check",
    [REDIS_FAILURE_REPLY] = "check that what redis.cluster names is a Redis node",
};

const char *redis_failure_remedy(enum redis_failure failure, const struct redis_settings *settings)
{
    const char *own = settings->sentinel.master ? remedy_with_sentinels[failure]
                      : settings->cluster.count ? remedy_in_cluster[failure]
                                                : NULL;
    return own ? own : remedy[failure];
}

bool redis_error_is(const char *message, const char *code)
{
    size_t n = strlen(code);
    if (strncmp(message, code, n) == 0 && (message[n] == ' ' || message[n] == 0))
        return true;
    /* Redis 6 wraps an error inside a script: "ERR Error running script (...): @user_script:1:
     * -OOM ..." */
    const char *inner = strstr(message, ": -");
    return inner && strncmp(inner + 3, code, n) == 0 && inner[n + 3] == ' ';
}

enum redis_failure redis_failure_of(const char *message)
{
    static const struct {
        const char *code;
        enum redis_failure failure;
    } codes[] = {
        {"LOADING", REDIS_FAILURE_LOADING},
        {"READONLY", REDIS_FAILURE_READONLY},
        {"MASTERDOWN", REDIS_FAILURE_MASTERDOWN},
        {"NOREPLICAS", REDIS_FAILURE_REPLICAS},
        {"MISCONF", REDIS_FAILURE_PERSISTENCE},
        {"OOM", REDIS_FAILURE_OOM},
        {"NOAUTH", REDIS_FAILURE_AUTH},
        {"WRONGPASS", REDIS_FAILURE_AUTH},
        {"NOPERM", REDIS_FAILURE_PERMISSION},
        {"DENIED", REDIS_FAILURE_PROTECTED},
        {"BUSY", REDIS_FAILURE_BUSY},
        {"CLUSTERDOWN", REDIS_FAILURE_CLUSTER},
        {"MOVED", REDIS_FAILURE_CLUSTER},
        {"ASK", REDIS_FAILURE_CLUSTER},
        {"CROSSSLOT", REDIS_FAILURE_CLUSTER},
        {"TRYAGAIN", REDIS_FAILURE_MOVING},
    };
    /* Errors without their own code, some from within a script, as worded by Redis 6, 7 and
     * Valkey. */
    static const struct {
        const char *words;
        enum redis_failure failure;
    } sayings[] = {
        {"max number of clients",
         REDIS_FAILURE_CLIENTS}, /* in a cluster: "clients + cluster ..." */
        {"unauthenticated",
         /* "Protocol error: unauthenticated bulk length": the script is long */
         REDIS_FAILURE_AUTH},
        {"ACL failure in script", REDIS_FAILURE_PERMISSION},
        {"can't run this command", REDIS_FAILURE_PERMISSION},
        {"can't access at least one of the keys", REDIS_FAILURE_PERMISSION},
        {"unknown command", REDIS_FAILURE_PERMISSION},
        {"Unknown Redis command", REDIS_FAILURE_PERMISSION},
    };
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        if (redis_error_is(message, codes[i].code))
            return codes[i].failure;
    for (size_t i = 0; i < COUNT_OF(sayings); i++)
        if (strstr(message, sayings[i].words))
            return sayings[i].failure;
    return REDIS_FAILURE_SCRIPT;
}

bool redis_is_replica(const struct redis_reply *role)
{
    struct slice name;

    return redis_reply_read(role, "s+", &name) && slice_equal(name, SLICE("slave"));
}

bool redis_failure_may_pass(enum redis_failure failure)
{
    return failure == REDIS_FAILURE_LOADING || failure == REDIS_FAILURE_READONLY ||
           failure == REDIS_FAILURE_MASTERDOWN || failure == REDIS_FAILURE_AUTH;
}
