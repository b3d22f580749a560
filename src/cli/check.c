#include <stdlib.h>

#include "cli/cli.h"
#include "limit/compose.h"
#include "limit/contract.h"

static bool has_custom_scripts(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (policy->limits[i].kind == LIMIT_CUSTOM)
            return true;
    return false;
}

static void warn_untried(FILE *report)
{
    fputs("warning: there is no redis-server to be started (Debian package redis-server): whether the "
          "policy's own "
          "limiter scripts keep the contract was not checked, nor that they end\n",
          report);
}

/* In a private Redis first, so that what never ends keeps nobody waiting; then compiled by the one that will run
 * it, where that answers. */
bool cli_check_scripts(const struct policy *policy, const char *composed, const char *lua_dir, FILE *report)
{
    int result;

    if (!has_custom_scripts(policy)) /* weir's own limiters are tested */
        return true;
    if ((result = contract_check(policy, lua_dir, report)) < 0)
        warn_untried(report);
    if (result == 1)
        return false;
    return !composed || policy->redis.address.length == 0 ||
           compose_check(&policy->redis, composed, report) != 1;
}

int cli_check(const char *policy_file, const char *lua_dir)
{
    struct policy *policy = policy_load(policy_file, lua_dir, stderr);
    char *composed = policy ? compose_driver(policy, lua_dir, stderr) : NULL;
    bool good = composed != NULL;

    if (good)
        good = cli_check_scripts(policy, NULL, lua_dir, stderr);
    if (good)
        cli_check_names(policy, stderr);
    if (good)
        policy_print(policy, stdout);
    free(composed);
    policy_drop(policy);
    return good ? 0 : 1;
}
