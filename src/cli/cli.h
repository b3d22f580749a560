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
/* `time` is NULL where nothing stands there. */
int cli_grant(const char *policy_file, const char *client, const char *quota, const char *time,
              const char *lua_dir);

/* Tries the policy's own limiters in a private Redis (limit/contract.h) and has the configured one, where it
 * answers, compile `composed`, unless that is NULL. False: they are not fit, and why was printed. Where no private
 * Redis can be started this is said, and nothing is refused. Blocks the caller for CONTRACT_ALL_US at most. */
struct policy;
bool cli_check_scripts(const struct policy *policy, const char *composed, const char *lua_dir, FILE *report);

/* Warns of a Redis that evicts keys, where it can be asked within a second or so, and its user may ask for INFO. */
void cli_check_redis(const struct policy *policy, FILE *report);

/* Warns of upstreams' names that do not resolve now. Waits for the name servers, resolver.timeout at most. */
void cli_check_names(const struct policy *policy, FILE *report);

#endif
