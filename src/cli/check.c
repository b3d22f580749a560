#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"
#include "limit/compose.h"

static void warn_untried(FILE *report)
{
    fputs("warning: redis-server is not installed (Debian package redis-server), so the policy's "
          "own limiter scripts were not tested\n",
          report);
}

/* The private Redis comes first, so that a script that never ends does not block the configured
 * one. */
bool cli_check_scripts(const struct policy *policy, const char *composed, const char *lua_dir,
                       FILE *report)
{
    int result;

    if (!policy_has_custom_limits(policy)) /* weir's own limiters have tests */
        return true;
    if ((result = contract_check(policy, lua_dir, report)) < 0)
        warn_untried(report);
    if (result == 1)
        return false;
    return !composed || (policy->redis.address.length == 0 && !policy->redis.host) ||
           compose_check(&policy->redis, composed, report) != 1;
}

static void warn_of_log_file(const struct policy *policy)
{
    if (!log_may_open(policy->log.file))
        fprintf(stderr, "%s: warning: log.file: %s cannot be written by this user: %s\n",
                policy->file, policy->log.file, strerror(errno));
}

static void warn_of_state(const struct policy *policy)
{
    const char *directory = policy->state_directory;

    if (directory && access(directory, W_OK | X_OK) != 0)
        fprintf(stderr, "%s: warning: state_directory: %s cannot be written by this user: %s\n",
                policy->file, directory, strerror(errno));
}

static int check(const char *policy_file, const char *lua_dir)
{
    struct policy *policy = policy_load(policy_file, lua_dir, stderr);
    char *composed = policy ? compose_driver(policy, lua_dir, stderr) : NULL;
    bool good = composed != NULL;

    if (good)
        good = cli_check_scripts(policy, NULL, lua_dir, stderr);
    if (good) {
        cli_check_names(policy);
        cli_check_redis(policy);
        warn_of_log_file(policy);
        warn_of_state(policy);
    }
    if (good && !policy_needs_redis(policy))
        fprintf(stderr, "%s: note: there are no limits, so weir does not connect to Redis\n",
                policy->file);
    if (good && policy->identity.jwt.remote_count)
        fprintf(stderr, "%s: note: identity.jwt.keys: weir check does not fetch URLs\n",
                policy->file);
    if (good)
        policy_print(policy, stdout);
    free(composed);
    policy_drop(policy);
    return good ? CLI_GOOD : CLI_FAILED;
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    int status = cli_read_operands(argc, argv, &policy_file, 0, 0,
                                   "unexpected argument (a policy is named by -c FILE)");

    return status == CLI_GOOD ? check(policy_file, lua_dir) : status;
}

const struct command command_check = {
    .name = "check",
    .arguments = "[-c FILE]",
    .what = "validate a policy and print what is in effect",
    .help = "Prints errors and warnings with line, column and remedy; then the policy with all "
            "defaults.\n"
            "Exit status: 0 valid, also with warnings; 1 errors; 2 command line.\n",
    .run = run};
