/* client_commands.c - weir inspect, weir reset and weir grant. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/values.h"
#include "cli/cli.h"
#include "cli/client_report.h"
#include "limit/compose.h"
#include "policy/identity_source.h"
#include "redis/blocking.h"
#include "redis/failure.h"
#include "redis/slot.h"

enum { CONNECT_US = 2000000, LOOK_US = 10000000, RESET_US = 60000000 };

/* A client query from the command line. */
struct client_command {
    struct client_subject subject;
    struct redis_blocking *redis;
    int where; /* cluster: the slot that the connection is for; negative: -1 - shard */
    char sha[41];
};

/* --- Redis ------------------------------------------------------------------------------------ */

/* Discards the policy's warnings; `weir check` prints them. */
static struct policy *load(const char *file, const char *lua_dir)
{
    char *text = NULL;
    size_t size;
    FILE *report = open_memstream(&text, &size);
    struct policy *policy = report ? policy_load(file, lua_dir, report) : NULL;

    if (policy && !(policy->driver = compose_driver(policy, lua_dir, report))) {
        policy_drop(policy);
        policy = NULL;
    }
    if (report)
        fclose(report);
    if (!policy && text)
        fputs(text, stderr);
    free(text);
    return policy;
}

/* Prints the error and, if it is a known reply of Redis, its remedy. */
static bool complain(const struct client_command *command, const char *why)
{
    const struct redis_settings *settings = &command->subject.policy->redis;
    enum redis_failure failure = redis_failure_of(why);
    bool known = failure != REDIS_FAILURE_SCRIPT;

    fprintf(stderr, "weir: redis %s: %s%s%s\n", settings->address_text, why, known ? "; " : "",
            known ? redis_failure_remedy(failure, settings) : "");
    return false;
}

static bool dial(struct client_command *command)
{
    const struct redis_settings *settings = &command->subject.policy->redis;
    char why[REDIS_WHY_MAX];
    unsigned parts;

    if (settings->embedded) {
        fputs("weir: redis.address is embedded: only the running weir can use that Redis; use its "
              "admin listener, /api/v1/clients/CLIENT\n",
              stderr);
        return false;
    }
    command->redis =
        command->where < 0
            ? redis_dial_part(settings, (unsigned)(-1 - command->where), &parts, CONNECT_US, why)
            : redis_dial_slot(settings, (unsigned)command->where, CONNECT_US, why);
    return command->redis || complain(command, why);
}

/* In a cluster, selects the node of the keys or the shard; closes the connection if it is for
 * another one. */
static void go_where(struct client_command *command, const char **argv, const size_t *sizes)
{
    struct slice keys = {argv[0], sizes[0]};
    int where = 0;

    if (command->subject.policy->redis.cluster.count)
        where = slice_equal(keys, SLICE("0"))
                    ? -1 - (int)client_query_shard(command->subject.query)
                    : (int)redis_slot_of((struct slice){argv[1], sizes[1]});
    if (command->redis && where != command->where) {
        redis_blocking_free(command->redis);
        command->redis = NULL;
    }
    command->where = where;
}

/* Finds the number of shards of the keys. False: an error was printed. */
static bool count_parts(struct client_command *command)
{
    char why[REDIS_WHY_MAX];
    unsigned parts = 1;
    struct redis_blocking *redis;

    if (!command->subject.policy->redis.cluster.count)
        return true;
    if (!(redis = redis_dial_part(&command->subject.policy->redis, 0, &parts, CONNECT_US, why)))
        return complain(command, why);
    redis_blocking_free(redis);
    client_query_set_shards(command->subject.query, parts);
    return true;
}

static bool load_script(struct client_command *command)
{
    char *script = client_query_script(command->subject.policy);
    const char *argv[] = {"SCRIPT", "LOAD", script};
    const struct redis_reply *reply =
        script ? redis_command(command->redis, COUNT_OF(argv), argv, NULL) : NULL;
    bool good = reply && reply->type == RESP_STRING && reply->text.n == sizeof command->sha - 1;

    if (good)
        memcpy(command->sha, reply->text.p, sizeof command->sha);
    else
        complain(command, reply && reply->type == RESP_ERROR
                              ? reply->text.p
                              : redis_blocking_error(command->redis));
    free(script);
    return good;
}

/* Sends EVALSHA SHA with these arguments. */
static const struct redis_reply *run_call(struct client_command *command, int argc,
                                          const char **argv, const size_t *sizes)
{
    const char **words = xcalloc((size_t)argc + 2, sizeof *words);
    size_t *lengths = xcalloc((size_t)argc + 2, sizeof *lengths);

    words[0] = "EVALSHA", lengths[0] = strlen(words[0]);
    words[1] = command->sha, lengths[1] = strlen(command->sha);
    memcpy(words + 2, argv, (size_t)argc * sizeof *words);
    memcpy(lengths + 2, sizes, (size_t)argc * sizeof *lengths);
    const struct redis_reply *reply = redis_command(command->redis, argc + 2, words, lengths);
    free(words);
    free(lengths);
    return reply;
}

static bool query_all(struct client_command *command)
{
    const char **argv;
    const size_t *sizes;
    bool good = count_parts(command);
    int argc;

    while (good && client_query_next(command->subject.query, &argc, &argv, &sizes)) {
        go_where(command, argv, sizes);
        if (!command->redis && !(dial(command) && load_script(command)))
            return false;
        const struct redis_reply *reply = run_call(command, argc, argv, sizes);
        if (!reply || reply->type == RESP_ERROR)
            good = complain(command, reply ? reply->text.p : redis_blocking_error(command->redis));
        else if (!client_query_take(command->subject.query, reply))
            good = complain(command, "a reply in an unexpected format");
    }
    return good;
}

/* --- Commands --------------------------------------------------------------------------------- */

/* The command, the client, and a grant's quota and duration. */
struct order {
    enum client_query_kind kind;
    const char *client;
    int64_t quota, us;
};

static struct query *begin(const struct client_command *command, const struct order *order)
{
    if (order->kind == CLIENT_QUERY_GRANT)
        return client_query_new_grant(command->subject.policy, &command->subject.identity,
                                      order->quota, order->us);
    return client_query_new(command->subject.policy, &command->subject.identity, order->kind,
                            order->kind == CLIENT_QUERY_LOOK ? LOOK_US : RESET_US);
}

/* Warns of a probable mistake: an address without "ip:", an id that the policy does not read, or a
 * hash from a log. */
static void doubt(const struct client_command *command, const char *client)
{
    const struct identity_settings *identity = &command->subject.policy->identity;
    const struct identity_source *source =
        identity_source_of(identity_text(&command->subject.identity));
    bool is_read = false;
    struct ip ip;

    if (!source->is_id)
        return;
    for (unsigned i = 0; i < identity->from_count; i++)
        is_read |= identity->from[i].source == source;
    if (ip_parse(slice_of(client), &ip))
        fprintf(stderr, "weir: %s is interpreted as an id; the address is ip:%s\n", client, client);
    else if (!is_read)
        fprintf(stderr,
                "weir: this policy has no such ids: identity.from contains no %s; "
                "an address is "
                "ip:ADDRESS\n",
                source->description);
    else if (source->hashed && identity_is_hash(slice_of(client + strlen(source->prefix))))
        fprintf(stderr,
                "weir: %s is interpreted as a value; a hash, as in logs, is written %sh:HASH\n",
                client, source->prefix);
}

static int query_client(struct client_command *command, const struct order *order)
{
    const char *why;

    if (!client_query_identity(command->subject.policy, slice_of(order->client),
                               &command->subject.identity, &why)) {
        fprintf(stderr, "weir: %s is not a client: %s\n", order->client, why);
        return 1;
    }
    doubt(command, order->client);
    command->subject.query = begin(command, order);
    if (!command->subject.query || !query_all(command))
        return 1;
    return order->kind == CLIENT_QUERY_LOOK    ? client_report_inspect(&command->subject)
           : order->kind == CLIENT_QUERY_RESET ? client_report_reset(&command->subject)
                                               : client_report_grant(&command->subject);
}

static int run(const char *file, const char *lua_dir, const struct order *order)
{
    struct client_command command = {.subject.policy = load(file, lua_dir)};
    int status = command.subject.policy ? query_client(&command, order) : 1;

    client_query_free(command.subject.query);
    redis_blocking_free(command.redis);
    policy_drop(command.subject.policy);
    return status;
}

int cli_inspect(const char *policy_file, const char *client, const char *lua_dir)
{
    return run(policy_file, lua_dir, &(struct order){.kind = CLIENT_QUERY_LOOK, .client = client});
}

int cli_reset(const char *policy_file, const char *client, const char *lua_dir)
{
    return run(policy_file, lua_dir, &(struct order){.kind = CLIENT_QUERY_RESET, .client = client});
}

int cli_grant(const char *policy_file, const char *client, const char *quota, const char *time,
              const char *lua_dir)
{
    struct order order = {.kind = CLIENT_QUERY_GRANT, .client = client};

    if (!grant_quota_read(slice_of(quota), &order.quota)) {
        fprintf(
            stderr,
            "weir: %s is not a quota: expected a whole number from 0 to %lld, unlimited, or none\n",
            quota, (long long)LIMIT_MAX);
        return 1;
    }
    if (!time && order.quota != GRANT_NONE) {
        fputs("weir: the duration is missing: add a duration from 1s to 30d after the quota, such "
              "as 1h\n",
              stderr);
        return 1;
    }
    if (time && order.quota == GRANT_NONE) {
        fputs("weir: none revokes the grant and takes no duration; remove it\n", stderr);
        return 1;
    }
    if (time && !grant_time_read(slice_of(time), &order.us)) {
        fprintf(stderr, "weir: %s is not a duration; expected 1s to 30d, such as 1h\n", time);
        return 1;
    }
    return run(policy_file, lua_dir, &order);
}
