/* lint.h - checks of a policy across its sections: contradictions and probable mistakes.
 *
 * This directory owns findings that concern more than one section of a policy. It never changes
 * the policy. lint.c calls the others: lint_rules.c, lint_match.c, lint_identity.c and
 * lint_listeners.c. */
#ifndef WEIR_CONFIG_LINT_H
#define WEIR_CONFIG_LINT_H

#include "config/yaml_load.h"
#include "policy/client_table.h"

/* Reports contradictions as errors. If there are no errors at all, warns of probable mistakes. */
void policy_check(struct loading *l);

/* The warnings by subject; the file of each is check_SUBJECT.c. */
void warn_of_admin(struct loading *l);
void warn_of_decisions(struct loading *l);
void warn_of_rate_limit_service(struct loading *l);
void warn_of_costs(struct loading *l);
void warn_of_paths(struct loading *l);
void warn_of_identity(struct loading *l);
void warn_of_rules(struct loading *l);
void warn_of_match(struct loading *l, const struct node *item,
                   const struct rule *rule); /* one rule */

#endif
