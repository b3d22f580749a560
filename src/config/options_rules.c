/* options_rules.c - rows of the option table: rejection, paths, rules and headers. */
#include "config/option_rows.h"
#include "policy/criteria.h"

static const char *const dot_segment_names[] = {
    [DOT_SEGMENTS_REJECT] = "reject", [DOT_SEGMENTS_NORMALIZE] = "normalize", NULL};
static const char *const ambiguous_names[] = {
    [AMBIGUOUS_REJECT] = "reject", [AMBIGUOUS_ALLOW] = "allow", NULL};
static const char *const trailing_slash_names[] = {
    [TRAILING_SLASH_IGNORE] = "ignore", [TRAILING_SLASH_EXACT] = "exact", NULL};

#define RULE(m) offsetof(struct rule, m)

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"rejection", &type_section, 0, "", 0, 0, 0, NULL, NULL, "what a rejected client gets"},
    {"rejection.status", &type_count, OF(rejection.status), "429", 400, 599, 0, NULL, NULL,
     "the status code"},
    {"rejection.body_file", &type_body_file, OF(rejection), "", 1, 4096, 0, NULL, NULL,
     "a file with the body in place of the problem document"},
    {"rejection.content_type", &type_text, OF(rejection.content_type), "application/problem+json", 1, 128, 0,
     NULL, NULL, "the body's media type"},
    {"rejection.headers", &type_answer_headers, OF(rejection), "", 0, REJECTION_HEADERS_MAX, 0, NULL, NULL,
     "response headers that rejections have besides"},
    {"rejection.jitter", &type_share, OF(rejection.jitter), "0%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "up to this share of the wait is added to Retry-After, another time for each, so that clients spread"},

    {"paths", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how paths are read and matched, where servers could read them in another way"},
    {"paths.dot_segments", &type_enum, OF(paths.dot_segments), "reject", 0, 0, 0, dot_segment_names, NULL,
     "paths with a segment . or ..: reject (400), or normalize (forward the path without them)"},
    {"paths.ambiguous", &type_enum, OF(paths.ambiguous), "reject", 0, 0, 0, ambiguous_names, NULL,
     "paths that select another rule when they are read as some servers do: reject (400), or allow (the rule "
     "of the normal form applies)"},
    {"paths.trailing_slash", &type_enum, OF(paths.trailing_slash), "ignore", 0, 0, 0, trailing_slash_names,
     NULL, "ignore: /login and /login/ match the same rules; exact: they are two paths"},
    {"paths.ignore_case", &type_bool, OF(paths.ignore_case), "false", 0, 0, 0, NULL, NULL,
     "true: ASCII letters in paths match without regard to case"},

    {"rules", &type_rules, 0, "[]", 0, RULES_MAX, 0, NULL, NULL,
     "the first that matches a request decides; where none does, it goes to the first upstream, unlimited"},
    {"rules[].name", &type_text, RULE(name), "its path, else *", 1, RULE_NAME_MAX, DERIVED, NULL, NULL,
     "what metrics and logs call the rule"},
    {"rules[].match", &type_section, 0, "", 0, 0, 0, NULL, rule_has_match,
     "which requests: those that meet all that is written here"},
    {"rules[].match.path", &type_path_pattern, RULE(path), "any", 1, RULE_NAME_MAX, DERIVED, NULL,
     rule_has_path, "of the path in normal form; * within a segment, /** at the end for all below"},
    {"rules[].match.methods", &type_methods, 0, "any", 1, METHODS_MAX, DERIVED, NULL, rule_has_methods,
     "one of these methods"},
    {"rules[].match.host", &type_host_pattern, RULE(host), "any", 1, 255, DERIVED, NULL, rule_has_host,
     "this host, or *.example.com for all below one"},
    {"rules[].match.header", &type_match_header, 0, "any", 1, CRITERION_NAMES_MAX, DERIVED, NULL,
     rule_has_header, "request headers by name; each must have one of the values, which may contain *"},
    {"rules[].match.query", &type_match_query, 0, "any", 1, CRITERION_NAMES_MAX, DERIVED, NULL,
     rule_has_query, "query parameters by name; each must have one of the values, which may contain *"},
    {"rules[].match.client", &type_match_client, 0, "any", 1, CRITERION_CLIENTS_MAX, DERIVED, NULL,
     rule_has_client, "one of these clients: an id as in clients, or ip: and an address or range"},
    {"rules[].match.scheme", &type_match_scheme, 0, "any", 1, 2, DERIVED, NULL, rule_has_scheme,
     "http or https, as the client's; X-Forwarded-Proto of trusted proxies counts"},
    {"rules[].limits", &type_rule_limits, 0, "[]", 0, LIMITS_PER_RULE_MAX, 0, NULL, NULL,
     "the names of the limits that apply, all or none; none: unlimited"},
    {"rules[].cost", &type_rule_cost, RULE(cost), "each limit's cost", 1, LIMIT_COST_MAX, DERIVED, NULL,
     rule_has_cost, "what one request costs in every limit of the rule, or a map that says how it is learnt"},
    {"rules[].cost.reserve", &type_number, RULE(cost), "1", 1, LIMIT_COST_MAX, 0, NULL, NULL,
     "what is charged before the answer, where the request does not say"},
    {"rules[].cost.request_header", &type_text, RULE(cost_request), "", 1, 128, 0, NULL,
     rule_has_cost_request, "a header that says what the request costs, from trusted_proxies alone"},
    {"rules[].cost.max", &type_number, RULE(cost_max), NULL, 1, LIMIT_COST_MAX, 0, NULL,
     rule_has_cost_request, "the most that request_header may say; what is more counts as this"},
    {"rules[].cost.response_header", &type_text, RULE(cost_response), "", 1, 128, 0, NULL,
     rule_has_cost_response, "a header of the answer that says what the request has cost"},
    {"rules[].upstream", &type_rule_upstream, 0, "the first", 0, 0, DERIVED, NULL, NULL,
     "where the request goes"},
    {"rules[].rejection", &type_section, 0, "", 0, 0, 0, NULL, rule_has_rejection,
     "what a client gets that this rule rejects"},
    {"rules[].rejection.status", &type_count, RULE(rejection.status), "rejection.status", 400, 599, DERIVED,
     NULL, NULL, "in place of the status code"},
    {"rules[].rejection.body_file", &type_body_file, RULE(rejection), "rejection.body_file", 1, 4096, DERIVED,
     NULL, NULL, "in place of the body; null: the problem document"},
    {"rules[].rejection.content_type", &type_text, RULE(rejection.content_type), "rejection.content_type", 1,
     128, DERIVED, NULL, NULL, "in place of the body's media type"},
    {"rules[].rejection.headers", &type_answer_headers, RULE(rejection), "rejection.headers", 0,
     REJECTION_HEADERS_MAX, DERIVED, NULL, NULL, "in place of the headers"},

    {"headers", &type_headers, OF(headers), "[ x-ratelimit, x-rate-limit, ietf ]", 0, 4, 0, NULL, NULL,
     "which families of fields an answer carries; x-ratelimit-epoch: x-ratelimit with the reset as Unix "
     "time"},
};
/* clang-format on */

const struct option_group options_rules = {rows, COUNT_OF(rows)};
