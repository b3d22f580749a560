/* explain.c - the command line of `weir explain`. */
#include <stdlib.h>

#include "admin/query_redis.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/explain_request.h"
#include "explain/explain_print.h"
#include "policy/descriptor_name.h"

enum { OPTION_FROM = 256, OPTION_CERTIFICATE, OPTION_STATE, OPTION_JSON };

static const struct option options[] = {
    {"request", required_argument, NULL, 'X'},
    {"header", required_argument, NULL, 'H'},
    {"data", required_argument, NULL, 'd'},
    {"from", required_argument, NULL, OPTION_FROM},
    {"certificate", required_argument, NULL, OPTION_CERTIFICATE},
    {"state", no_argument, NULL, OPTION_STATE},
    {"json", no_argument, NULL, OPTION_JSON},
    CLI_COMMON_OPTIONS,
    {0}};

struct explain_command {
    const char *policy_file, *lua_dir;
    struct explain_order order;
    bool state, json;
};

/* ---- the command ----------------------------------------------------------------------------- */

static int print(const struct explain_command *command, const struct policy *policy,
                 const struct explain_request *request, const struct explanation *e)
{
    (command->json ? explain_print_json : explain_print_text)(policy, request, e);
    return explanation_forwards(e) ? CLI_GOOD : CLI_REFUSED;
}

static int explain_with_policy(const struct explain_command *command,
                               const struct explain_request *request)
{
    struct policy *policy = query_policy(command->policy_file, command->lua_dir);
    bool good = policy && policy_takes_requests(policy, stderr);
    struct explainer *explainer = good ? explainer_new(policy, command->state) : NULL;
    const struct explanation *e = explainer ? explainer_explain(explainer, request) : NULL;
    int status = e ? print(command, policy, request, e) : CLI_FAILED;

    if (good && !explainer)
        fputs("weir: explain: out of memory\n", stderr);
    explainer_free(explainer);
    policy_drop(policy);
    return status;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static int explain_one_descriptor(const struct explain_command *command, const char *name)
{
    const struct explain_order *order = &command->order;
    struct policy *policy;
    const char *why;
    bool is_over;

    if (order->method || order->header_count || order->has_content || order->from ||
        order->certificate || command->state || command->json)
        return cli_bad_usage("explain", "-c is the only option with a descriptor", NULL);
    if (!(policy = query_policy(command->policy_file, command->lua_dir)))
        return CLI_FAILED;
    why = explain_descriptor(policy, slice_of(name), &is_over);
    int status = why ? cli_bad_usage("explain", why, name) : is_over ? CLI_REFUSED : CLI_GOOD;
    policy_drop(policy);
    return status;
}

/* ---- the command line ------------------------------------------------------------------------ */

static bool add_header(struct explain_order *order, const char *text)
{
    if (order->header_count == EXPLAIN_HEADERS_MAX) {
        cli_bad_usage("explain", "more than 256 header fields", text);
        return false;
    }
    order->headers[order->header_count++] = text;
    return true;
}

static bool take_option(void *context, int option, const char *value)
{
    struct explain_command *command = context;

    switch (option) {
    case 'X': command->order.method = value; return true;
    case 'H': return add_header(&command->order, value);
    case 'd': return explain_add_content(&command->order, value);
    case OPTION_FROM: command->order.from = value; return true;
    case OPTION_CERTIFICATE: command->order.certificate = value; return true;
    case OPTION_STATE: command->state = true; return true;
    default: command->json = true; return true;
    }
}

static int run_explain(struct explain_command *command)
{
    char *room = xmalloc(EXPLAIN_HEAD_MAX);
    struct text head = text_over(room, EXPLAIN_HEAD_MAX);
    struct explain_request request = {.certificate = NULL};
    int status = explain_make_request(&command->order, &head, &request)
                     ? explain_with_policy(command, &request)
                     : CLI_USAGE;

    free(request.certificate);
    free(room);
    return status;
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    struct explain_command command = {.policy_file = policy_file, .lua_dir = lua_dir};

    log_set_level(LEVEL_ERROR);
    int status =
        cli_read_options(argc, argv, &(struct cli_options){"c:X:H:d:h", options, take_option},
                         &command.policy_file, &command);
    if (status == CLI_GOOD && optind + 1 != argc)
        status = cli_bad_usage("explain", optind < argc ? "expected one URL" : "the URL is missing",
                               NULL);
    if (status == CLI_GOOD) {
        command.order.url = argv[optind];
        status = descriptor_name_is_one(slice_of(argv[optind]))
                     ? explain_one_descriptor(&command, argv[optind])
                     : run_explain(&command);
    }
    free((char *)command.order.content.p);
    return status;
}

const struct command command_explain = {
    .name = "explain",
    .arguments = "[-c FILE] [OPTION...] URL",
    .what = "what happens to a request, and why",
    .help =
        "Needs no server, and charges nothing. URL: as for curl; of /PATH alone the host is "
        "localhost.\n"
        "Or descriptor:DOMAIN/KEY=VALUE/KEY=VALUE, of the rate limit service, with no option but "
        "-c.\n"
        "-X, --request METHOD   the method (default GET, with -d POST)\n"
        "-H, --header 'N: V'    a header field; may be repeated. 'N;': an empty value\n"
        "-d, --data CONTENT     the content; @FILE: what the file contains\n"
        "    --from ADDRESS     the client's address (default 127.0.0.1); unix: a Unix socket\n"
        "    --certificate FILE the client's certificate, in PEM; it counts as verified\n"
        "    --state            ask Redis what is left of each limit\n"
        "    --json             print JSON\n"
        "Exit status: 0 forwarded, 3 refused, 1 error in the policy or no Redis, 2 command line.\n",
    .run = run};
