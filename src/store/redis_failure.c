#include "store/redis_failure.h"

#include <stddef.h>
#include <string.h>

#include "base/macros.h"

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

/* What the operator should do. */
const char *const redis_failure_remedy[REDIS_FAILURE_COUNT] = {
    [REDIS_FAILURE_CONNECT] = "check that Redis runs there and that redis.address is right",
    [REDIS_FAILURE_CLOSED] = "if this repeats, look at Redis' own log",
    [REDIS_FAILURE_TIMEOUT] = "check Redis' load (SLOWLOG, INFO) and the network, or raise redis.timeout",
    [REDIS_FAILURE_AUTH] = "check redis.username and redis.password, and that this user may run scripts",
    [REDIS_FAILURE_SCRIPT] = "check the limiter scripts with weir check",
    [REDIS_FAILURE_LOADING] = "nothing to do: it answers once its data is loaded",
    [REDIS_FAILURE_READONLY] = "point redis.address at the master, or name the sentinels",
    [REDIS_FAILURE_OOM] = "raise Redis' maxmemory",
    [REDIS_FAILURE_REPLY] = "check that redis.address is a Redis server",
    [REDIS_FAILURE_BUSY] = "check for slow scripts or commands in Redis (SLOWLOG)",
    [REDIS_FAILURE_CLUSTER] = "check it with redis-cli --cluster check, and redis.cluster",
    [REDIS_FAILURE_MOVING] = "nothing to do: it ends with the reshard",
    [REDIS_FAILURE_DOWN] = "see the message before",
};

bool redis_error_is(const char *message, const char *code)
{
    size_t n = strlen(code);
    if (strncmp(message, code, n) == 0 && (message[n] == ' ' || message[n] == 0))
        return true;
    /* Redis 6 wraps an error inside a script: "ERR Error running script (...): @user_script:1: -OOM ..." */
    const char *inner = strstr(message, ": -");
    return inner && strncmp(inner + 3, code, n) == 0 && inner[n + 3] == ' ';
}

enum redis_failure redis_failure_of(const char *message)
{
    static const struct {
        const char *code;
        enum redis_failure failure;
    } codes[] = {
        {"LOADING", REDIS_FAILURE_LOADING},     {"READONLY", REDIS_FAILURE_READONLY},
        {"MASTERDOWN", REDIS_FAILURE_READONLY}, {"OOM", REDIS_FAILURE_OOM},
        {"NOAUTH", REDIS_FAILURE_AUTH},         {"WRONGPASS", REDIS_FAILURE_AUTH},
        {"NOPERM", REDIS_FAILURE_AUTH},         {"BUSY", REDIS_FAILURE_BUSY},
        {"CLUSTERDOWN", REDIS_FAILURE_CLUSTER}, {"MOVED", REDIS_FAILURE_CLUSTER},
        {"ASK", REDIS_FAILURE_CLUSTER},         {"TRYAGAIN", REDIS_FAILURE_MOVING},
    };
    for (size_t i = 0; i < COUNT_OF(codes); i++)
        if (redis_error_is(message, codes[i].code))
            return codes[i].failure;
    return REDIS_FAILURE_SCRIPT;
}
