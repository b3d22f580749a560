/* check_redis.c - part of `weir check`: checks whether Redis can be reached and written, and
 * whether it could lose usage counts. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "policy/policy.h"
#include "redis/blocking.h"
#include "redis/failure.h"
#include "redis/slot.h"

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
struct checked_server {
    const struct policy *policy;
    char text[256]; /* its name in messages */
};

/* A server that requires a password lets every client connect. */
static void warn_of_login(const struct redis_reply *reply, const struct checked_server *server)
{
    if (reply && reply->type == RESP_ERROR && slice_starts_with(reply->text, SLICE("NOAUTH")))
        fprintf(stderr,
                "%s: warning: redis %s: it requires a password, and the policy has none; set "
                "redis.password_file\n",
                server->policy->file, server->text);
}

static void check_memory(struct redis_blocking *redis, const struct checked_server *server)
{
    const struct redis_reply *reply =
        redis_command(redis, 2, (const char *[]){"INFO", "memory"}, NULL);

    warn_of_login(reply, server);
    if (reply && reply->type == RESP_STRING) {
        struct slice most = info_value(reply->text.p, "maxmemory"),
                     way = info_value(reply->text.p, "maxmemory_policy");
        if (way.n && !slice_equal(way, SLICE("noeviction")) && !slice_equal(most, SLICE("0")))
            fprintf(stderr,
                    "%s: warning: redis %s: maxmemory-policy is %.*s: an evicted key gives its "
                    "client a fresh limit; set noeviction\n",
                    server->policy->file, server->text, SLICE_ARG(way));
    }
}

/* Returns false if no snapshots are configured. If CONFIG is not permitted, returns true. */
static bool saves_snapshots(struct redis_blocking *redis)
{
    const struct redis_reply *reply =
        redis_command(redis, 3, (const char *[]){"CONFIG", "GET", "save"}, NULL);

    struct slice name, value;

    return !redis_reply_read(reply, "ss", &name, &value) || value.n;
}

static void check_persistence(struct redis_blocking *redis, const struct checked_server *server)
{
    const struct redis_reply *reply =
        redis_command(redis, 2, (const char *[]){"INFO", "persistence"}, NULL);

    if (reply && reply->type == RESP_STRING &&
        slice_equal(info_value(reply->text.p, "aof_enabled"), SLICE("0")) &&
        !saves_snapshots(redis))
        fprintf(stderr,
                "%s: warning: redis %s: has no persistence: after a restart every client has a "
                "fresh limit; set appendonly yes\n",
                server->policy->file, server->text);
}

/* Returns true if the slot is moving to another node of the cluster: decisions follow it. */
static bool is_redirection(const char *error, const struct redis_settings *settings)
{
    return settings->cluster.count &&
           (redis_error_is(error, "MOVED") || redis_error_is(error, "ASK"));
}

/* Sends a command of decisions. Returns the reply, or NULL after a warning that it was refused. */
static const struct redis_reply *try_command(struct redis_blocking *redis,
                                             const struct checked_server *server, int argc,
                                             const char *const *argv)
{
    const struct redis_reply *reply = redis_command(redis, argc, argv, NULL);

    if (!reply || reply->type != RESP_ERROR)
        return reply;
    enum redis_failure failure = redis_failure_of(reply->text.p);
    if (failure != REDIS_FAILURE_AUTH && /* see warn_of_login() */
        !is_redirection(reply->text.p, &server->policy->redis))
        fprintf(stderr,
                "%s: warning: redis %s: %s: \"%s\"; meanwhile limits follow on_failure; %s\n",
                server->policy->file, server->text, redis_failure_text[failure], reply->text.p,
                redis_failure_remedy(failure, &server->policy->redis));
    return NULL;
}

/* Writes the name of a key that is deleted at once. In a cluster, its hash tag is found by trial:
 * each fits with a probability of 1 in 16384. */
static void name_key(char *key, size_t size, const struct redis_blocking *redis,
                     const struct redis_settings *settings)
{
    unsigned tag = 0;

    snprintf(key, size, "%s:check", settings->key_prefix);
    while (settings->cluster.count && redis_slot_of(slice_of(key)) != redis_blocking_slot(redis))
        snprintf(key, size, "%s:check{%u}", settings->key_prefix, tag++);
}

/* Writes and deletes a key with the commands of decisions. A replica, a Redis without memory and
 * many others refuse that. */
static void check_writes(struct redis_blocking *redis, const struct checked_server *server)
{
    static const char script[] = "local key = KEYS[1]\n"
                                 "redis.call('TIME')\n"
                                 "redis.call('MGET', key)\n"
                                 "redis.call('SET', key, '0', 'PX', '1')\n"
                                 "redis.call('SETRANGE', key, '0', '1')\n"
                                 "return redis.call('DEL', key)\n";
    char key[256], sha[41];
    const struct redis_reply *loaded =
        try_command(redis, server, 3, (const char *[]){"SCRIPT", "LOAD", script});

    if (!loaded || loaded->type != RESP_STRING || loaded->text.n >= sizeof sha)
        return;
    snprintf(sha, sizeof sha, "%s", loaded->text.p);
    name_key(key, sizeof key, redis, &server->policy->redis);
    if (try_command(redis, server, 4, (const char *[]){"EVALSHA", sha, "1", key}))
        (void)try_command(redis, server, 4, (const char *[]){"EVAL", script, "1", key});
}

static void warn_of_no_reply(const struct policy *policy, const char *server, const char *why)
{
    fprintf(stderr,
            "%s: warning: redis %s: %s (tried now, from this machine); while weir cannot use it, "
            "limits follow on_failure\n",
            policy->file, server, why);
}

static void check_server(const struct policy *policy, struct redis_blocking *redis)
{
    struct checked_server server = {.policy = policy};

    snprintf(server.text, sizeof server.text, "%s", policy->redis.address_text);
    if (policy->redis.cluster.count)
        address_format(redis_blocking_address(redis), server.text);
    check_memory(redis, &server);
    check_persistence(redis, &server);
    check_writes(redis, &server);
    if (*redis_blocking_error(redis))
        warn_of_no_reply(policy, server.text, redis_blocking_error(redis));
}

void cli_check_redis(const struct policy *policy)
{
    const struct redis_settings *settings = &policy->redis;
    char why[REDIS_WHY_MAX];

    if (!policy_needs_redis(policy))
        return;
    if (settings->embedded) {
        fprintf(stderr,
                "%s: note: the embedded Redis has no persistence: after a restart of weir every "
                "client has a fresh limit\n",
                policy->file);
        return;
    }
    for (unsigned part = 0, parts = 1; part < parts; part++) {
        struct redis_blocking *redis = redis_dial_part(settings, part, &parts, TIMEOUT_US, why);
        if (redis)
            check_server(policy, redis);
        else
            warn_of_no_reply(policy, settings->address_text, why);
        redis_blocking_free(redis);
    }
}
