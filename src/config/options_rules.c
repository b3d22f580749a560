/* options_rules.c - rows of the option table: rejection, paths, rules and headers. */
#include "config/option_rows.h"
#include "limit/header_families.h"
#include "policy/criteria.h"

static const char *const dot_segment_names[] = {
    [DOT_SEGMENTS_REJECT] = "reject", [DOT_SEGMENTS_NORMALIZE] = "normalize", NULL};
static const char *const ambiguous_names[] = {
    [AMBIGUOUS_REJECT] = "reject", [AMBIGUOUS_ALLOW] = "allow", NULL};
static const char *const trailing_slash_names[] = {
    [TRAILING_SLASH_IGNORE] = "ignore", [TRAILING_SLASH_EXACT] = "exact", NULL};

static bool has_header(const void *rule)
{
    return rule_has_criterion(rule, "header");
}

static bool has_query(const void *rule)
{
    return rule_has_criterion(rule, "query");
}

static bool has_client(const void *rule)
{
    return rule_has_criterion(rule, "client");
}

static bool has_scheme(const void *rule)
{
    return rule_has_criterion(rule, "scheme");
}

#define RULE(m) MEMBER(rule, m)

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"rejection", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL, "response to rejected requests"},
    {"rejection.status", &type_count, OF(rejection.status), "429", 400, 599, 0, NULL, NULL,
     "status code (400 to 599)"},
    {"rejection.body_file", &type_body_file, OF(rejection), "", 1, 4096, 0, NULL, NULL,
     "file with the body, instead of the problem document (RFC 9457)"},
    {"rejection.content_type", &type_text, OF(rejection.content_type), "application/problem+json",
     1, 128, 0, NULL, NULL, "media type of the body"},
    {"rejection.headers", &type_answer_headers, OF(rejection), "", 0, REJECTION_HEADERS_MAX, 0,
     NULL, NULL, "headers that rejections have in addition (at most 16, 4096 bytes in all)"},
    {"rejection.jitter", &type_share, OF(rejection.jitter), "0%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "maximum share of the wait time that weir adds to Retry-After (0% to 100%)"},

    {"paths", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "how paths are normalized and matched if servers could interpret them differently"},
    {"paths.dot_segments", &type_enum, OF(paths.dot_segments), "reject", 0, 0, 0, dot_segment_names,
     NULL, "handling of paths with a segment"},
    {"paths.ambiguous", &type_enum, OF(paths.ambiguous), "reject", 0, 0, 0, ambiguous_names, NULL,
     "handling of ambiguous requests"},
    {"paths.trailing_slash", &type_enum, OF(paths.trailing_slash), "ignore", 0, 0, 0,
     trailing_slash_names, NULL, "handling of a slash at the end of the path"},
    {"paths.ignore_case", &type_bool, OF(paths.ignore_case), "false", 0, 0, 0, NULL, NULL,
     "if true, ASCII letters in paths match regardless of case"},

    {"rules", &type_rules, WHOLE, "[]", 0, RULES_MAX, 0, NULL, NULL,
     "rules (at most 1024), in order"},
    {"rules[].name", &type_text, RULE(name), "its path, else *", 1, RULE_NAME_MAX, DERIVED, NULL,
     NULL, "name of the rule in metrics, logs and per: route (at most 256 bytes)"},
    {"rules[].match", &type_section, WHOLE, "", 0, 0, 0, NULL, rule_has_match,
     "conditions for requests; all of them must hold"},
    {"rules[].match.path", &type_path_pattern, RULE(path), "any", 1, RULE_NAME_MAX, DERIVED, NULL,
     rule_has_path, "pattern for the normalized path; see PATHS"},
    {"rules[].match.methods", &type_methods, WHOLE, "any", 1, METHODS_MAX, DERIVED, NULL,
     rule_has_methods, "request methods in uppercase (at most 32)"},
    {"rules[].match.host", &type_host_pattern, RULE(host), "any", 1, 255, DERIVED, NULL,
     rule_has_host, "Host name, or *.example.com for all subdomains"},
    {"rules[].match.header", &type_match_named, WHOLE, "any", 1, CRITERION_NAMES_MAX, DERIVED, NULL,
     has_header, "request headers, at most 8"},
    {"rules[].match.query", &type_match_named, WHOLE, "any", 1, CRITERION_NAMES_MAX, DERIVED, NULL,
     has_query, "query parameters, at most 8, with values as for header"},
    {"rules[].match.client", &type_match_clients, WHOLE, "any", 1, CRITERION_CLIENTS_MAX, DERIVED,
     NULL, has_client, "clients (at most 256), as in clients"},
    {"rules[].match.scheme", &type_match_values, WHOLE, "any", 1, 2, DERIVED, NULL, has_scheme,
     "http or https: whether the client's connection uses TLS"},
    {"rules[].limits", &type_rule_limits, WHOLE, "[]", 0, LIMITS_PER_RULE_MAX, 0, NULL, NULL,
     "names of the limits that apply (at most 8)"},
    {"rules[].cost", &type_rule_cost, RULE(cost), "each limit's cost", 0, LIMIT_COST_MAX, DERIVED,
     NULL, rule_has_cost, "cost of a request in every limit of the rule (0 to 1000000), or a map"},
    {"rules[].cost.reserve", &type_number, RULE(cost), "1", 1, LIMIT_COST_MAX, 0, NULL, NULL,
     "cost that is charged before the response"},
    {"rules[].cost.request_header", &type_text, RULE(cost_request), "", 1, 128, 0, NULL,
     rule_has_cost_request, "request header with the cost of the request, an integer of 1 or more"},
    {"rules[].cost.max", &type_number, RULE(cost_max), NULL, 1, LIMIT_COST_MAX, 0, NULL,
     rule_has_cost_request,
     "upper bound of the value in request_header; larger values are reduced to it"},
    {"rules[].cost.response_header", &type_text, RULE(cost_response), "", 1, 128, 0, NULL,
     rule_has_cost_response,
     "response header with the actual cost of the request, an integer of 0 or more"},
    {"rules[].best_effort", &type_bool, RULE(best_effort), "limits.NAME.best_effort", 0, 0, DERIVED,
     NULL, rule_has_best_effort,
     "overrides best_effort of the rule's limits, on the same counters"},
    {"rules[].upstream", &type_rule_upstream, WHOLE, "the first", 0, 0, DERIVED, NULL, NULL,
     "name of the upstream that receives the requests"},
    {"rules[].rejection", &type_section, WHOLE, "", 0, 0, 0, NULL, rule_has_rejection,
     "response to requests that this rule rejects"},
    {"rules[].rejection.status", &type_count, RULE(rejection.status), "rejection.status", 400, 599,
     DERIVED, NULL, NULL, "replaces the status code"},
    {"rules[].rejection.body_file", &type_body_file, RULE(rejection), "rejection.body_file", 1,
     4096, DERIVED, NULL, NULL, "replaces the body"},
    {"rules[].rejection.content_type", &type_text, RULE(rejection.content_type),
     "rejection.content_type", 1, 128, DERIVED, NULL, NULL, "replaces the media type of the body"},
    {"rules[].rejection.headers", &type_answer_headers, RULE(rejection), "rejection.headers", 0,
     REJECTION_HEADERS_MAX, DERIVED, NULL, NULL, "replaces all headers"},

    {"headers", &type_words, OF(headers), "[ x-ratelimit, x-rate-limit, ietf ]", 0, 0, 0,
     header_family_words, NULL, "families of rate limit headers in responses"},
};
/* clang-format on */

const struct option_group options_rules = {rows, COUNT_OF(rows)};
