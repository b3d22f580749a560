/* log_changes.h - what a reload changes, for the log. */
#ifndef WEIR_CONFIG_LOG_CHANGES_H
#define WEIR_CONFIG_LOG_CHANGES_H

#include "policy/policy.h"

/* Logs a line per changed section: of limits, rules, plans, clients and upstreams with the names of
 * changed, added and removed entries, at most 8 of each. Compares what `weir check` prints, so a
 * changed secret is not seen. Without memory, logs nothing. */
void policy_log_changes(const struct policy *before, const struct policy *after);

#endif
