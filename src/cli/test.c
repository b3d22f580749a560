/* test.c - the command line of `weir test`. */
#include "scenario/test_command.h"

#include <getopt.h>
#include <unistd.h>

#include "cli/cli.h"

static const char usage[] =
    "usage: weir test [OPTION...] TEST.yaml...\n"
    "Runs tests of a policy: their requests are decided in virtual time by the policy's limits, in "
    "a private\n"
    "Redis. The file format is in weir(8), section TEST FILES.\n"
    "  -c, --config FILE   the policy, instead of the one that each file names\n"
    "      --tap           print the results in the Test Anything Protocol\n"
    "      --json          print the results as JSON\n"
    "  -q, --quiet         show no progress\n"
    "Exit status: 0 all tests passed; 1 a test failed, or a file has a mistake; 2 usage.\n";

enum { OPTION_TAP = 256, OPTION_JSON };

static const struct option options[] = {
    {"config", required_argument, NULL, 'c'}, {"tap", no_argument, NULL, OPTION_TAP},
    {"json", no_argument, NULL, OPTION_JSON}, {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};

static bool read_option(int option, const char *value, struct test_order *order)
{
    switch (option) {
    case 'c': order->policy = value; return true;
    case OPTION_TAP: order->format = SCENARIO_TAP; return true;
    case OPTION_JSON: order->format = SCENARIO_JSON; return true;
    case 'q': order->progress = false; return true;
    default: return false;
    }
}

int cli_test(int argc, char **argv, const char *lua_dir)
{
    struct test_order order = {.lua_dir = lua_dir, .progress = isatty(STDERR_FILENO) == 1};

    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "c:qh", options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (!read_option(option, optarg, &order))
            return cli_bad_usage("test", "unknown option, or one that lacks its value", NULL);
    }
    order.files = argv + optind;
    order.file_count = (unsigned)(argc - optind);
    if (order.file_count == 0)
        return cli_bad_usage("test", "name at least one file of tests", NULL);
    return scenario_test(&order);
}
