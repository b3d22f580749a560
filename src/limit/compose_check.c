/* compose_check.c - compiles the composed script in Redis, whose Lua will run it; locates errors
 * by file and line. */
#include <stdlib.h>

#include "limit/compose.h"
#include "limit/compose_text.h"
#include "redis/blocking.h"
#include "redis/slot.h"

enum { CHECK_US = 1000000 };

/* Finds the source file and line of line `number` of the script. False: it is in the preamble. */
static bool locate(const char *script, unsigned number, struct slice *file, unsigned *line)
{
    bool found = false;

    for (unsigned at = 1; *script && at <= number; at++) {
        size_t n = strcspn(script, "\n");
        struct slice parent = {script, n};
        const char *mark = memmem(script, n, COMPOSE_MARK, sizeof COMPOSE_MARK - 1);
        (*line)++;
        if (mark) {
            *file = (struct slice){mark + sizeof COMPOSE_MARK - 1,
                                   n - (size_t)(mark + sizeof COMPOSE_MARK - 1 - script)};
            *line = 0;
            found = true;
        } else if (slice_equal(parent, SLICE(LUA_END)) || slice_equal(parent, SLICE(LUA_OWN_END)) ||
                   slice_equal(parent, SLICE(LUA_VALUE_END)))
            found = false;
        script += n + (script[n] == '\n');
    }
    return found;
}

bool compose_blame(const char *script, const char *message, struct text *out)
{
    static const char chunk[] = "user_script:";
    const char *at = strstr(message, chunk);
    struct slice file = SLICE_NONE;
    unsigned line = 0, number;
    int taken = 0;

    if (!at || sscanf(at + sizeof chunk - 1, "%u:%n", &number, &taken) != 1 || !taken ||
        !locate(script, number, &file, &line) || line == 0)
        return false;
    text_printf(out, "%.*s:%u:%s", SLICE_ARG(file), line, at + sizeof chunk - 1 + taken);
    return true;
}

static void report_lua_error(const char *script, const char *message, FILE *report)
{
    char room[512];
    struct text blame = text_over(room, sizeof room);

    if (compose_blame(script, message, &blame))
        fprintf(report, "%.*s\n", (int)blame.n, room);
    else
        fprintf(report, "Redis rejects the limiter scripts: %s\n", message);
}

static bool is_about_script(const char *message)
{
    return strstr(message, "user_script") || strstr(message, "compiling script");
}

/* Compiles the script and runs it without requests, to find files that fail while they are
 * loaded. */
static int run_in_redis(struct redis_blocking *redis, const char *script, FILE *report)
{
    const char *argv[] = {"EVAL", script, "1", "weir:check", ""};
    const struct redis_reply *reply = redis_command(redis, COUNT_OF(argv), argv, NULL);

    if (reply && reply->type != RESP_ERROR)
        return 0;
    if (!reply || !is_about_script(reply->text.p))
        return -1;
    report_lua_error(script, reply->text.p, report);
    return 1;
}

int compose_check(const struct redis_settings *settings, const char *script, FILE *report)
{
    char why[REDIS_WHY_MAX];
    struct redis_blocking *redis =
        redis_dial_slot(settings, redis_slot_of(SLICE("weir:check")), CHECK_US, why);
    int result = redis ? run_in_redis(redis, script, report) : -1;

    redis_blocking_free(redis);
    return result;
}
