/* rule_index.h - rules by host pattern and by the part of the path pattern before its first "*".
 *
 * A hash table from (host pattern, path prefix) to the rules that have both, in order. A prefix
 * ends at a "/" or is the whole pattern, so a lookup tries each prefix of the request's path that
 * ends at a "/", for each host pattern that matches. Hashes are not keyed: the keys of the table
 * come from the policy, and a request cannot add any. */
#ifndef WEIR_POLICY_RULE_INDEX_H
#define WEIR_POLICY_RULE_INDEX_H

#include "base/arena.h"
#include "policy/policy.h"

/* Rules with the same host pattern and path prefix. */
struct rule_bucket {
    uint64_t hash;
    struct slice host, prefix; /* host in lower case, without port and trailing dot */
    const struct rule **rules; /* in order */
    unsigned count;
    struct rule_bucket *next; /* in the same chain */
};

/* Builds the index over all rules but the last. Linear in the number of rules. */
struct rule_index *rule_index_new(struct arena *arena, const struct policy *policy);

/* Calls `visit` for each bucket whose rules may match the path and host. */
void rule_index_visit(const struct rule_index *index, struct slice path, struct slice host,
                      void (*visit)(const struct rule_bucket *bucket, void *context),
                      void *context);

#endif
