/* rule_choice.h - the rule of a request, and the path to forward: one that servers read as weir does. */
#ifndef WEIR_POLICY_RULE_CHOICE_H
#define WEIR_POLICY_RULE_CHOICE_H

#include "http/head.h"
#include "http/readings.h"
#include "policy/policy.h"

/* Room for one request at a time. */
struct route_room {
    char forward[READINGS_PATH_MAX], normal[READINGS_PATH_MAX], lower[READINGS_PATH_MAX];
    struct readings readings;
};

struct route {
    const struct rule *rule;
    struct slice path; /* to forward in place of the target's; empty: as it came */
};

/* Chooses the rule of a request. NULL: done; `route->path` lies in `room`. Otherwise the request must be refused with 400, and
 * the result says why (static text):
 *   - its method differs from a known one in case alone (RFC 9110 section 9.1), or a header names the method of another rule
 *   - its path has a bad percent code, or dot segments while paths.dot_segments is "reject"
 *   - its path is ambiguous: one of its readings (http/readings.h) selects another rule than its normal form does, or
 *     there are too many
 *   - it has no Host, and the one that it is forwarded with selects another rule
 * A path that is plain is matched and nothing else. */
MUST_CHECK const char *policy_route(const struct policy *policy, const struct request_head *head,
                                    struct route_room *room, struct route *route);

#endif
