/* cli.h - the commands beside running: each takes what is left of the command line and returns the exit
 * status: 0 success, 1 bad input or policy, 2 bad usage. */
#ifndef WEIR_CLI_CLI_H
#define WEIR_CLI_CLI_H

#include <stdbool.h>
#include <stdio.h>

/* Limiter scripts are looked for in `lua_dir`. */
int cli_check(const char *policy_file, const char *lua_dir);
int cli_script(const char *name, const char *lua_dir);
int cli_inspect(const char *policy_file, const char *client, const char *lua_dir);
int cli_reset(const char *policy_file, const char *client, const char *lua_dir);

/* Has the limiters of a policy compiled by Redis: the configured one or, where that does not answer, a
 * private one. False: they do not compile, and the Lua message was printed. When neither Redis can be asked
 * this is said, and nothing is refused. */
struct policy;
bool cli_check_scripts(const struct policy *policy, const char *composed, FILE *report);

#endif
