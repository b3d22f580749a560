/* compose.h - the policy's limiters and the driver, pasted into one Redis script; and a single limiter as a
 * plain script. */
#ifndef WEIR_LIMIT_COMPOSE_H
#define WEIR_LIMIT_COMPOSE_H

#include <stdio.h>

#include "base/text.h"
#include "policy/policy.h"

/* What the driver is told of a run of requests: so many times their number, plus the number of limits of each. */
enum { RUN_COUNTS = 10 };

/* In the composed script, behind it stands the name of the file from which the next lines came. */
#define COMPOSE_MARK "--@ "

/* The whole Lua text for this policy: a preamble (every limiter used, the table of limits) and driver.lua of
 * `lua_dir`. malloc'ed, NUL-terminated; NULL when driver.lua cannot be read (an error was printed to
 * `report`). */
char *compose_driver(const struct policy *policy, const char *lua_dir, FILE *report);

/* The text of lua_dir/NAME.lua, malloc'ed; NULL: an error was printed to `report`. */
char *compose_file(const char *name, const char *lua_dir, FILE *report);

/* Is the limit in that script? Those that no rule uses are left out. */
bool compose_uses(const struct policy *policy, const struct limit *limit);

/* Redis says "...user_script:LINE: MESSAGE"; the operator wants to read "FILE:LINE: MESSAGE". False: it names no
 * line of a limiter of that script. */
bool compose_blame(const char *script, const char *message, struct text *out);

/* A limiter is named by itself, or by the path of its file: with a slash, or its ending. */
bool compose_is_path(const char *script);

/* `weir script NAME|FILE`: the limiter as a plain Redis script, on `out`. False: an error was printed to
 * `report`. */
bool compose_standalone(const char *name, const char *lua_dir, FILE *out, FILE *report);

/* Has Redis compile the composed script (blocking; before the workers start only). 0: it compiles. 1: it does
 * not, and the Lua message was printed to `report`. -1: it could not be asked. */
int compose_check(const struct redis_settings *settings, const char *script, FILE *report);

#endif
