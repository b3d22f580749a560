/* cli.h - subcommands. Exit status: 0 success, 1 bad input or policy, 2 bad usage.
 *
 * This directory owns what `weir SUBCOMMAND` prints. It runs no workers and accepts no connections.
 * In reading order: check.c (with check_names.c, check_redis.c), client_commands.c and
 * client_report.h for inspect, reset and grant, explain.c, top.h, replay.c, script.c. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"

/* Exit statuses. */
enum {
    CLI_GOOD,
    CLI_FAILED,
    CLI_USAGE,
    CLI_REFUSED, /* weir explain: the request is refused */
    CLI_HELP     /* for main(), which prints the help of the command */
};

/* A subcommand. */
struct command {
    const char *name, *arguments;
    const char *what;  /* one line */
    const char *help;  /* what --help adds */
    bool own_policies; /* its arguments name policies, so that there is no default */
    /* Reads the rest of the command line; argv[0] is `name`. `policy_file`: used unless an option
     * names another. `lua_dir`: directory of the limiter scripts. Returns the exit status. */
    int (*run)(int argc, char **argv, const char *policy_file, const char *lua_dir);
};

extern const struct command command_check, command_explain, command_inspect, command_reset,
    command_grant, command_replay, command_test, command_top, command_script;

/* --- command_line.c --- */

/* The options of a command, for getopt_long(3). */
struct cli_options {
    const char *letters; /* with "c:h" */
    const struct option *options;
    /* Takes an option other than -c and -h. False: an error was printed. NULL: there are none. */
    bool (*take)(void *context, int option, const char *value);
};

/* Options that every command has. */
/* clang-format off */
#define CLI_COMMON_OPTIONS                                                                         \
    {"config", required_argument, NULL, 'c'}, {"help", no_argument, NULL, 'h'}
/* clang-format on */

/* Reads the options. CLI_GOOD: argv + optind are the operands. Otherwise the exit status. */
MUST_CHECK int cli_read_options(int argc, char **argv, const struct cli_options *known,
                                const char **policy_file, void *context);
/* The same for commands whose only option is -c, with `least` to `most` operands. `expected`: names
 * them in the error message. */
MUST_CHECK int cli_read_operands(int argc, char **argv, const char **policy_file, int least,
                                 int most, const char *expected);
/* Prints why the arguments of a command are wrong, with the argument `what` if it is not NULL.
 * `command`: NULL if it is not known. Returns the exit status. */
int cli_bad_usage(const char *command, const char *why, const char *what);
/* The same for an option that getopt_long(3) does not know, or whose value is missing or not
 * allowed. Of several letters after one "-", prints only the bad one. */
int cli_bad_option(const char *command, char **argv, const char *letters);

/* --- check.c, check_redis.c, check_names.c --- */

/* Tests the policy's own limiter scripts in a private Redis (limit/contract.c). Then compiles
 * `composed` in the configured Redis, if `composed` is not NULL and Redis is reachable. False: a
 * script failed; the reason was printed. If no private Redis can be started, prints a warning
 * and does not fail. Blocks the caller for CONTRACT_ALL_US at most, plus the compilation. */
struct policy;
bool cli_check_scripts(const struct policy *policy, const char *composed, const char *lua_dir,
                       FILE *report);

/* Warns on standard error if Redis does not reply within 500 ms, refuses the commands of decisions,
 * may evict keys or is not persistent, and notes an embedded Redis. Skips the checks that need INFO
 * or CONFIG GET if Redis denies them. */
void cli_check_redis(const struct policy *policy);

/* Warns on standard error of host names of upstream servers and of Redis that do not resolve.
 * Blocks for resolver.timeout at most. */
void cli_check_names(const struct policy *policy);

#endif
