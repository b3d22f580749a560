/* cli.h - subcommands. Each takes the rest of the command line and returns the exit status: 0
 * success, 1 bad input or policy, 2 bad usage.
 *
 * This directory owns what `weir SUBCOMMAND` prints. It runs no workers and accepts no connections.
 * In reading order: check.c (with check_names.c, check_redis.c), client_commands.c and
 * client_report.h for inspect, reset and grant (with query_redis.h), explain.c, top.h, replay.c,
 * script.c. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

/* Exit statuses. */
enum { CLI_GOOD, CLI_FAILED, CLI_USAGE };

/* Prints why the arguments of a command are wrong, with the argument `what` if it is not NULL.
 * Returns the exit status. */
static inline int cli_bad_usage(const char *command, const char *why, const char *what)
{
    fprintf(stderr, "weir: %s: %s%s%s\nweir %s --help lists the options.\n", command, why,
            what ? ": " : "", what ? what : "", command);
    return CLI_USAGE;
}

/* `lua_dir`: directory of the limiter scripts. */
int cli_check(const char *policy_file, const char *lua_dir);
int cli_script(const char *name, const char *lua_dir);
int cli_inspect(const char *policy_file, const char *client, const char *lua_dir);
int cli_reset(const char *policy_file, const char *client, const char *lua_dir);
/* argv[0] is "top"; reads its options. `policy_file`: used unless they name one or a URL. */
int cli_top(const char *policy_file, int argc, char **argv, const char *lua_dir);
/* `time`: NULL if not given. */
int cli_grant(const char *policy_file, const char *client, const char *quota, const char *time,
              const char *lua_dir);

/* argv[0] is "explain"; reads its options. `policy_file`: used unless they name one. Exit status 3:
 * the request is refused. */
int cli_explain(const char *policy_file, int argc, char **argv, const char *lua_dir);

/* `argv[0]` is "replay"; its own options follow, see `weir replay --help`. */
int cli_replay(int argc, char **argv, const char *policy_file, const char *lua_dir);

/* `argv[0]` is "test"; its own options follow, see `weir test --help`. */
int cli_test(int argc, char **argv, const char *lua_dir);

/* Tests the policy's own limiter scripts in a private Redis (limit/contract.h). Then compiles
 * `composed` in the configured Redis, if `composed` is not NULL and Redis is reachable. False: a
 * script failed; the reason was printed. If no private Redis can be started, prints a warning
 * and does not fail. Blocks the caller for CONTRACT_ALL_US at most, plus the compilation. */
struct policy;
bool cli_check_scripts(const struct policy *policy, const char *composed, const char *lua_dir,
                       FILE *report);

/* Warns if Redis may evict keys or is not persistent, and notes an embedded Redis. Skips checks
 * if Redis is not reachable within 500 ms or denies INFO. */
void cli_check_redis(const struct policy *policy, FILE *report);

/* Warns of host names of upstream servers and of Redis that do not resolve. Blocks for
 * resolver.timeout at most. */
void cli_check_names(const struct policy *policy, FILE *report);

#endif
