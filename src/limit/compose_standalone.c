/* compose_standalone.c - `weir script`: a limiter as a plain Redis script. */
#include <stdlib.h>

#include "limit/compose.h"
#include "limit/compose_text.h"

static void write_usage(FILE *out, const char *name)
{
    fprintf(out,
            "-- %s as a plain Redis script, printed by weir.\n"
            "--\n"
            "--   redis-cli --eval THIS.lua KEY , LIMIT PERIOD_US [BURST [COST [MODE [ID "
            "[OFFSET_US [NOW_US "
            "[OPTION...]]]]]]]\n"
            "--\n"
            "-- e.g. 100 a minute:  redis-cli --eval THIS.lua my-client , 100 60000000\n"
            "-- It answers granted, remaining, retry_after (us), reset (us) and, for some "
            "limiters, delay (us).\n"
            "-- BURST, COST, MODE, ID, OFFSET_US and NOW_US may be \"\" for their defaults.\n\n",
            name);
}

bool compose_standalone(const char *name, const char *lua_dir, FILE *out, FILE *report)
{
    char *path = lua_path(name, lua_dir), *tail_path = lua_path("standalone", lua_dir);
    bool own = compose_is_path(name), good = false;
    char *text = lua_read(path, report), *tail = text ? lua_read(tail_path, report) : NULL;

    if (tail) {
        write_usage(out, name);
        fprintf(out, "local exact, muldiv, numbers = %s\n", own ? "true" : "false");
        good = lua_write_helper(out, "muldiv", lua_dir, report);
        fputs("local limiter = ", out);
        lua_write_chunk(out, path, text, own);
        lua_write_mark(out, tail_path);
        fputs(tail, out);
    }
    free(tail);
    free(text);
    free(tail_path);
    free(path);
    return good;
}
