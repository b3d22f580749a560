/* test.c - the command line of `weir test`. */
#include "scenario/test_command.h"

#include <unistd.h>

#include "cli/cli.h"

enum { OPTION_TAP = 256, OPTION_JSON };

static const struct option options[] = {{"tap", no_argument, NULL, OPTION_TAP},
                                        {"json", no_argument, NULL, OPTION_JSON},
                                        {"quiet", no_argument, NULL, 'q'},
                                        CLI_COMMON_OPTIONS,
                                        {0}};

static bool take_option(void *context, int option, const char *value)
{
    struct test_order *order = context;

    (void)value;
    if (option == 'q')
        order->progress = false;
    else
        order->format = option == OPTION_TAP ? &scenario_tap : &scenario_json;
    return true;
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    struct test_order order = {.policy = policy_file,
                               .lua_dir = lua_dir,
                               .format = &scenario_text,
                               .progress = isatty(STDERR_FILENO) == 1};
    int status = cli_read_options(argc, argv, &(struct cli_options){"c:qh", options, take_option},
                                  &order.policy, &order);

    if (status != CLI_GOOD)
        return status;
    order.files = argv + optind;
    order.file_count = (unsigned)(argc - optind);
    if (order.file_count == 0)
        return cli_bad_usage("test", "name at least one file of tests", NULL);
    return scenario_test(&order);
}

const struct command command_test = {
    .name = "test",
    .arguments = "[-c FILE] [OPTION...] TEST.yaml...",
    .what = "run tests of a policy, in virtual time",
    .help =
        "The requests are decided by the policy's limits, in a private Redis. The file format is "
        "in\n"
        "weir(8), section TEST FILES.\n"
        "-c, --config FILE   the policy, instead of the one that each file names\n"
        "    --tap           print the results in the Test Anything Protocol\n"
        "    --json          print the results as JSON\n"
        "-q, --quiet         show no progress\n"
        "Exit status: 0 all tests passed; 1 a test failed, or a file has a mistake; 2 command "
        "line.\n",
    .own_policies = true,
    .run = run};
