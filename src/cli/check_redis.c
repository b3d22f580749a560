/* check_redis.c - part of `weir check`: checks whether Redis could lose usage counts. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "policy/policy.h"
#include "redis/blocking.h"

enum { TIMEOUT_US = 500000 };

/* Returns the value of a line "NAME:VALUE" of INFO; empty: no such line. */
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

/* A Redis server; in a cluster, one of the masters. */
struct place_of_redis {
    const struct policy *policy;
    char text[256]; /* its name in messages */
};

static void check_memory(redisContext *redis, const struct place_of_redis *position, FILE *report)
{
    redisReply *reply = redisCommand(redis, "INFO memory");

    if (reply && reply->type == REDIS_REPLY_STRING) {
        struct slice most = info_value(reply->str, "maxmemory"),
                     way = info_value(reply->str, "maxmemory_policy");
        if (way.n && !slice_equal(way, SLICE("noeviction")) && !slice_equal(most, SLICE("0")))
            fprintf(report,
                    "%s: warning: redis %s: maxmemory-policy is %.*s: a key that it evicts is a client with "
                    "a fresh limit; set noeviction there\n",
                    position->policy->file, position->text, SLICE_ARG(way));
    }
    freeReplyObject(reply);
}

/* Returns false if no snapshots are configured. If CONFIG is not permitted, returns true. */
static bool saves_snapshots(redisContext *redis)
{
    redisReply *reply = redisCommand(redis, "CONFIG GET save");
    bool never = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                 reply->element[1]->type == REDIS_REPLY_STRING && reply->element[1]->len == 0;

    freeReplyObject(reply);
    return !never;
}

static void check_persistence(redisContext *redis, const struct place_of_redis *position, FILE *report)
{
    redisReply *reply = redisCommand(redis, "INFO persistence");

    if (reply && reply->type == REDIS_REPLY_STRING &&
        slice_equal(info_value(reply->str, "aof_enabled"), SLICE("0")) && !saves_snapshots(redis))
        fprintf(
            report,
            "%s: warning: redis %s: keeps nothing on disk: after a restart every client has a fresh limit; "
            "set appendonly yes there\n",
            position->policy->file, position->text);
    freeReplyObject(reply);
}

void cli_check_redis(const struct policy *policy, FILE *report)
{
    const struct redis_settings *settings = &policy->redis;
    char why[REDIS_WHY_MAX];

    if (!policy_needs_redis(policy))
        return;
    if (settings->embedded) {
        fprintf(
            report,
            "%s: note: the embedded Redis keeps nothing on disk: after a restart of weir every client has a "
            "fresh limit\n",
            policy->file);
        return;
    }
    for (unsigned part = 0, parts = 1; part < parts; part++) {
        redisContext *redis = redis_dial_part(settings, part, &parts, TIMEOUT_US, why);
        struct place_of_redis position = {.policy = policy};
        if (!redis)
            return;
        snprintf(position.text, sizeof position.text, "%s", settings->address_text);
        if (settings->cluster.count && redis->tcp.host)
            snprintf(position.text, sizeof position.text, "%s:%d", redis->tcp.host, redis->tcp.port);
        check_memory(redis, &position, report);
        if (!redis->err)
            check_persistence(redis, &position, report);
        redisFree(redis);
    }
}
