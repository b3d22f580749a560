/* contract.h - tests the policy's own limiter scripts in a private Redis before they are used. */
#ifndef WEIR_LIMIT_CONTRACT_H
#define WEIR_LIMIT_CONTRACT_H

#include <stdio.h>

#include "policy/policy.h"

/* Runs every limit that has its own script through lua/contract.lua, in a redis-server started
 * for it. 0: all pass. 1: one fails; reported to `report` as FILE:LINE:COLUMN. -1: no
 * redis-server can be started. Blocks the caller for about 0.3 s on success, at most
 * CONTRACT_ALL_US. */
enum { CONTRACT_ALL_US = 15000000 };
int contract_check(const struct policy *policy, const char *lua_dir, FILE *report);

#endif
