#include <stdlib.h>

#include "cli/cli.h"
#include "limit/compose.h"
#include "store/embedded.h"

static bool has_custom_scripts(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (policy->limits[i].kind == LIMIT_CUSTOM)
            return true;
    return false;
}

/* Asks a private Redis, so that a check never touches the one in production. As compose_check. */
static int ask_private_redis(const char *composed, FILE *report)
{
    struct embedded *embedded = embedded_start();
    if (!embedded)
        return -1;
    struct redis_settings settings = {.address = *embedded_address(embedded), .timeout_us = 1000000};
    int result = compose_check(&settings, composed, report);
    embedded_stop(embedded);
    return result;
}

static void warn_unchecked(FILE *report)
{
    fputs("warning: the policy's own limiter scripts could not be tried: no Redis answers, and no private "
          "redis-server could "
          "be started (Debian package redis-server)\n",
          report);
}

bool cli_check_scripts(const struct policy *policy, const char *composed, FILE *report)
{
    int result;

    if (!has_custom_scripts(policy)) /* weir's own limiters compile */
        return true;
    result = policy->redis.address.length ? compose_check(&policy->redis, composed, report) : -1;
    if (result >= 0)
        return result != 1;
    if ((result = ask_private_redis(composed, report)) < 0)
        warn_unchecked(report);
    return result != 1;
}

int cli_check(const char *policy_file, const char *lua_dir)
{
    struct policy *policy = policy_load(policy_file, lua_dir, stderr);
    char *composed = policy ? compose_driver(policy, lua_dir, stderr) : NULL;
    bool good = composed != NULL;

    if (good && has_custom_scripts(policy)) {
        int result = ask_private_redis(composed, stderr);
        if (result < 0)
            warn_unchecked(stderr);
        good = result != 1;
    }
    if (good)
        policy_print(policy, stdout);
    free(composed);
    policy_drop(policy);
    return good ? 0 : 1;
}
