/* policy_file.h - loads a policy from memory; policy_load() is in policy/policy.h.
 *
 * This directory owns the way from a YAML file to a policy. It does nothing after the policy is
 * read. In reading order:
 *
 *   yaml_load.h                   a file as a tree of YAML nodes, and messages about it
 *   options.h, types.h            reading and printing by table; types of values
 *   policy_file.h                 the sections, one after the other
 *   option_rows.h                 options_*.c: the rows of the option table
 *   sections.h                    read_*.c: one reader per section, for what rows cannot express
 *   lint.h                        checks across sections */
#ifndef WEIR_CONFIG_POLICY_FILE_H
#define WEIR_CONFIG_POLICY_FILE_H

#include "policy/policy.h"

/* As policy_load(), from memory. */
struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir,
                                FILE *report);

/* Calls `load`, which is policy_load() or takes the same. Prints its messages to `out` if it
 * returns NULL; otherwise they are warnings, which `weir check` prints. */
struct policy *policy_load_quietly(const char *file, const char *lua_dir, FILE *out,
                                   struct policy *(*load)(const char *file, const char *lua_dir,
                                                          FILE *report));

/* Logs what a reload changes: a line per changed section, of limits, rules, plans, clients and
 * upstreams with the names of changed, added and removed entries, at most 8 of each. Compares what
 * `weir check` prints, so a changed secret is not seen. Without memory, logs nothing. */
void policy_log_changes(const struct policy *before, const struct policy *after);

#endif
