/* rule_choice.h - selects the rule of a request and an unambiguous path to forward. */
#ifndef WEIR_POLICY_RULE_CHOICE_H
#define WEIR_POLICY_RULE_CHOICE_H

#include "http/head.h"
#include "http/readings.h"
#include "policy/policy.h"

/* Buffers for one request at a time. */
struct route_room {
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
 *   - a method override header selects another rule
 *   - the path has an invalid percent code, or dot segments while paths.dot_segments is "reject"
 *   - the path is too long after removal of its dot segments
 *   - the path is ambiguous: one of its readings (http/readings.h) selects another rule than its
 *     normal form, or there are too many readings
 *   - there is no Host, and the Host of the upstream selects another rule
 * Plain paths take the fast path: a single match without these checks of the path. */
MUST_CHECK const char *policy_route(const struct policy *policy, const struct request_head *head,
                                    struct route_room *room, struct route *route);

#endif
