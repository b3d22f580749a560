/* client_commands.c - weir inspect, weir reset and weir grant. */
#include <inttypes.h>

#include "base/values.h"
#include "cli/cli.h"
#include "cli/client_report.h"
#include "cli/query_redis.h"
#include "policy/identity_source.h"

enum { INSPECT_US = 10000000, RESET_US = 60000000 };

/* A client query from the command line. */
struct client_command {
    struct client_subject subject;
    struct query_redis redis;
};

/* --- Commands --------------------------------------------------------------------------------- */

/* The command, the client, and a grant's quota and duration. */
struct client_arguments {
    enum client_query_kind kind;
    const char *client;
    int64_t quota, us;
};

static struct client_query *new_query(const struct client_command *command,
                                      const struct client_arguments *arguments)
{
    if (arguments->kind == CLIENT_QUERY_GRANT)
        return client_query_new_grant(command->subject.policy, &command->subject.identity,
                                      arguments->quota, arguments->us);
    return client_query_new(command->subject.policy, &command->subject.identity,
                            &command->subject.descriptor, arguments->kind,
                            arguments->kind == CLIENT_QUERY_INSPECT ? INSPECT_US : RESET_US);
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

static int query_client(struct client_command *command, const struct client_arguments *arguments)
{
    const char *why;

    if (!client_query_named(command->subject.policy, slice_of(arguments->client),
                            &command->subject.identity, &command->subject.descriptor, &why)) {
        fprintf(stderr, "weir: %s is not a client: %s\n", arguments->client, why);
        return CLI_USAGE;
    }
    if (!command->subject.descriptor.is_one)
        doubt(command, arguments->client);
    command->subject.query = new_query(command, arguments);
    if (!command->subject.query)
        fputs("weir: out of memory\n", stderr);
    if (!command->subject.query || !query_redis_run(&command->redis, command->subject.query))
        return CLI_FAILED;
    return arguments->kind == CLIENT_QUERY_INSPECT ? client_report_inspect(&command->subject)
           : arguments->kind == CLIENT_QUERY_RESET ? client_report_reset(&command->subject)
                                                   : client_report_grant(&command->subject);
}

static int run_client_command(const char *file, const char *lua_dir,
                              const struct client_arguments *arguments)
{
    struct client_command command = {.subject.policy = query_policy(file, lua_dir)};

    command.redis.policy = command.subject.policy;
    int status = command.subject.policy ? query_client(&command, arguments) : CLI_FAILED;

    client_query_free(command.subject.query);
    query_redis_close(&command.redis);
    policy_drop(command.subject.policy);
    return status;
}

static int run_inspect(int argc, char **argv, const char *file, const char *lua_dir)
{
    struct client_arguments arguments = {.kind = CLIENT_QUERY_INSPECT};
    int status = cli_read_operands(argc, argv, &file, 1, 1, "expected one CLIENT");

    arguments.client = argv[optind];
    return status == CLI_GOOD ? run_client_command(file, lua_dir, &arguments) : status;
}

static int run_reset(int argc, char **argv, const char *file, const char *lua_dir)
{
    struct client_arguments arguments = {.kind = CLIENT_QUERY_RESET};
    int status = cli_read_operands(argc, argv, &file, 1, 1, "expected one CLIENT");

    arguments.client = argv[optind];
    return status == CLI_GOOD ? run_client_command(file, lua_dir, &arguments) : status;
}

/* `time`: NULL if not given. */
static bool read_grant(struct client_arguments *arguments, const char *quota, const char *time)
{
    if (!grant_quota_read(slice_of(quota), &arguments->quota))
        fprintf(
            stderr,
            "weir: %s is not a quota: expected a whole number from 0 to %lld, unlimited, or none\n",
            quota, (long long)LIMIT_MAX);
    else if (!time && arguments->quota != GRANT_NONE)
        fputs("weir: the duration is missing: add a duration from 1s to 30d after the quota, such "
              "as 1h\n",
              stderr);
    else if (time && arguments->quota == GRANT_NONE)
        fputs("weir: none revokes the grant and takes no duration; remove it\n", stderr);
    else if (time && !grant_time_read(slice_of(time), &arguments->us))
        fprintf(stderr, "weir: %s is not a duration; expected 1s to 30d, such as 1h\n", time);
    else
        return true;
    return false;
}

static int run_grant(int argc, char **argv, const char *file, const char *lua_dir)
{
    struct client_arguments arguments = {.kind = CLIENT_QUERY_GRANT};
    int status = cli_read_operands(argc, argv, &file, 2, 3,
                                   "expected CLIENT, QUOTA and DURATION, or CLIENT none");

    if (status != CLI_GOOD)
        return status;
    arguments.client = argv[optind];
    if (!read_grant(&arguments, argv[optind + 1], argv[optind + 2]))
        return CLI_USAGE;
    return run_client_command(file, lua_dir, &arguments);
}

const struct command command_inspect = {
    .name = "inspect",
    .arguments = "[-c FILE] CLIENT",
    .what = "where a client stands on every limit, without charging it",
    .help = "CLIENT is a name as in the log: an id, ip:ADDRESS, or a value after jwt:, cookie:, "
            "query:,\n"
            "json: or certificate:. Or descriptor:DOMAIN/KEY=VALUE of the rate limit service.\n"
            "Exit status: 0, also if the client is unknown; 1 error in the policy or no Redis; 2 "
            "command\n"
            "line.\n",
    .run = run_inspect};

const struct command command_reset = {
    .name = "reset",
    .arguments = "[-c FILE] CLIENT",
    .what = "give a client a fresh start",
    .help =
        "Removes the client's counts in Redis, and tells all weirs on it. CLIENT as for inspect.\n",
    .run = run_reset};

const struct command command_grant = {
    .name = "grant",
    .arguments = "[-c FILE] CLIENT QUOTA DURATION",
    .what = "override a client's quota for a time",
    .help = "QUOTA is a number per period, or unlimited. DURATION is 10m, 4h or 30d, for example.\n"
            "weir grant CLIENT none takes the grant back. CLIENT as for inspect.\n",
    .run = run_grant};
