#include "replay/replay_policy.h"

#include <stdlib.h>

#include "config/policy_file.h"
#include "policy/client_table.h"
#include "policy/criteria.h"

static const uint64_t redis_timeout_us = 60000000;

static void add_note(struct replay_result *result, const char *text)
{
    for (unsigned i = 0; i < result->note_count; i++)
        if (result->notes[i] == text)
            return;
    if (result->note_count < COUNT_OF(result->notes))
        result->notes[result->note_count++] = text;
}

/* Removes concurrency limits from a rule: a log does not say how long a request was in flight. */
static void remove_concurrency(struct rule *rule, struct replay_result *result)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < rule->limit_count; i++) {
        if (rule->limits[i]->kind == LIMIT_CONCURRENCY)
            add_note(result,
                     "concurrency limits are left out: logs do not say which requests overlapped");
        else
            rule->limits[kept++] = rule->limits[i];
    }
    rule->limit_count = kept;
}

static void note_criteria(const struct rule *rule, struct replay_result *result)
{
    for (unsigned i = 0; i < rule->criterion_count; i++)
        if (!rule->criteria[i]->kind->is_logged)
            add_note(result,
                     "logs have neither headers, contents nor the scheme: rules see http, no "
                     "headers and no "
                     "content");
}

static void note_costs(const struct rule *rule, struct replay_result *result)
{
    if (rule->limit_count && (rule->cost_request || rule->cost_response))
        add_note(result,
                 "costs in request and response headers are not in logs; the default costs apply");
}

/* Returns true if no line of a log can have the value that a limit counts by. */
static bool is_unlogged(const struct policy *policy, const struct limit_part *part)
{
    struct slice written = slice_of(part->written);

    return part->per == PER_VALUE && !slice_starts_with(written, SLICE("path:")) &&
           !(policy->identity.headers_from_anyone && slice_starts_with(written, SLICE("query:")));
}

static void prepare_limit(const struct policy *policy, struct limit *limit,
                          struct replay_result *result)
{
    if (limit->own_cost)
        add_note(result,
                 "costs in headers and contents are not in logs: requests cost the reserve");
    if (limit->dedup.header)
        add_note(result, "logs do not have the header of dedup: repeats are charged");
    for (unsigned i = 0; i < limit->per_count; i++)
        if (limit->per[i].per == PER_HEADER)
            add_note(result,
                     "logs do not have the headers of per: all requests count as having none");
        else if (is_unlogged(policy, &limit->per[i]))
            add_note(result,
                     "logs do not have the claims, cookies and parameters of per: all requests "
                     "count as having none");
        else if (limit->per[i].per == PER_JSON)
            add_note(result,
                     "logs do not have the contents of per: all requests count as having none");
}

static void isolate_limit(struct limit *limit)
{
    limit->on_failure = ON_FAILURE_DENY;
    limit->lease_units = 0;
    if (limit->kind == LIMIT_CONCURRENCY)
        limit->lease_us = limit->period_us = PERIOD_MAX_US;
}

void replay_policy_isolate(struct policy *policy, const struct address *redis, const char *prefix)
{
    char *name = arena_text(policy->arena, slice_of(prefix));

    policy->redis = (struct redis_settings){.address = *redis,
                                            .address_text = name,
                                            .embedded = true,
                                            .key_prefix = name,
                                            .timeout_us = redis_timeout_us,
                                            .on_failure = ON_FAILURE_DENY,
                                            .instances = 1};
    for (unsigned i = 0; i < policy->limit_count; i++)
        isolate_limit(&policy->limits[i]);
    for (unsigned i = 0; i < policy->variant_count; i++)
        isolate_limit(policy->variants[i]);
}

struct policy *replay_policy_load(const char *file, const char *lua_dir,
                                  const struct address *redis, const char *prefix,
                                  struct replay_result *result)
{
    struct policy *policy = policy_load_quietly(file, lua_dir, stderr, policy_load_unserved);

    if (!policy)
        return NULL;
    replay_policy_isolate(policy, redis, prefix);
    for (unsigned i = 0; i < policy->rule_count; i++) {
        remove_concurrency(&policy->rules[i], result);
        note_costs(&policy->rules[i], result);
        note_criteria(&policy->rules[i], result);
    }
    for (unsigned i = 0; i < policy->limit_count; i++)
        prepare_limit(policy, &policy->limits[i], result);
    for (unsigned i = 0; i < policy->variant_count; i++)
        prepare_limit(policy, policy->variants[i], result);
    if (quotas_are_set(&policy->quotas)) {
        add_note(result, "quotas of the database are left out: the policy's limits apply, and ids "
                         "count as known");
        policy->identity.known_clients_only = false; /* the log names ids that the database knew */
    }
    policy->quotas.connection = NULL;
    if (policy->rate_limit_service.domain_count)
        add_note(result,
                 "rate_limit_service is left out: access logs have no descriptors to decide on");
    policy->rate_limit_service.domain_count = 0;
    return policy;
}

void replay_policy_try(struct policy *policy, unsigned index, double factor)
{
    struct limit *limit = &policy->limits[index];
    struct limit_numbers numbers = limit_numbers_of(limit);

    limit->shadow = true;
    limit->enforce = 0;
    limit_numbers_scale(&numbers, factor);
    limit->limit = numbers.limit;
    limit->burst = numbers.burst;
    for (unsigned i = 0; i < policy->variant_count; i++)
        if (policy->variants[i]->base == index) {
            policy->variants[i]->shadow = true;
            policy->variants[i]->enforce = 0;
        }
    for (unsigned i = 0; i < policy->plan_count; i++)
        if (policy->plans[i].numbers)
            limit_numbers_scale(&policy->plans[i].numbers[index], factor);
    clients_scale(policy->clients, index, factor);
}
