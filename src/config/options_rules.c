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

static const char *const dialect_names[] = {[DIALECT_PROBLEM] = "problem",
                                            [DIALECT_OPENAI] = "openai",
                                            [DIALECT_ANTHROPIC] = "anthropic",
                                            NULL};

static bool has_header(const void *rule)
{
    return rule_has_criterion(rule, "header");
}

static bool has_query(const void *rule)
{
    return rule_has_criterion(rule, "query");
}

static bool has_json(const void *rule)
{
    return rule_has_criterion(rule, "json");
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

/* clang-format off */
static const struct option rows[] = {
    {.path = "rejection", .type = &type_section, .fallback = "",
     .help = "response to rejected requests"},
    {.path = "rejection.status", .type = &type_count, OF(rejection.status), .fallback = "429",
     .low = 400, .high = 599,
     .help = "status code (400 to 599)"},
    {.path = "rejection.dialect", .type = &type_dialect, OF(rejection), .fallback = "problem",
     .flags = DERIVED, .names = dialect_names,
     .help = "how the body is written: problem (RFC 9457), or as the API of openai or anthropic "
             "writes it"},
    {.path = "rejection.body_file", .type = &type_body_file, OF(rejection), .fallback = "",
     .low = 1, .high = 4096,
     .help = "file with the body, instead of the problem document (RFC 9457)"},
    {.path = "rejection.content_type", .type = &type_text, OF(rejection.content_type),
     .fallback = "application/problem+json", .low = 1, .high = 128,
     .help = "media type of the body"},
    {.path = "rejection.headers", .type = &type_answer_headers, OF(rejection), .fallback = "",
     .high = REJECTION_HEADERS_MAX,
     .help = "headers that rejections have in addition (at most 16, 4096 bytes in all)"},
    {.path = "rejection.jitter", .type = &type_share, OF(rejection.jitter), .fallback = "0%",
     .high = SHARE_WHOLE,
     .help = "maximum share of the wait time that weir adds to Retry-After (0% to 100%)"},

    {.path = "paths", .type = &type_section, .fallback = "",
     .help = "how paths are normalized and matched if servers could interpret them differently"},
    {.path = "paths.dot_segments", .type = &type_enum, OF(paths.dot_segments),
     .fallback = "reject", .names = dot_segment_names,
     .help = "handling of paths with a segment"},
    {.path = "paths.ambiguous", .type = &type_enum, OF(paths.ambiguous), .fallback = "reject",
     .names = ambiguous_names,
     .help = "handling of ambiguous requests"},
    {.path = "paths.trailing_slash", .type = &type_enum, OF(paths.trailing_slash),
     .fallback = "ignore", .names = trailing_slash_names,
     .help = "handling of a slash at the end of the path"},
    {.path = "paths.ignore_case", .type = &type_bool, OF(paths.ignore_case), .fallback = "false",
     .help = "if true, ASCII letters in paths match regardless of case"},

    {.path = "rules", .type = &type_rules, .fallback = "[]", .high = RULES_MAX,
     .help = "rules (at most 1024), in order"},
    {.path = "rules[].name", .type = &type_text, RULE(name), .fallback = "its path, else *",
     .low = 1, .high = RULE_NAME_MAX, .flags = DERIVED,
     .help = "name of the rule in metrics, logs and per: route (at most 256 bytes)"},
    {.path = "rules[].match", .type = &type_section, .fallback = "", .applies = rule_has_match,
     .help = "conditions for requests; all of them must hold"},
    {.path = "rules[].match.path", .type = &type_path_pattern, RULE(path), .fallback = "any",
     .low = 1, .high = RULE_NAME_MAX, .flags = DERIVED, .applies = rule_has_path,
     .help = "pattern for the normalized path; see PATHS"},
    {.path = "rules[].match.methods", .type = &type_methods, .fallback = "any", .low = 1,
     .high = METHODS_MAX, .flags = DERIVED, .applies = rule_has_methods,
     .help = "request methods in uppercase (at most 32)"},
    {.path = "rules[].match.host", .type = &type_host_pattern, RULE(host), .fallback = "any",
     .low = 1, .high = 255, .flags = DERIVED, .applies = rule_has_host,
     .help = "Host name, or *.example.com for all subdomains"},
    {.path = "rules[].match.header", .type = &type_match_named, .fallback = "any", .low = 1,
     .high = CRITERION_NAMES_MAX, .flags = DERIVED, .applies = has_header,
     .help = "request headers, at most 8"},
    {.path = "rules[].match.query", .type = &type_match_named, .fallback = "any", .low = 1,
     .high = CRITERION_NAMES_MAX, .flags = DERIVED, .applies = has_query,
     .help = "query parameters, at most 8, with values as for header"},
    {.path = "rules[].match.json", .type = &type_match_named, .fallback = "any", .low = 1,
     .high = CRITERION_NAMES_MAX, .flags = DERIVED, .applies = has_json,
     .help = "JSON paths in the request's content, at most 8, with values as for header"},
    {.path = "rules[].match.client", .type = &type_match_clients, .fallback = "any", .low = 1,
     .high = CRITERION_CLIENTS_MAX, .flags = DERIVED, .applies = has_client,
     .help = "clients (at most 256), as in clients"},
    {.path = "rules[].match.scheme", .type = &type_match_values, .fallback = "any", .low = 1,
     .high = 2, .flags = DERIVED, .applies = has_scheme,
     .help = "http or https: whether the client's connection uses TLS"},
    {.path = "rules[].limits", .type = &type_rule_limits, .fallback = "[]",
     .high = LIMITS_PER_RULE_MAX,
     .help = "names of the limits that apply (at most 8)"},
    {.path = "rules[].cost", .type = &type_rule_cost, RULE(cost), .fallback = "each limit's cost",
     .high = LIMIT_MAX, .flags = DERIVED, .applies = rule_has_cost,
     .help = "cost of a request in every limit of the rule (0 to 999999999999999), or a map"},
    {.path = "rules[].cost.reserve", .type = &type_number, RULE(cost), .fallback = "1", .low = 1,
     .high = LIMIT_MAX,
     .help = "cost that is charged before the response"},
    {.path = "rules[].cost.request_header", .type = &type_text, RULE(cost_request), .fallback = "",
     .low = 1, .high = 128, .applies = rule_has_cost_request,
     .help = "request header with the cost of the request, an integer of 1 or more"},
    {.path = "rules[].cost.max", .type = &type_number, RULE(cost_max), .low = 1,
     .high = LIMIT_MAX, .applies = rule_has_cost_request,
     .help = "upper bound of the value in request_header; larger values are reduced to it"},
    {.path = "rules[].cost.response_header", .type = &type_text, RULE(cost_response),
     .fallback = "", .low = 1, .high = 128, .applies = rule_has_cost_response,
     .help = "response header with the actual cost of the request, an integer of 0 or more"},
    {.path = "rules[].best_effort", .type = &type_bool, RULE(best_effort),
     .fallback = "limits.NAME.best_effort", .flags = DERIVED, .applies = rule_has_best_effort,
     .help = "overrides best_effort of the rule's limits, on the same counters"},
    {.path = "rules[].priority", .type = &type_priority, RULE(priority),
     .fallback = "the one named default, else the first", .flags = DERIVED,
     .applies = rule_has_priority,
     .help = "priority of the requests, a name in priorities"},
    {.path = "rules[].upstream", .type = &type_rule_upstream, .fallback = "the first",
     .flags = DERIVED,
     .help = "name of the upstream that receives the requests"},
    {.path = "rules[].rejection", .type = &type_section, .fallback = "",
     .applies = rule_has_rejection,
     .help = "response to requests that this rule rejects"},
    {.path = "rules[].rejection.status", .type = &type_count, RULE(rejection.status),
     .fallback = "rejection.status", .low = 400, .high = 599, .flags = DERIVED,
     .help = "replaces the status code"},
    {.path = "rules[].rejection.dialect", .type = &type_dialect, RULE(rejection),
     .fallback = "rejection.dialect", .flags = DERIVED, .names = dialect_names,
     .help = "replaces the dialect of the body"},
    {.path = "rules[].rejection.body_file", .type = &type_body_file, RULE(rejection),
     .fallback = "rejection.body_file", .low = 1, .high = 4096, .flags = DERIVED,
     .help = "replaces the body"},
    {.path = "rules[].rejection.content_type", .type = &type_text, RULE(rejection.content_type),
     .fallback = "rejection.content_type", .low = 1, .high = 128, .flags = DERIVED,
     .help = "replaces the media type of the body"},
    {.path = "rules[].rejection.headers", .type = &type_answer_headers, RULE(rejection),
     .fallback = "rejection.headers", .high = REJECTION_HEADERS_MAX, .flags = DERIVED,
     .help = "replaces all headers"},

    {.path = "headers", .type = &type_words, OF(headers),
     .fallback = "[ x-ratelimit, x-rate-limit, ietf ]", .names = header_family_words,
     .help = "families of rate limit headers in responses"},
};
/* clang-format on */

const struct option_group options_rules = {rows, COUNT_OF(rows)};
