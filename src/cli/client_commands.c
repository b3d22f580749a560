/* client_commands.c - weir inspect, weir reset and weir grant. */
#include <inttypes.h>

#include "admin/query_redis.h"
#include "base/values.h"
#include "cli/cli.h"
#include "cli/client_report.h"
#include "policy/identity_source.h"

enum { INSPECT_US = 10000000, RESET_US = 60000000 };

/* Warns of a probable mistake: an address without "ip:", an id that the policy does not read, or a
 * hash from a log. */
static void doubt(const struct client_subject *subject, const char *client)
{
    const struct identity_settings *identity = &subject->policy->identity;
    const struct identity_source *source = identity_source_of(identity_text(&subject->identity));
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

static int query_client(struct client_subject *subject, struct query_redis *redis,
                        const char *client, const struct client_order *order)
{
    const char *why;

    if (!client_query_named(subject->policy, slice_of(client), &subject->identity,
                            &subject->descriptor, &why)) {
        fprintf(stderr, "weir: %s is not a client: %s\n", client, why);
        return CLI_USAGE;
    }
    if (!subject->descriptor.is_one)
        doubt(subject, client);
    subject->query =
        client_query_new(subject->policy, &subject->identity, &subject->descriptor, order);
    if (!subject->query)
        fputs("weir: out of memory\n", stderr);
    if (!subject->query || !query_redis_run(redis, subject->query))
        return CLI_FAILED;
    return order->kind == CLIENT_QUERY_INSPECT ? client_report_inspect(subject)
           : order->kind == CLIENT_QUERY_RESET ? client_report_reset(subject)
                                               : client_report_grant(subject);
}

static int run_client_command(const char *file, const char *lua_dir, const char *client,
                              const struct client_order *order)
{
    struct client_subject subject = {.policy = query_policy(file, lua_dir)};
    struct query_redis redis = {.policy = subject.policy};
    int status = subject.policy ? query_client(&subject, &redis, client, order) : CLI_FAILED;

    client_query_free(subject.query);
    query_redis_close(&redis);
    policy_drop(subject.policy);
    return status;
}

/* weir inspect and weir reset. */
static int run_on_client(int argc, char **argv, const char *file, const char *lua_dir)
{
    bool inspects = strcmp(argv[0], command_inspect.name) == 0;
    struct client_order order = {.kind = inspects ? CLIENT_QUERY_INSPECT : CLIENT_QUERY_RESET,
                                 .timeout_us = inspects ? INSPECT_US : RESET_US};
    int status = cli_read_operands(argc, argv, &file, 1, 1, "expected one CLIENT");

    return status == CLI_GOOD ? run_client_command(file, lua_dir, argv[optind], &order) : status;
}

/* `time`: NULL if not given. */
static bool read_grant(struct client_order *order, const char *quota, const char *time)
{
    if (!grant_quota_read(slice_of(quota), &order->quota))
        fprintf(
            stderr,
            "weir: %s is not a quota: expected a whole number from 0 to %lld, unlimited, or none\n",
            quota, (long long)LIMIT_MAX);
    else if (!time && order->quota != GRANT_NONE)
        fputs("weir: the duration is missing: add a duration from 1s to 30d after the quota, such "
              "as 1h\n",
              stderr);
    else if (time && order->quota == GRANT_NONE)
        fputs("weir: none revokes the grant and takes no duration; remove it\n", stderr);
    else if (time && !grant_time_read(slice_of(time), &order->us))
        fprintf(stderr, "weir: %s is not a duration; expected 1s to 30d, such as 1h\n", time);
    else
        return true;
    return false;
}

static int run_grant(int argc, char **argv, const char *file, const char *lua_dir)
{
    struct client_order order = {.kind = CLIENT_QUERY_GRANT};
    int status = cli_read_operands(argc, argv, &file, 2, 3,
                                   "expected CLIENT, QUOTA and DURATION, or CLIENT none");

    if (status != CLI_GOOD)
        return status;
    if (!read_grant(&order, argv[optind + 1], argv[optind + 2]))
        return CLI_USAGE;
    return run_client_command(file, lua_dir, argv[optind], &order);
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
    .run = run_on_client};

const struct command command_reset = {
    .name = "reset",
    .arguments = "[-c FILE] CLIENT",
    .what = "give a client a fresh start",
    .help =
        "Removes the client's counts in Redis, and tells all weirs on it. CLIENT as for inspect.\n",
    .run = run_on_client};

const struct command command_grant = {
    .name = "grant",
    .arguments = "[-c FILE] CLIENT QUOTA DURATION",
    .what = "override a client's quota for a time",
    .help = "QUOTA is a number per period, or unlimited. DURATION is 10m, 4h or 30d, for example.\n"
            "weir grant CLIENT none takes the grant back. CLIENT as for inspect.\n",
    .run = run_grant};
