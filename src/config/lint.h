/* lint.h - checks of a policy across its sections: contradictions and probable mistakes.
 *
 * These files own findings that concern more than one section of a policy, and never change the
 * policy. lint.c calls the others. */
#ifndef WEIR_CONFIG_LINT_H
#define WEIR_CONFIG_LINT_H

#include "config/yaml_load.h"
#include "policy/client_table.h"

/* Reports contradictions as errors. If there are no errors at all, warns of probable mistakes. */
void policy_check(struct loading *l);

/* --- lint_listeners.c --- */

void warn_of_admin(struct loading *l);
void warn_of_decisions(struct loading *l);
void warn_of_rate_limit_service(struct loading *l);

/* --- lint_rules.c --- */

void warn_of_costs(struct loading *l);
void warn_of_rules(struct loading *l);

/* --- lint_match.c --- */

void warn_of_paths(struct loading *l);
/* Of one rule. */
void warn_of_match(struct loading *l, const struct node *item, const struct rule *rule);

/* --- lint_identity.c --- */

void warn_of_identity(struct loading *l);

#endif
