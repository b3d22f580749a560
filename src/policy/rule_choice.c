#include "policy/rule_choice.h"

#include "http/path.h"

/* Methods of the IANA HTTP Method Registry (RFC 9110 section 16.1), and QUERY. */
static const char *const registered[] = {
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
};

static bool differs_in_case_alone(struct slice method, struct slice known)
{
    return slice_equal_nocase(method, known) && !slice_equal(method, known);
}

/* Returns true if the method becomes a registered one, or one of a rule, in upper case. Some
 * servers, such as Werkzeug, convert methods to upper case. */
static bool method_is_disguised(const struct policy *policy, struct slice method)
{
    for (size_t i = 0; i < COUNT_OF(registered); i++)
        if (differs_in_case_alone(method, slice_of(registered[i])))
            return true;
    for (unsigned r = 0; r < policy->rule_count; r++)
        for (unsigned i = 0; i < policy->rules[r].method_count; i++)
            if (differs_in_case_alone(method, policy->rules[r].methods[i]))
                return true;
    return false;
}

/* Returns the path in the form that policy_match() expects. */
static struct slice path_for_match(const struct policy *policy, struct slice path,
                                   struct route_room *room)
{
    path = rule_path(&policy->paths, path);
    if (!policy->paths.ignore_case || path.n > sizeof room->lower)
        return path;
    for (size_t i = 0; i < path.n; i++)
        room->lower[i] = ascii_lower(path.p[i]);
    return (struct slice){room->lower, path.n};
}

/* Writes the path's normal form to room->normal. */
static const char *normal_form(const struct policy *policy, struct slice path,
                               struct route_room *room, struct route *route, struct slice *normal)
{
    struct text forward = text_over(room->forward, sizeof room->forward);
    struct text text = text_over(room->normal, sizeof room->normal);

    if (path_has_dot_segments(path)) {
        if (policy->paths.dot_segments == DOT_SEGMENTS_REJECT)
            return "the target's path has dot segments, see paths.dot_segments";
        if (!path_remove_dot_segments(path, &forward))
            return "the target's path is too long";
        route->path = path = text_slice(&forward);
    }
    if (!path_normalise(path, &text))
        return "the target's path has an invalid percent code";
    *normal = text_slice(&text);
    return NULL;
}

/* Returns the Host that weir forwards: requests without one get that of the upstream. */
static struct slice forwarded_host(const struct policy *policy, const struct request_head *head,
                                   const struct rule *rule)
{
    return head->host.n || !policy->rules_have_hosts ? head->host : upstream_host(rule->upstream);
}

/* Returns true if this reading of the path selects `rule`, with and without method override. */
static bool selects(const struct policy *policy, const struct rule_request *request,
                    struct slice path, struct slice host, const struct rule *rule,
                    struct route_room *room)
{
    struct rule_request reading = *request;

    reading.path = path_for_match(policy, path, room);
    reading.host = host;
    return policy_match(policy, &reading) == rule && policy_overrides_agree(policy, rule, &reading);
}

/* Splits a reading that begins with "//" into authority without userinfo, and path (RFC 3986
 * sections 3.2 and 4.2). */
static bool take_authority(struct slice *reading, struct slice *authority)
{
    const char *p = reading->p, *end = p + reading->n, *start;

    if (reading->n < 2 || p[1] != '/')
        return false;
    while (p < end && *p == '/')
        p++;
    for (start = p; p < end && *p != '/'; p++)
        if (*p == '@')
            start = p + 1;
    *authority = (struct slice){start, (size_t)(p - start)};
    *reading = p < end ? (struct slice){p, (size_t)(end - p)} : SLICE("/");
    return true;
}

/* Returns true if a reading selects the rule. A server may use its authority as the host. */
static bool reading_selects(const struct policy *policy, const struct rule_request *request,
                            struct slice reading, const struct rule *rule, struct route_room *room)
{
    struct slice authority, host = forwarded_host(policy, request->criteria.facts->head, rule);

    return selects(policy, request, reading, host, rule, room) &&
           (!policy->rules_have_hosts || !take_authority(&reading, &authority) ||
            selects(policy, request, reading, authority, rule, room));
}

/* Returns why the path is ambiguous; NULL: all readings select the rule of the normal form. */
static const char *ambiguity_of(const struct policy *policy, const struct rule_request *request,
                                struct slice normal, const struct rule *rule,
                                struct route_room *room)
{
    struct slice reading;

    if (!policy_compares_readings(policy))
        return NULL;
    readings_begin(&room->readings, normal);
    while (readings_next(&room->readings, &reading))
        if (!reading_selects(policy, request, reading, rule, room))
            return "the target's path is ambiguous: read as some servers do, it selects another "
                   "rule; see "
                   "paths.ambiguous";
    return room->readings.too_many
               ? "the target's path can be read in too many ways; see paths.ambiguous"
               : NULL;
}

/* Returns true if a server that decodes the path before it looks for "?" may find one: encoded
 * once or twice, as a fullwidth form, or in overlong UTF-8. */
static bool path_may_hold_query(struct slice normal)
{
    static const struct slice marks[] = {SLICE("%3F"),      SLICE("%253F"),
                                         SLICE("%253f"),    SLICE("\xef\xbc\x9f"),
                                         SLICE("\xc0\xbf"), SLICE("\xe0\x80\xbf")};

    for (size_t i = 0; i < COUNT_OF(marks); i++)
        if (memmem(normal.p, normal.n, marks[i].p, marks[i].n))
            return true;
    return false;
}

static const char too_many_steps[] =
    "comparing the request with the rules takes more than 4 million steps; see "
    "rules[].match.path";

static const char repeated[] = "fields or query parameters are repeated or encoded so that servers "
                               "may read them as another rule's; see "
                               "paths.ambiguous";

/* Slow path: sets the path of the request, whose normal form is `*path`. */
static const char *read_unusual(const struct policy *policy, struct rule_request *request,
                                struct route_room *room, struct route *route, struct slice *path)
{
    const struct request_head *head = request->criteria.facts->head;
    const char *why;

    if (head->method == METHOD_OTHER && method_is_disguised(policy, head->method_text))
        return "the method differs from a known one only in case, and methods are case-sensitive";
    if (!policy_overrides_are_few(&head->fields))
        return "headers such as X-HTTP-Method-Override name more than 4 methods";
    if (!head->path_is_plain && (why = normal_form(policy, *path, room, route, path)))
        return why;
    request->criteria.query_doubt = policy->criterion_count && path_may_hold_query(*path);
    request->path = path_for_match(policy, *path, room);
    return NULL;
}

/* Slow path: requests that need more than one match. */
static __attribute__((noinline)) const char *route_unusual(const struct policy *policy,
                                                           struct rule_request *request,
                                                           struct route_room *room,
                                                           struct route *route)
{
    const struct request_head *head = request->criteria.facts->head;
    struct slice path = head->path;
    const char *why;

    if ((why = read_unusual(policy, request, room, route, &path)))
        return why;
    if (!(route->rule = policy_match(policy, request)))
        return repeated;
    if (!selects(policy, request, path, forwarded_host(policy, head, route->rule), route->rule,
                 room))
        return fields_have(&head->fields, FIELD_METHOD_OVERRIDE)
                   ? "a header such as X-HTTP-Method-Override names another method"
                   : "there is no Host, and with the Host of the server another rule applies";
    if (!head->path_is_plain && (why = ambiguity_of(policy, request, path, route->rule, room)))
        return why;
    return NULL;
}

/* Sets what rules match on, if nothing is unusual. */
static inline void begin_request(const struct policy *policy, const struct request_facts *given,
                                 struct route_room *room, struct rule_request *request)
{
    rule_request_begin(request, policy, given, &room->match);
    request->path = rule_path(&policy->paths, given->head->path);
    request->host = given->head->host;
}

static inline bool is_unusual(const struct policy *policy, const struct request_head *head)
{
    return !head->path_is_plain || head->method == METHOD_OTHER || head->host.n == 0 ||
           policy->paths.ignore_case || fields_have(&head->fields, FIELD_METHOD_OVERRIDE);
}

const char *policy_read_request(const struct policy *policy, const struct request_facts *given,
                                struct route_room *room, struct rule_request *request,
                                struct slice *normal)
{
    struct route route;

    begin_request(policy, given, room, request);
    *normal = given->head->path;
    return is_unusual(policy, given->head) ? read_unusual(policy, request, room, &route, normal)
                                           : NULL;
}

const struct rule *policy_rule_of_reading(const struct policy *policy,
                                          const struct rule_request *request, struct slice reading,
                                          const struct rule *rule, struct route_room *room)
{
    struct rule_request other = *request;
    struct slice host = forwarded_host(policy, request->criteria.facts->head, rule);

    room->match.steps = 0;
    if (reading_selects(policy, request, reading, rule, room))
        return rule;
    room->match.steps = 0;
    other.path = path_for_match(policy, reading, room);
    other.host = host;
    if (policy_match(policy, &other) == rule && policy->rules_have_hosts)
        take_authority(&reading, &other.host);
    other.path = path_for_match(policy, reading, room);
    return policy_match(policy, &other);
}

const char *policy_route(const struct policy *policy, const struct request_facts *given,
                         struct route_room *room, struct route *route)
{
    const struct request_head *head = given->head;
    struct rule_request request;
    const char *why;

    begin_request(policy, given, room, &request);
    route->path = SLICE_NONE;
    if (is_unusual(policy, head))
        why = route_unusual(policy, &request, room, route);
    else
        why = (route->rule = policy_match(policy, &request)) ? NULL : repeated;
    return room->match.steps > MATCH_STEPS_MAX ? too_many_steps : why;
}
