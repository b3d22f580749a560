/* compose.h - composes the policy's limiters and the driver into one Redis script, or a single
 * limiter into a plain script.
 *
 * These files own what Redis runs: the Lua text, and whether it is fit to run. They decide no
 * requests. In reading order: compose.h, compose_text.h, compose_check.c (compiles it in Redis),
 * contract.c (an operator's own limiters). */
#ifndef WEIR_LIMIT_COMPOSE_H
#define WEIR_LIMIT_COMPOSE_H

#include <stdio.h>

#include "base/text.h"
#include "policy/policy.h"

/* The header argument of a run: RUN_COUNTS times the number of requests, plus the number of
 * limits of each; negative for a plain run. RUN_RESERVED is added if reserves follow. */
enum { RUN_COUNTS = 10, RUN_RESERVED = 1000 };

/* Marks a line of the composed script; the name of the source file of the following lines comes
 * after it. */
#define COMPOSE_MARK "--@ "

/* Composes the script of a policy: a preamble (every limiter used, the table of limits) and
 * driver.lua from `lua_dir`. Returns NUL-terminated text, to be freed by the caller. NULL if
 * driver.lua cannot be read (error printed to `report`). */
char *compose_driver(const struct policy *policy, const char *lua_dir, FILE *report);
/* The same, for requests with times of their own (limiter_set_time()). */
char *compose_driver_with_clock(const struct policy *policy, const char *lua_dir, FILE *report);

/* Returns lua/contract.lua with what limiters receive, to be freed by the caller; NULL: a file
 * cannot be read, error printed to `report`. */
char *compose_contract(const char *lua_dir, FILE *report);

/* Returns true if the composed script contains the limit. Limits that no rule uses are left out. */
bool compose_uses(const struct policy *policy, const struct limit *limit);

/* Rewrites Redis' "...user_script:LINE: MESSAGE" as "FILE:LINE: MESSAGE". False: the message
 * names no line of a limiter in the script. */
bool compose_blame(const char *script, const char *message, struct text *out);

/* Returns true if a limiter is given as a file path (has a slash or the file ending), not by
 * name. */
bool compose_is_path(const char *script);

/* `weir script NAME|FILE`: writes the limiter as a plain Redis script to `out`. False: error
 * printed to `report`. */
bool compose_standalone(const char *name, const char *lua_dir, FILE *out, FILE *report);

/* Compiles the composed script in Redis. Blocks; call only before the workers start. 0:
 * compiles. 1: does not; the Lua error was printed to `report`. -1: Redis could not be queried. */
int compose_check(const struct redis_settings *settings, const char *script, FILE *report);

/* contract.c: runs every limit that has its own script through lua/contract.lua, in a redis-server
 * started for it. 0: all pass. 1: one fails; reported to `report` as FILE:LINE:COLUMN. -1: no
 * redis-server can be started. Blocks the caller for about 0.3 s on success, at most
 * CONTRACT_ALL_US. */
enum { CONTRACT_ALL_US = 30000000 };
int contract_check(const struct policy *policy, const char *lua_dir, FILE *report);

#endif
