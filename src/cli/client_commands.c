/* client_commands.c - weir inspect, weir reset and weir grant. */
#include <inttypes.h>

#include "base/values.h"
#include "cli/cli.h"
#include "cli/client_report.h"
#include "cli/query_redis.h"
#include "policy/identity_source.h"

enum { LOOK_US = 10000000, RESET_US = 60000000 };

/* A client query from the command line. */
struct client_command {
    struct client_subject subject;
    struct query_redis redis;
};

/* --- Commands --------------------------------------------------------------------------------- */

/* The command, the client, and a grant's quota and duration. */
struct order {
    enum client_query_kind kind;
    const char *client;
    int64_t quota, us;
};

static struct query *new_query(const struct client_command *command, const struct order *order)
{
    if (order->kind == CLIENT_QUERY_GRANT)
        return client_query_new_grant(command->subject.policy, &command->subject.identity,
                                      order->quota, order->us);
    return client_query_new(command->subject.policy, &command->subject.identity,
                            &command->subject.descriptor, order->kind,
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
    else if (source->hashed && identity_is_hash(slice_of(client + source->prefix.n)))
        fprintf(stderr,
                "weir: %s is interpreted as a value; a hash, as in logs, is written %.*sh:HASH\n",
                client, SLICE_ARG(source->prefix));
}

static int query_client(struct client_command *command, const struct order *order)
{
    const char *why;

    if (!client_query_named(command->subject.policy, slice_of(order->client),
                            &command->subject.identity, &command->subject.descriptor, &why)) {
        fprintf(stderr, "weir: %s is not a client: %s\n", order->client, why);
        return CLI_USAGE;
    }
    if (!command->subject.descriptor.is_one)
        doubt(command, order->client);
    command->subject.query = new_query(command, order);
    if (!command->subject.query || !query_redis_run(&command->redis, command->subject.query))
        return 1;
    return order->kind == CLIENT_QUERY_LOOK    ? client_report_inspect(&command->subject)
           : order->kind == CLIENT_QUERY_RESET ? client_report_reset(&command->subject)
                                               : client_report_grant(&command->subject);
}

static int run_order(const char *file, const char *lua_dir, const struct order *order)
{
    struct client_command command = {.subject.policy = query_policy(file, lua_dir)};

    command.redis.policy = command.subject.policy;
    int status = command.subject.policy ? query_client(&command, order) : 1;

    client_query_free(command.subject.query);
    query_redis_close(&command.redis);
    policy_drop(command.subject.policy);
    return status;
}

int cli_inspect(const char *policy_file, const char *client, const char *lua_dir)
{
    return run_order(policy_file, lua_dir,
                     &(struct order){.kind = CLIENT_QUERY_LOOK, .client = client});
}

int cli_reset(const char *policy_file, const char *client, const char *lua_dir)
{
    return run_order(policy_file, lua_dir,
                     &(struct order){.kind = CLIENT_QUERY_RESET, .client = client});
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
        return CLI_USAGE;
    }
    if (!time && order.quota != GRANT_NONE) {
        fputs("weir: the duration is missing: add a duration from 1s to 30d after the quota, such "
              "as 1h\n",
              stderr);
        return CLI_USAGE;
    }
    if (time && order.quota == GRANT_NONE) {
        fputs("weir: none revokes the grant and takes no duration; remove it\n", stderr);
        return CLI_USAGE;
    }
    if (time && !grant_time_read(slice_of(time), &order.us)) {
        fprintf(stderr, "weir: %s is not a duration; expected 1s to 30d, such as 1h\n", time);
        return CLI_USAGE;
    }
    return run_order(policy_file, lua_dir, &order);
}
