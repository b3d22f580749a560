/* contract.h - tries the policy's own limiter scripts in a private Redis, before they are let near traffic. */
#ifndef WEIR_LIMIT_CONTRACT_H
#define WEIR_LIMIT_CONTRACT_H

#include <stdio.h>

#include "policy/policy.h"

/* Has every limit with a script of its own go through lua/contract.lua, in a redis-server started for it that may
 * be killed. 0: all keep the contract. 1: one does not, and what it is was printed to `report` as
 * FILE:LINE:COLUMN. -1: there is no redis-server to be started. Blocks the caller, for some 0.3 s where all is
 * well and CONTRACT_ALL_US at most, and nobody else. */
enum { CONTRACT_ALL_US = 15000000 };
int contract_check(const struct policy *policy, const char *lua_dir, FILE *report);

#endif
