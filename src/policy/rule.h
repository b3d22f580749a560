/* rule.h - one entry of the section rules, and the rejections of its requests. */
#ifndef WEIR_POLICY_RULE_H
#define WEIR_POLICY_RULE_H

#include "http/head.h"
#include "policy/limit.h"
#include "policy/limit_cost.h"
#include "policy/upstream_settings.h"

/* Placeholder in a rejection body. */
enum body_word { BODY_END, BODY_LIMIT, BODY_RETRY_AFTER, BODY_CLIENT };

struct body_piece {
    struct slice text;
    enum body_word then;
};

enum { BODY_WORDS_MAX = 8 };

/* A response header of rejections. */
struct rejection_header {
    struct slice name, value;
};

/* How the body of a rejection is written: as a problem document (RFC 9457), or as an API does. */
enum rejection_dialect { DIALECT_PROBLEM, DIALECT_OPENAI, DIALECT_ANTHROPIC };

struct rejection_settings {
    unsigned status;
    enum rejection_dialect dialect;
    bool has_dialect; /* the option is set */
    char *body_file;  /* as written; NULL: none */
    char *body;       /* content of body_file; NULL: problem+json */
    size_t body_size;
    struct body_piece *pieces; /* `body` split at its placeholders; the last piece has BODY_END */
    unsigned piece_count;
    char *content_type;
    const struct rejection_header *headers;
    unsigned header_count;
    struct slice header_lines; /* the same as field lines, each with its CRLF */
    bool has_headers;          /* the option is set, if only to {} */
    int64_t jitter;            /* share of the wait, in 1/SHARE_WHOLE; policy level only */
};

enum dot_segments { DOT_SEGMENTS_REJECT, DOT_SEGMENTS_NORMALIZE };
enum ambiguous_paths { AMBIGUOUS_REJECT, AMBIGUOUS_ALLOW };
enum trailing_slash { TRAILING_SLASH_IGNORE, TRAILING_SLASH_EXACT };

/* Path normalization and matching. */
struct path_settings {
    enum dot_segments dot_segments;
    enum ambiguous_paths ambiguous;
    enum trailing_slash trailing_slash;
    bool ignore_case;
};

struct criterion;

struct rule {
    unsigned index;
    unsigned row; /* counter row, as in struct limit */
    /* `name`, else the path, else "*"; duplicates get "#2" and so on. Metrics label and value of
     * PER_ROUTE */
    char *name;
    struct slice path, host; /* patterns as written; n == 0: any */
    struct slice pattern;    /* path pattern prepared by rule_set_pattern() */
    bool any_method;
    struct slice *methods;
    unsigned method_count;
    const struct criterion **criteria; /* further conditions; all must hold */
    unsigned criterion_count;
    const struct limit **limits;
    unsigned limit_count; /* 0: unlimited */
    bool unlimited;       /* `limits: none` */
    int64_t cost;         /* 0: cost of each limit */
    bool free;            /* cost: 0 is written: requests cost nothing, and no limit rejects them */
    char *cost_request;   /* request header with the cost, trusted peers only; NULL: none */
    int64_t cost_max;     /* larger values of cost_request are reduced to this */
    char *cost_response;  /* response header with the cost; NULL: none */
    bool adjusts;         /* the response adjusts some charges */
    uint32_t key_sources; /* those that its limits count by; bit set of policy->key_sources */
    bool has_own_costs;   /* a limit has a cost of its own */
    bool drains;          /* responses to clients that have left are read to their end */
    bool adds_usage;      /* weir asks for the usage of streams */
    bool reads_request;   /* some costs depend on the content of the request */
    struct json_paths *request_paths;  /* of the values in it; NULL: none */
    struct json_paths *usage_paths;    /* of all usages of its limits; NULL: none */
    bool usage_in_array;               /* of a response that is an array, the elements are read */
    bool has_best_effort, best_effort; /* has: best_effort overrides that of the limits */
    const struct priority *priority;   /* NULL: the default; see policy_priority() */
    const struct upstream *upstream;
    bool has_rejection;                  /* false: the policy's rejection applies */
    struct rejection_settings rejection; /* complete in both cases */
    struct position position;
};

/* Reads the request's cost from the header cost_request into `*cost`; 0: the cost of the rule or
 * limits applies. Returns false if the request must be rejected with 400 and the reason `*why`. */
MUST_CHECK bool rule_cost_of(const struct rule *rule, bool peer_trusted,
                             const struct fields *fields, int64_t *cost, const char **why);
/* Fills `costs`, by position in rule->limits, with what a request costs in the limits with costs of
 * their own, before its response; 0 for other limits. `values`: of rule->request_paths. `bytes`:
 * length of the content, as far as it is known, or BYTES_UNKNOWN. Returns false as
 * rule_cost_of(). */
MUST_CHECK bool rule_limit_costs(const struct rule *rule, bool peer_trusted,
                                 const struct fields *fields, const struct json_values *values,
                                 uint64_t bytes, int64_t *costs, const char **why);
/* Raises `costs` to `max` in the limits with include_usage: add to which the request states no
 * cost: its response may be a stream that does not state its usage. Returns the bit set of their
 * places. */
uint32_t rule_hidden_usage_costs(const struct rule *rule, bool peer_trusted,
                                 const struct fields *fields, const struct json_values *values,
                                 int64_t *costs);
/* Returns true if the request is a CORS preflight (Fetch Standard section 3.3.2) that the rule does
 * not charge: it does not name OPTIONS in `methods`. A preflight has no content and no method
 * override, which a server could execute. */
bool rule_skips_preflight(const struct rule *rule, const struct request_head *head,
                          bool has_content);

/* Returns the cost in the response header cost_response; -1: missing or invalid. */
int64_t rule_stated_cost(const struct rule *rule, const struct fields *fields);

/* Returns the cost of a request of the rule that states none in a header. */
static inline int64_t rule_cost_in(const struct rule *rule, const struct limit *limit)
{
    if (limit->own_cost)
        return limit->cost;
    return rule->free ? 0 : rule->cost ? rule->cost : limit->cost;
}

/* Returns true if requests of the rule cost nothing in the limit, which rejects none of them. */
static inline bool rule_is_free_in(const struct rule *rule, const struct limit *limit)
{
    return rule->free && limit->kind != LIMIT_CONCURRENCY && !limit->own_cost;
}

/* Returns true if a request of the rule takes what is left of the limit rather than nothing. */
static inline bool rule_best_effort(const struct rule *rule, const struct limit *limit)
{
    return rule->has_best_effort ? rule->best_effort && limit->kind != LIMIT_CONCURRENCY
                                 : limit->best_effort;
}

/* Returns true only if `a` matches every request that `b` matches; may miss some cases. */
bool rule_covers(const struct rule *a, const struct rule *b);

/* Sets rule->pattern. `room` has path.n bytes and must live as long as the rule. */
void rule_set_pattern(struct rule *rule, const struct path_settings *paths, char *room);

#endif
