/* rule_choice.h - selects the rule of a request and an unambiguous path to forward. */
#ifndef WEIR_POLICY_RULE_CHOICE_H
#define WEIR_POLICY_RULE_CHOICE_H

#include "http/head.h"
#include "http/readings.h"
#include "policy/rule_match.h"

/* Buffers for one request at a time. */
struct route_room {
    struct match_room match;
    char forward[READINGS_PATH_MAX], normal[READINGS_PATH_MAX], lower[READINGS_PATH_MAX];
    struct readings readings;
};

struct route {
    const struct rule *rule;
    struct slice path; /* replaces the target's path when forwarding; empty: unchanged */
};

/* Selects the rule of a request. Returns NULL on success; `route->path` then points into `room`.
 * Otherwise the request must be rejected with 400 and the returned reason (static text):
 *   - the method differs from a known one only in case (RFC 9110 section 9.1)
 *   - a method override header selects another rule, or there are more than 4 overrides
 *   - the path has an invalid percent code, or dot segments while paths.dot_segments is "reject"
 *   - the path is too long after removal of its dot segments
 *   - the path is ambiguous: one of its readings (http/readings.h) selects another rule than its
 *     normal form, or there are too many readings
 *   - there is no Host, and the Host of the upstream selects another rule
 *   - matching takes more than MATCH_STEPS_MAX steps
 *   - the rule depends on content that is not known: content->decides is set
 *   - the rule depends on which of several fields or query parameters of one name a server uses, or
 *     on how it decodes the query (policy/query.h)
 * Plain paths take the fast path: a single match without these checks of the path. */
MUST_CHECK const char *policy_route(const struct policy *policy,
                                    const struct request_facts *request, struct route_room *room,
                                    struct route *route);

/* ---- for weir explain: the parts of policy_route(), one by one ---- */

/* Sets what policy_route() matches rules on, and the normal form of the path. Returns the reason if
 * the request is refused before. Both use `room` and are valid until its next use; `request` also
 * points to `given`. */
MUST_CHECK const char *policy_read_request(const struct policy *policy,
                                           const struct request_facts *given,
                                           struct route_room *room, struct rule_request *request,
                                           struct slice *normal);

/* Returns whether the readings of a path that is not plain must select the same rule. */
static inline bool policy_compares_readings(const struct policy *policy)
{
    return policy->paths.ambiguous != AMBIGUOUS_ALLOW &&
           (policy->rules_have_paths || policy->rules_have_hosts);
}

/* Returns the rule that this reading of the path selects, `rule` if it is that of the normal form;
 * NULL: it is uncertain. Uses room->lower, and counts the steps of this reading only. */
const struct rule *policy_rule_of_reading(const struct policy *policy,
                                          const struct rule_request *request, struct slice reading,
                                          const struct rule *rule, struct route_room *room);

/* Returns true if headers such as X-HTTP-Method-Override name at most 4 methods in all. */
bool policy_overrides_are_few(const struct fields *fields);

/* Returns true if `rule`, the result of policy_match(), also applies to each method named by a
 * header such as X-HTTP-Method-Override. Otherwise the server may execute a request of another
 * rule, or of a method that a limit counts separately. */
bool policy_overrides_agree(const struct policy *policy, const struct rule *rule,
                            const struct rule_request *request);

#endif
