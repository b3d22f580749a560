/* explain_descriptor.h - what weir does with one descriptor of Envoy's rate limit service, and why:
 * the configured entries that match it, and their limits. Redis is not used. */
#ifndef WEIR_EXPLAIN_EXPLAIN_DESCRIPTOR_H
#define WEIR_EXPLAIN_EXPLAIN_DESCRIPTOR_H

#include <stdio.h>

#include "policy/descriptor_name.h"
#include "policy/policy.h"

struct explained_descriptor {
    const struct policy *policy;
    const struct rate_limit_domain *domain; /* NULL: the policy does not have it */
    struct parsed_descriptor parsed;
    struct descriptor_name name;
    struct descriptor_match match;
    /* By entry of the descriptor. NULL: none matches it, or none did before. */
    const struct configured_entry *entries[DESCRIPTOR_ENTRIES_MAX];
    bool is_over; /* a limit admits nothing; else all limits may have room */
};

/* Explains the descriptor with this name. Returns NULL, or what is wrong with the name. */
const char *explain_descriptor(const struct policy *policy, struct slice name,
                               struct explained_descriptor *e);

/* Prints the explanation, for a person who reads it from top to bottom. */
void explain_print_descriptor(const struct explained_descriptor *e, FILE *out);

#endif
