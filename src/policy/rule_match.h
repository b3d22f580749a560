/* rule_match.h - finds the first rule that matches a request. */
#ifndef WEIR_POLICY_RULE_MATCH_H
#define WEIR_POLICY_RULE_MATCH_H

#include "policy/criteria.h"
#include "policy/policy.h"

/* Buffers for one request at a time. */
struct match_room {
    size_t steps; /* of patterns, see MATCH_STEPS_MAX */
    char values[2 * CRITERIA_ROOM];
    struct query_cache query;
    uint8_t truth[CRITERIA_MAX]; /* enum truth of each criterion of the policy, once evaluated */
};

/* What rules are matched on. Path and host vary with the readings of a request; the rest does
 * not. */
struct rule_request {
    struct slice method;
    /* in normal form, in lower case if paths.ignore_case is set, and through rule_path() */
    struct slice path;
    struct slice host; /* as received */
    struct criteria_request criteria;
    uint8_t *truth; /* of the criteria; TRUTH_UNKNOWN until evaluated */
};

/* Removes a trailing slash if paths.trailing_slash ignores it. */
struct slice rule_path(const struct path_settings *paths, struct slice path);

/* Fills all but `path` and `host`; `facts` and `room` must stay until the request has been
 * matched. */
void rule_request_begin(struct rule_request *request, const struct policy *policy,
                        const struct request_facts *facts, struct match_room *room);

/* Returns the first matching rule; the last rule matches everything. Returns NULL if it depends on
 * how a server reads repeated fields or the query (TRUTH_MAYBE), unless paths.ambiguous is "allow";
 * then any value may match.
 *
 * Also returns NULL once more than MATCH_STEPS_MAX steps have been taken: the caller must then
 * refuse the request.
 *
 * Policies with many rules use an index by host and path prefix. The time then depends on the rules
 * that share the request's host and path prefix, not on all rules. */
const struct rule *policy_match(const struct policy *policy, const struct rule_request *request);

/* Why one rule does not match for certain. */
enum rule_miss_of { MISS_NONE, MISS_METHOD, MISS_PATH, MISS_HOST, MISS_CRITERION };
struct rule_miss {
    enum rule_miss_of of;
    const struct criterion *criterion; /* MISS_CRITERION: the first that fails or is uncertain */
};

/* Evaluates one rule as policy_match() does, and reports why it does not match: for weir explain.
 * Counts the steps of this rule only. */
enum truth rule_try(const struct rule *rule, const struct rule_request *request,
                    struct rule_miss *miss);

#endif
