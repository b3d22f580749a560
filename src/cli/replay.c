/* replay.c - the command line of `weir replay`. */
#include "replay/replay_run.h"

#include <unistd.h>

#include "cli/cli.h"
#include "replay/log_merge.h"

enum {
    OPTION_COMPARE = 256,
    OPTION_HOST,
    OPTION_USER,
    OPTION_SUGGEST,
    OPTION_NO_SUGGEST,
    OPTION_JSON
};

static const struct option options[] = {{"compare", required_argument, NULL, OPTION_COMPARE},
                                        {"host", required_argument, NULL, OPTION_HOST},
                                        {"user", no_argument, NULL, OPTION_USER},
                                        {"suggest", no_argument, NULL, OPTION_SUGGEST},
                                        {"no-suggest", no_argument, NULL, OPTION_NO_SUGGEST},
                                        {"json", no_argument, NULL, OPTION_JSON},
                                        {"quiet", no_argument, NULL, 'q'},
                                        CLI_COMMON_OPTIONS,
                                        {0}};

static bool take_option(void *context, int option, const char *value)
{
    struct replay_order *order = context;

    switch (option) {
    case OPTION_COMPARE: order->policies[1] = value; return true;
    case OPTION_HOST: order->options.host = value; return true;
    case OPTION_USER: order->options.user_is_id = true; return true;
    case OPTION_SUGGEST: order->suggest = REPLAY_SUGGEST_ALWAYS; return true;
    case OPTION_NO_SUGGEST: order->suggest = REPLAY_SUGGEST_NEVER; return true;
    case OPTION_JSON: order->json = true; return true;
    default: order->progress = false; return true; /* -q */
    }
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    struct replay_order order = {
        .policies = {policy_file}, .lua_dir = lua_dir, .progress = isatty(STDERR_FILENO) == 1};
    int status = cli_read_options(argc, argv, &(struct cli_options){"c:qh", options, take_option},
                                  &order.policies[0], &order);

    if (status != CLI_GOOD)
        return status;
    order.logs = argv + optind;
    order.log_count = (unsigned)(argc - optind);
    if (order.log_count == 0)
        return cli_bad_usage("replay", "name at least one log file, or - for standard input", NULL);
    if (order.log_count > LOG_FILES_MAX)
        return cli_bad_usage("replay", "more than 256 log files; replay fewer at a time", NULL);
    return replay_run(&order);
}

const struct command command_replay = {
    .name = "replay",
    .arguments = "[-c FILE] [OPTION...] LOG...",
    .what = "report who would have been limited, from access logs",
    .help = "LOG is a file in the common, combined or vhost_combined format, or in JSON:\n"
            "weir's, or with the names of nginx. gzip is read, too; \"-\" is standard input.\n"
            "    --compare FILE  another policy; both are reported\n"
            "    --host NAME     Host of the requests, if the log has none\n"
            "    --user          the user in common and combined logs is the client's id\n"
            "    --suggest       search the smallest values that would limit no client\n"
            "                    (default: if the logs are short)\n"
            "    --no-suggest    do not search them\n"
            "    --json          print the report as JSON\n"
            "-q, --quiet         show no progress\n",
    .run = run};
