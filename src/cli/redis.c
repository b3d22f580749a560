/* redis.c - part of `weir check`: would Redis lose what is counted? */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "policy/policy.h"
#include "store/redis_blocking.h"

enum { PATIENCE_US = 500000 };

/* The value of a line "NAME:VALUE" of INFO; empty where there is none. */
static struct slice info_value(const char *info, const char *name)
{
    size_t n = strlen(name);

    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            return (struct slice){line + n + 1, strcspn(line + n + 1, "\r\n")};
    }
    return SLICE("");
}

void cli_check_redis(const struct policy *policy, FILE *report)
{
    const struct redis_settings *settings = &policy->redis;
    char why[REDIS_WHY_MAX];
    unsigned parts;

    if (settings->embedded || !policy_needs_redis(policy))
        return;
    redisContext *redis = redis_dial_part(settings, 0, &parts, PATIENCE_US, why);
    redisReply *reply = redis ? redisCommand(redis, "INFO memory") : NULL;
    if (reply && reply->type == REDIS_REPLY_STRING) {
        struct slice most = info_value(reply->str, "maxmemory"),
                     way = info_value(reply->str, "maxmemory_policy");
        if (way.n && !slice_equal(way, SLICE("noeviction")) && !slice_equal(most, SLICE("0")))
            fprintf(report,
                    "%s: warning: redis %s: maxmemory-policy is %.*s: a key that it evicts is a client with "
                    "a fresh "
                    "limit; set noeviction there\n",
                    policy->file, settings->address_text, SLICE_ARG(way));
    }
    freeReplyObject(reply);
    if (redis)
        redisFree(redis);
}
