/* policy_file.h - loads a policy from memory; policy_load() is in policy/policy.h. */
#ifndef WEIR_CONFIG_POLICY_FILE_H
#define WEIR_CONFIG_POLICY_FILE_H

#include "policy/policy.h"

/* As policy_load(), from memory. */
struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir,
                                FILE *report);

#endif
