/* rule_match.c - matches requests to rules, and computes request costs. */
#include "policy/rule_match.h"

#include "http/path.h"
#include "policy/rule_index.h"

static struct slice path_without_slash(struct slice path)
{
    return path.n > 1 && path.p[path.n - 1] == '/' ? (struct slice){path.p, path.n - 1} : path;
}

struct slice rule_path(const struct path_settings *paths, struct slice path)
{
    return paths->trailing_slash == TRAILING_SLASH_IGNORE ? path_without_slash(path) : path;
}

void rule_set_pattern(struct rule *rule, const struct path_settings *paths, char *room)
{
    for (size_t i = 0; i < rule->path.n; i++)
        room[i] = paths->ignore_case ? ascii_lower(rule->path.p[i]) : rule->path.p[i];
    rule->pattern = rule_path(paths, (struct slice){room, rule->path.n});
}

static bool has_method(const struct rule *rule, struct slice method)
{
    if (rule->any_method)
        return true;
    for (unsigned i = 0; i < rule->method_count; i++)
        if (slice_equal(rule->methods[i], method))
            return true;
    return false;
}

void rule_request_begin(struct rule_request *request, const struct policy *policy,
                        const struct request_facts *facts, struct match_room *room)
{
    request->method = facts->head->method_text;
    request->criteria.facts = facts;
    request->criteria.query_doubt = false;
    request->criteria.room = room->values;
    request->criteria.query = &room->query;
    request->criteria.steps = &room->steps;
    room->steps = 0;
    request->truth = room->truth;
    if (policy->criterion_count) {
        memset(room->truth, TRUTH_UNKNOWN, policy->criterion_count);
        query_cache_clear(&room->query);
    }
}

/* Each criterion is evaluated at most once per request, since readings of the path share them. Not
 * inlined: most rules do not match before. */
static __attribute__((noinline)) enum truth criteria_truth(const struct rule *rule,
                                                           const struct rule_request *request)
{
    enum truth least = TRUTH_YES;

    for (unsigned i = 0; i < rule->criterion_count; i++) {
        const struct criterion *criterion = rule->criteria[i];
        uint8_t *truth = &request->truth[criterion->index];
        if (*truth == TRUTH_UNKNOWN)
            *truth = (uint8_t)criterion->kind->truth(criterion, &request->criteria);
        if (*truth < least)
            least = (enum truth) * truth;
        if (least == TRUTH_NO)
            break;
    }
    return least;
}

static inline bool method_fits(const struct rule *rule, const struct rule_request *request)
{
    return rule->any_method || has_method(rule, request->method);
}

static inline bool path_fits(const struct rule *rule, const struct rule_request *request)
{
    return rule->path.n == 0 || path_matches(rule->pattern, request->path, request->criteria.steps);
}

static inline bool host_fits(const struct rule *rule, const struct rule_request *request)
{
    return rule->host.n == 0 || host_matches(rule->host, request->host);
}

static enum truth rule_truth(const struct rule *rule, const struct rule_request *request)
{
    if ((*request->criteria.steps)++ > MATCH_STEPS_MAX || !method_fits(rule, request) ||
        !path_fits(rule, request) || !host_fits(rule, request))
        return TRUTH_NO;
    return rule->criterion_count ? criteria_truth(rule, request) : TRUTH_YES;
}

enum truth rule_try(const struct rule *rule, const struct rule_request *request,
                    struct rule_miss *miss)
{
    enum truth truth;
    unsigned i = 0;

    *request->criteria.steps = 0;
    *miss = (struct rule_miss){.of = !method_fits(rule, request) ? MISS_METHOD
                                     : !path_fits(rule, request) ? MISS_PATH
                                     : !host_fits(rule, request) ? MISS_HOST
                                                                 : MISS_NONE};
    if (miss->of != MISS_NONE)
        return TRUTH_NO;
    truth = criteria_truth(rule, request);
    if (truth == TRUTH_YES)
        return truth;
    while (request->truth[rule->criteria[i]->index] != truth)
        i++;
    *miss = (struct rule_miss){MISS_CRITERION, rule->criteria[i]};
    return truth;
}

/* The search for the first rule that matches or may match. */
struct search {
    const struct rule_request *request;
    const struct rule *first;
    enum truth truth;
};

/* The rules of a bucket are in order, so those after the first found cannot come first. */
static void search_bucket(const struct rule_bucket *bucket, void *context)
{
    struct search *search = context;

    for (unsigned i = 0; i < bucket->count && bucket->rules[i] < search->first; i++) {
        enum truth truth = rule_truth(bucket->rules[i], search->request);
        if (truth == TRUTH_NO)
            continue;
        search->first = bucket->rules[i];
        search->truth = truth;
        return;
    }
}

static void search_all(const struct policy *policy, struct search *search)
{
    for (const struct rule *rule = policy->rules; rule < search->first; rule++) {
        enum truth truth = rule_truth(rule, search->request);
        if (truth == TRUTH_NO)
            continue;
        search->first = rule;
        search->truth = truth;
        return;
    }
}

/* Returns whether only the content would tell that the rule matches, and it is not known. */
static bool awaits_content(const struct rule *rule, const struct rule_request *request)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (rule->criteria[i]->kind->is_json &&
            request->truth[rule->criteria[i]->index] == TRUTH_MAYBE)
            return true;
    return false;
}

const struct rule *policy_match(const struct policy *policy, const struct rule_request *request)
{
    struct search search = {request, &policy->rules[policy->rule_count - 1], TRUTH_YES};

    if (policy->rule_index)
        rule_index_visit(policy->rule_index, request->path, request->host, search_bucket, &search);
    else
        search_all(policy, &search);
    if (*request->criteria.steps > MATCH_STEPS_MAX)
        return NULL;
    if (search.truth == TRUTH_YES)
        return search.first;
    if (awaits_content(search.first, request)) {
        request->criteria.facts->content->decides = true;
        return NULL;
    }
    return policy->paths.ambiguous == AMBIGUOUS_ALLOW ? search.first : NULL;
}

/* --- one rule covers another --- */

static bool covers_methods(const struct rule *a, const struct rule *b)
{
    if (a->any_method)
        return true;
    for (unsigned i = 0; i < b->method_count; i++)
        if (!has_method(a, b->methods[i]))
            return false;
    return !b->any_method;
}

static bool has_star(struct slice pattern)
{
    return memchr(pattern.p, '*', pattern.n) != NULL;
}

/* A pattern for /v1 and its subtree covers "/v1" and every pattern that starts with "/v1/". */
static bool covers_tree(struct slice a, struct slice b)
{
    if (a.n < 3 || memcmp(a.p + a.n - 3, "/**", 3) != 0)
        return false;
    struct slice top = {a.p, a.n - 3};
    return !has_star(top) && slice_starts_with(b, top) && (b.n == top.n || b.p[top.n] == '/');
}

static bool covers_path(struct slice a, struct slice b)
{
    if (a.n == 0 || slice_equal(a, b))
        return true;
    size_t steps = 0;
    return b.n > 0 && (covers_tree(a, b) || (!has_star(b) && path_matches(a, b, &steps)));
}

static bool covers_host(struct slice a, struct slice b)
{
    if (a.n == 0 || slice_equal_nocase(a, b))
        return true;
    /* host_matches() treats "*.a.example" as a name below "*.example". */
    return b.n > 0 && host_matches(a, b);
}

/* Each condition of `a` must follow from one of `b`. */
static bool covers_criteria(const struct rule *a, const struct rule *b)
{
    for (unsigned i = 0; i < a->criterion_count; i++) {
        unsigned k = 0;
        while (k < b->criterion_count && !criterion_covers(a->criteria[i], b->criteria[k]))
            k++;
        if (k == b->criterion_count)
            return false;
    }
    return true;
}

bool rule_covers(const struct rule *a, const struct rule *b)
{
    return covers_methods(a, b) && covers_path(a->pattern, b->pattern) &&
           covers_host(a->host, b->host) && covers_criteria(a, b);
}

/* --- cost --- */

bool rule_cost_of(const struct rule *rule, bool peer_trusted, const struct fields *fields,
                  int64_t *cost, const char **why)
{
    *cost = 0;
    return !rule->cost_request || !peer_trusted ||
           cost_in_request(fields, rule->cost_request, rule->cost_max, cost, why);
}

bool rule_limit_costs(const struct rule *rule, bool peer_trusted, const struct fields *fields,
                      const struct json_values *values, uint64_t bytes, int64_t *costs,
                      const char **why)
{
    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit_cost *own = rule->limits[i]->own_cost;
        costs[i] = 0;
        if (!own)
            continue;
        if (own->request_header && peer_trusted &&
            !cost_in_request(fields, own->request_header, own->max, &costs[i], why))
            return false;
        if (!costs[i])
            costs[i] = limit_cost_reserve(own, values, bytes);
    }
    return true;
}

static bool states_cost(const struct limit_cost *own, bool peer_trusted,
                        const struct fields *fields, const struct json_values *values)
{
    return (!values->doubtful && json_values_first(values, &own->request_json) > 0) ||
           (own->request_header && peer_trusted &&
            fields_next_named(fields, slice_of(own->request_header), NULL));
}

uint32_t rule_hidden_usage_costs(const struct rule *rule, bool peer_trusted,
                                 const struct fields *fields, const struct json_values *values,
                                 int64_t *costs)
{
    uint32_t raised = 0;

    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit_cost *own = rule->limits[i]->own_cost;
        if (!own || own->include_usage != INCLUDE_USAGE_ADD || own->max <= costs[i] ||
            states_cost(own, peer_trusted, fields, values))
            continue;
        costs[i] = own->max;
        raised |= 1U << i;
    }
    return raised;
}

int64_t rule_stated_cost(const struct rule *rule, const struct fields *fields)
{
    return cost_in_response(fields, rule->cost_response);
}
