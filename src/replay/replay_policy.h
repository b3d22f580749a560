/* replay_policy.h - prepares a policy for replay. */
#ifndef WEIR_REPLAY_REPLAY_POLICY_H
#define WEIR_REPLAY_REPLAY_POLICY_H

#include "replay/replay_report.h"

/* Makes the limits of a policy independent of the outside: `redis` replaces its Redis, its keys
 * begin with `prefix`, a failing limit rejects, and units of concurrency limits do not expire. */
void replay_policy_isolate(struct policy *policy, const struct address *redis, const char *prefix);

/* Loads a policy and makes it independent of the outside: `redis` replaces its Redis, its keys
 * begin with `prefix`, and a failing limit rejects. Removes what a log cannot show (concurrency
 * limits, quotas from a database, leases) and appends a note about each to `result`. Prints errors
 * to standard error and returns NULL. The caller owns the reference. */
struct policy *replay_policy_load(const char *file, const char *lua_dir,
                                  const struct address *redis, const char *prefix,
                                  struct replay_result *result);

/* Makes a limit count without rejecting, whatever its `enforce`, with its numbers multiplied by
 * `factor`. */
void replay_policy_try(struct policy *policy, unsigned limit, double factor);

#endif
