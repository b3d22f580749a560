#include "admin/query_redis.h"

#include <stdlib.h>

#include "base/memory.h"
#include "config/policy_file.h"
#include "limit/compose.h"
#include "redis/blocking.h"
#include "redis/failure.h"
#include "redis/slot.h"

enum { CONNECT_US = 2000000 };

static struct policy *load_composed(const char *file, const char *lua_dir, FILE *report)
{
    struct policy *policy = policy_load(file, lua_dir, report);

    if (policy && !(policy->driver = compose_driver(policy, lua_dir, report))) {
        policy_drop(policy);
        policy = NULL;
    }
    return policy;
}

struct policy *query_policy(const char *file, const char *lua_dir)
{
    return policy_load_quietly(file, lua_dir, stderr, load_composed);
}

/* Prints the error and, if it is a known reply of Redis, its remedy. */
static bool complain(const struct query_redis *to, const char *why)
{
    const struct redis_settings *settings = &to->policy->redis;
    enum redis_failure failure = redis_failure_of(why);
    bool known = failure != REDIS_FAILURE_SCRIPT;

    fprintf(stderr, "weir: redis %s: %s%s%s\n", settings->address_text, why, known ? "; " : "",
            known ? redis_failure_remedy(failure, settings) : "");
    return false;
}

static bool dial(struct query_redis *to)
{
    const struct redis_settings *settings = &to->policy->redis;
    char why[REDIS_WHY_MAX];
    unsigned parts;

    if (settings->embedded) {
        fputs("weir: redis.address is embedded: only the running weir can use that Redis; use its "
              "admin listener, /api/v1/clients/CLIENT\n",
              stderr);
        return false;
    }
    to->redis = to->where < 0
                    ? redis_dial_part(settings, (unsigned)(-1 - to->where), &parts, CONNECT_US, why)
                    : redis_dial_slot(settings, (unsigned)to->where, CONNECT_US, why);
    return to->redis || complain(to, why);
}

/* In a cluster, selects the node of the keys or the shard; closes the connection if it is for
 * another one. */
static void go_where(struct query_redis *to, const struct client_query *query, const char **argv,
                     const size_t *sizes)
{
    struct slice keys = {argv[0], sizes[0]};
    int where = 0;

    if (to->policy->redis.cluster.count)
        where = slice_equal(keys, SLICE("0"))
                    ? -1 - (int)client_query_shard(query)
                    : (int)redis_slot_of((struct slice){argv[1], sizes[1]});
    if (to->redis && where != to->where) {
        redis_blocking_free(to->redis);
        to->redis = NULL;
    }
    to->where = where;
}

/* Finds the number of shards of the keys. False: an error was printed. */
static bool count_parts(const struct query_redis *to, struct client_query *query)
{
    char why[REDIS_WHY_MAX];
    unsigned parts = 1;
    struct redis_blocking *redis;

    if (!to->policy->redis.cluster.count)
        return true;
    if (!(redis = redis_dial_part(&to->policy->redis, 0, &parts, CONNECT_US, why)))
        return complain(to, why);
    redis_blocking_free(redis);
    client_query_set_shards(query, parts);
    return true;
}

static bool load_script(struct query_redis *to)
{
    char *script = client_query_script(to->policy);
    const char *argv[] = {"SCRIPT", "LOAD", script};
    const struct redis_reply *reply =
        script ? redis_command(to->redis, COUNT_OF(argv), argv, NULL) : NULL;
    bool good = reply && reply->type == RESP_STRING && reply->text.n == sizeof to->sha - 1;

    if (good)
        memcpy(to->sha, reply->text.p, sizeof to->sha);
    else
        complain(to, reply && reply->type == RESP_ERROR ? reply->text.p
                                                        : redis_blocking_error(to->redis));
    free(script);
    return good;
}

/* Sends EVALSHA SHA with these arguments. */
static const struct redis_reply *run_call(struct query_redis *to, int argc, const char **argv,
                                          const size_t *sizes)
{
    const char **words = xcalloc((size_t)argc + 2, sizeof *words);
    size_t *lengths = xcalloc((size_t)argc + 2, sizeof *lengths);

    words[0] = "EVALSHA", lengths[0] = strlen(words[0]);
    words[1] = to->sha, lengths[1] = strlen(to->sha);
    memcpy(words + 2, argv, (size_t)argc * sizeof *words);
    memcpy(lengths + 2, sizes, (size_t)argc * sizeof *lengths);
    const struct redis_reply *reply = redis_command(to->redis, argc + 2, words, lengths);
    free(words);
    free(lengths);
    return reply;
}

bool query_redis_run(struct query_redis *to, struct client_query *query)
{
    const char **argv;
    const size_t *sizes;
    bool good = count_parts(to, query);
    int argc;

    while (good && client_query_next(query, &argc, &argv, &sizes)) {
        go_where(to, query, argv, sizes);
        if (!to->redis && !(dial(to) && load_script(to)))
            return false;
        const struct redis_reply *reply = run_call(to, argc, argv, sizes);
        if (!reply || reply->type == RESP_ERROR)
            good = complain(to, reply ? reply->text.p : redis_blocking_error(to->redis));
        else if (!client_query_take(query, reply))
            good = complain(to, "a reply in an unexpected format");
    }
    return good;
}

void query_redis_close(struct query_redis *to)
{
    redis_blocking_free(to->redis);
    to->redis = NULL;
}
