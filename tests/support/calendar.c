/* calendar - prints how weir evaluates a policy's calendar, for tests/lua/calendar.py.
 *
 *   calendar POLICY LUA_DIR              prints the composed script
 *   calendar POLICY LUA_DIR LIMIT T...   prints the window of each time T (us since 1970) with
 *                                        on_failure: local */
#include <stdlib.h>

#include "limit/compose.h"
#include "policy/calendar.h"

static const struct limit *limit_of(const struct policy *policy, const char *name)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (strcmp(policy->limits[i].name, name) == 0 && policy->limits[i].calendar)
            return &policy->limits[i];
    return NULL;
}

static int print_windows(const struct limit *limit, char **times)
{
    for (; limit && *times; times++) {
        struct window window = calendar_window(limit, atoll(*times));
        printf("%lld %lld\n", (long long)window.start_us, (long long)window.end_us);
    }
    return limit ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct policy *policy = argc >= 3 ? policy_load(argv[1], argv[2], stderr) : NULL;
    int result = 1;

    if (policy && argc == 3) {
        char *script = compose_driver(policy, argv[2], stderr);
        result = script && fputs(script, stdout) >= 0 ? 0 : 1;
        free(script);
    } else if (policy)
        result = print_windows(limit_of(policy, argv[3]), argv + 4);
    policy_drop(policy);
    return result;
}
