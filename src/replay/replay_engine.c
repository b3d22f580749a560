#include "replay/replay_engine.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "admin/client_query.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "limit/compose.h"
#include "policy/identity_token.h"
#include "policy/rule_choice.h"
#include "proxy/added_usage.h"
#include "proxy/request_content.h"
#include "proxy/route.h"
#include "quota/quotas.h"

enum { FALLBACK_ENTRIES = 1024 };

struct replay_engine {
    struct event_base *base;
    struct policy *policy;
    struct limiter *limiter;
    struct limiter_stats stats;
    struct token_checker *tokens;
    struct token_stats token_stats;
    const char *claims_text; /* of the last request, and parsed */
    json_t *claims;
    struct fallback *fallback;
    struct request_head head;
    struct route_room route;
    struct key_values key_values;
    struct json_values values;
    char head_bytes[REPLAY_HEAD_MAX];
};

/* A request on its way to a decision. */
struct deciding {
    struct replay_engine *engine;
    const struct virtual_request *given;
    struct replay_decision *decision;
    struct peer peer;
    struct content_facts content;
    struct identity_input input;
    struct identity identity;
    struct client_limits found, *client_limits; /* of the database; NULL: the policy's */
    struct route route;
};

/* --- Refusals --------------------------------------------------------------------------------- */

/* `why` NULL: the text of the cause. Returns false. */
static bool refuse_request(struct deciding *d, enum cause cause, const char *why)
{
    bool blocked = cause == CAUSE_ADDRESS_BLOCKED || cause == CAUSE_CLIENT_BLOCKED;

    d->decision->kind = blocked ? REPLAY_BLOCKED : REPLAY_REFUSED;
    d->decision->status = cause_table[cause].status;
    d->decision->why = why ? why : cause_table[cause].text;
    return false;
}

static bool refuse_identity(struct deciding *d, const char *why)
{
    bool token = d->identity.failure == IDENTITY_INVALID_TOKEN;

    return refuse_request(d, token ? CAUSE_INVALID_TOKEN : CAUSE_BAD_IDENTITY, why);
}

/* --- The head --------------------------------------------------------------------------------- */

/* Writes the head that the client sent, as far as it is known, and parses it as the proxy does. */
static bool parse_head(struct deciding *d)
{
    struct replay_engine *engine = d->engine;
    const struct virtual_request *given = d->given;
    struct slice host = given->host.n ? given->host : upstream_host(&engine->policy->upstreams[0]);
    struct text head = text_over(engine->head_bytes, sizeof engine->head_bytes);
    struct refusal refusal = {.why = "the request is too long"};
    unsigned count = given->field_count + 1;
    size_t seen = 0, size;

    text_put(&head, given->method);
    text_char(&head, ' ');
    text_put(&head, given->target);
    text_literal(&head, " HTTP/1.1\r\nHost: ");
    text_put(&head, host);
    text_literal(&head, "\r\n");
    text_put(&head, given->field_lines);
    if (given->content.p) {
        text_printf(&head, "Content-Length: %zu\r\n", given->content.n);
        count++;
    }
    text_literal(&head, "\r\n");
    if (head.failed)
        return refuse_request(d, CAUSE_HEAD_TOO_LARGE, refusal.why);
    refusal.why = "the request holds a line end";
    if (request_head_read(text_slice(&head), &seen, &size, &engine->head, &refusal) == SCAN_WHOLE &&
        size == head.n && engine->head.fields.count == count)
        return true;
    (void)refuse_request(d, CAUSE_BAD_REQUEST, refusal.why);
    if (refusal.status)
        d->decision->status = refusal.status;
    return false;
}

/* --- The content ------------------------------------------------------------------------------ */

/* Reads the values of `paths`; NULL: none are needed. Returns the result of content that was
 * read. */
static enum content_result read_content(struct deciding *d, const struct json_paths *paths)
{
    struct slice content = d->given->content;
    struct json_values *values = &d->engine->values;
    enum content_result result = CONTENT_TOO_LARGE;

    d->content = (struct content_facts){.state = CONTENT_ABSENT, .values = values};
    json_values_clear(values);
    if (!content.p || content.n == 0 || !paths)
        return CONTENT_NONE;
    if (content.n <= d->engine->policy->size_limits.inspected_content)
        result = request_content_values(&d->engine->head.fields, content, paths, values);
    d->content.state = result == CONTENT_READ ? CONTENT_VALUES : CONTENT_UNSURE;
    return result;
}

/* --- The client ------------------------------------------------------------------------------- */

/* "unix:" is how weir logs the peer of a Unix socket. Returns false if the text is no address. */
static bool read_peer(struct slice text, struct peer *peer)
{
    *peer = (struct peer){.is_unix = slice_equal(text, SLICE("unix:"))};
    peer->has_ip = !peer->is_unix && ip_parse(text, &peer->ip);
    return peer->has_ip || peer->is_unix;
}

/* The given client replaces the one that the sources have found. */
static bool take_name(struct deciding *d, const char **why)
{
    const struct policy *policy = d->engine->policy;
    struct identity named, *identity = &d->identity;

    if (!client_query_identity(policy, d->given->client, &named, why))
        return false;
    if (named.is_id && policy->identity.known_clients_only && !quotas_are_set(&policy->quotas) &&
        !policy_client(policy, &named)) {
        identity->is_id = false;
        identity_write_address(&policy->identity, identity);
        return true;
    }
    if (!named.is_id && !slice_equal(identity_text(&named), identity_text(identity))) {
        identity->has_ip = named.has_ip;
        identity->ip = named.ip;
        identity->listed = named.listed;
    }
    identity->is_id = named.is_id;
    identity->size = named.size;
    memcpy(identity->text, named.text, named.size);
    return true;
}

static void note_identity(struct deciding *d)
{
    d->decision->client_size = d->identity.size;
    memcpy(d->decision->client, d->identity.text, d->identity.size);
}

/* Requests of the same text follow one another. */
static void give_claims(struct replay_engine *engine, struct slice claims)
{
    if (engine->claims_text != claims.p) {
        json_decref(engine->claims);
        engine->claims = claims.p ? json_loadb(claims.p, claims.n, 0, NULL) : NULL;
    }
    engine->claims_text = claims.p;
    token_checker_give(engine->tokens, engine->claims);
}

static bool find_identity(struct deciding *d)
{
    const struct policy *policy = d->engine->policy;
    bool has_address = read_peer(d->given->address, &d->peer);
    const char *why = NULL;

    if (!has_address && d->given->client.n == 0)
        return refuse_request(d, CAUSE_BAD_IDENTITY,
                              "the line has neither a client nor an address");
    (void)read_content(d, policy->identity.paths);
    give_claims(d->engine, d->given->claims);
    d->input = (struct identity_input){.policy = policy,
                                       .peer = {.source = &d->peer, .unknown = !has_address},
                                       .fields = &d->engine->head.fields,
                                       .query = d->engine->head.query,
                                       .tokens = d->engine->tokens,
                                       .content = &d->content};
    bool good = identity_of(&d->input, &d->identity, &why);
    if (!has_address)
        d->identity.listed = LISTED_NOT;
    if (good && d->given->client.n)
        good = take_name(d, &why);
    if (d->identity.listed == LISTED_BLOCKED)
        return refuse_request(d, CAUSE_ADDRESS_BLOCKED, NULL);
    if (!good)
        return refuse_identity(d, why);
    note_identity(d);
    return true;
}

/* --- The rule --------------------------------------------------------------------------------- */

static bool find_rule(struct deciding *d)
{
    struct replay_engine *engine = d->engine;
    const struct policy *policy = engine->policy;
    struct request_facts request = {.head = &engine->head,
                                    .identity = &d->identity,
                                    .https = d->given->https,
                                    .content = &d->content};

    if (policy_blocks(policy, &d->identity))
        return refuse_request(d, CAUSE_CLIENT_BLOCKED, NULL);
    policy_sort_headers(policy, &d->identity, &engine->head.fields);
    enum cause cause = route_refusal(&engine->head, false);
    if (cause != CAUSE_NONE)
        return refuse_request(d, cause, NULL);
    if (engine->head.max_forwards == 0) {
        (void)refuse_request(d, CAUSE_NONE, "weir itself responds to Max-Forwards: 0");
        d->decision->status = 204;
        return false;
    }
    enum content_result result = read_content(d, policy->match_paths);
    const char *why = policy_route(policy, &request, &engine->route, &d->route);
    cause = CAUSE_BAD_REQUEST;
    if (why && d->content.decides)
        cause = request_content_refusal(result, &why);
    d->decision->rule = d->route.rule;
    return !why || refuse_request(d, cause, why);
}

/* --- Quotas of the database ------------------------------------------------------------------- */

/* As proxy/step_quota.c: the row of an id, or the next source if the database does not have it. */
static bool find_quota(struct deciding *d)
{
    const struct policy *policy = d->engine->policy;
    struct identity first = d->identity;
    struct quota_row row;
    const char *why;

    (void)read_content(d, policy->identity.paths);
    if (!identity_needs_quota(&d->input, d->route.rule, &d->identity))
        return true;
    while (d->identity.is_id && !policy_client(policy, &d->identity)) {
        if (d->given->quotas.find(d->given->quotas.context, identity_text(&d->identity), &row)) {
            d->found = quota_client_limits(policy, &row);
            d->client_limits = &d->found;
            break;
        }
        if (!policy->identity.known_clients_only)
            return policy->quotas.unknown_client != UNKNOWN_CLIENT_DENY ||
                   refuse_request(d, CAUSE_UNKNOWN_CLIENT, NULL);
        if (!identity_next(&d->input, &d->identity, &why))
            return refuse_identity(d, why);
    }
    if (slice_equal(identity_text(&first), identity_text(&d->identity)))
        return true;
    note_identity(d);
    return find_rule(d);
}

/* --- The decision ----------------------------------------------------------------------------- */

static void decided(struct decision_request *request)
{
    struct replay_decision *decision = (struct replay_decision *)request;
    decision->pending = false;
}

/* Returns true if the end of a request of this rule gives something back, or charges more. */
static bool rule_end_matters(const struct rule *rule)
{
    for (unsigned i = 0; i < rule->limit_count; i++)
        if (rule->limits[i]->kind == LIMIT_CONCURRENCY)
            return true;
    return rule->adjusts;
}

/* As added_usage_add(). */
static bool may_hide_usage(const struct deciding *d)
{
    struct slice content = d->given->content;
    size_t offset;

    if (!content.p || content.n == 0)
        return false;
    return content.n > d->engine->policy->size_limits.inspected_content ||
           added_usage_read(&d->engine->head.fields, content, &offset) == STREAM_USAGE_UNSURE;
}

/* Reads what the limits count by, and what the request costs. */
static bool read_facts(struct deciding *d, struct limit_facts *facts, int64_t *costs)
{
    struct replay_engine *engine = d->engine;
    const struct request_head *head = &engine->head;
    const struct rule *rule = d->route.rule;
    const char *why = NULL;

    if (!key_values_read(&d->input, rule, &d->identity, &engine->key_values, &why))
        return refuse_identity(d, why);
    key_values_read_path(engine->policy, rule, d->route.path.n ? d->route.path : head->path,
                         &engine->route, &engine->key_values);
    (void)read_content(d, rule->request_paths);
    if (!rule_cost_of(rule, d->identity.peer_trusted, &head->fields, &facts->cost, &why) ||
        !rule_limit_costs(rule, d->identity.peer_trusted, &head->fields, &engine->values,
                          d->given->content.n, costs, &why))
        return refuse_request(d, CAUSE_BAD_REQUEST, why);
    if (rule->adds_usage && may_hide_usage(d))
        facts->raised = rule_hidden_usage_costs(rule, d->identity.peer_trusted, &head->fields,
                                                &engine->values, costs);
    return true;
}

static void decide_on_limits(struct deciding *d)
{
    struct replay_engine *engine = d->engine;
    struct replay_decision *decision = d->decision;
    const struct request_head *head = &engine->head;
    int64_t costs[LIMITS_PER_RULE_MAX];
    struct limit_facts facts = {
        .rule = d->route.rule,
        .identity = &d->identity,
        .client_limits = d->client_limits,
        .uncharged = rule_skips_preflight(d->route.rule, head, d->given->content.p != NULL),
        .own_costs = d->route.rule->has_own_costs ? costs : NULL,
        .method = head->method_text,
        .host = head->host,
        .path = head->path,
        .fields = &head->fields,
        .json = &engine->values,
        .values = &engine->key_values};

    if (!read_facts(d, &facts, costs))
        return;
    decision->end_matters = rule_end_matters(d->route.rule);
    decision->request = (struct decision_request){
        .decided = decided, .wants_charge = d->route.rule->adjusts || d->given->wants_units};
    limiter_set_time(engine->limiter, d->given->now_us);
    decision->pending =
        limiter_decide(engine->limiter, &facts, &decision->request) == DECIDED_LATER;
}

void replay_engine_decide(struct replay_engine *engine, const struct virtual_request *given,
                          struct replay_decision *decision)
{
    struct deciding d = {.engine = engine, .given = given, .decision = decision};

    decision->kind = REPLAY_DECIDED;
    decision->pending = decision->end_matters = false;
    decision->rule = NULL;
    decision->client_size = 0;
    if (!parse_head(&d) || !find_identity(&d) || !find_rule(&d))
        return;
    if (!given->quotas.find || find_quota(&d))
        decide_on_limits(&d);
}

/* --- The end of a request --------------------------------------------------------------------- */

/* `costs` receives the costs of limits with costs of their own. */
static struct charge_outcome outcome_of(const struct rule *rule,
                                        const struct virtual_response *response, int64_t *costs)
{
    for (unsigned i = 0; i < rule->limit_count; i++)
        costs[i] = limit_cost_final(rule->limits[i]->own_cost, response->own_costs[i],
                                    response->status >= 400);
    return (struct charge_outcome){
        .status = response->status, .cost = response->cost, .own_costs = costs};
}

void replay_engine_units(const struct replay_decision *decision,
                         const struct virtual_response *response, int64_t *units)
{
    int64_t costs[LIMITS_PER_RULE_MAX];

    memset(units, 0, LIMITS_PER_RULE_MAX * sizeof *units);
    if (decision->kind != REPLAY_DECIDED || !decision->request.charge)
        return;
    struct charge_outcome outcome = outcome_of(decision->rule, response, costs);
    limiter_final_charges(&decision->request, &outcome, units);
}

void replay_engine_finish(struct replay_engine *engine, struct replay_decision *decision,
                          int64_t now_us, const struct virtual_response *response)
{
    int64_t costs[LIMITS_PER_RULE_MAX];

    if (decision->kind != REPLAY_DECIDED)
        return;
    limiter_set_time(engine->limiter, now_us);
    limiter_leave(engine->limiter, &decision->request);
    if (!decision->request.charge)
        return;
    struct charge_outcome outcome = outcome_of(decision->rule, response, costs);
    if (decision->rule->adjusts)
        limiter_adjust(&decision->request, &outcome);
    else
        limiter_keep_charge(&decision->request);
}

void replay_engine_flush(struct replay_engine *engine)
{
    limiter_flush(engine->limiter);
}

bool replay_engine_ready(const struct replay_engine *engine)
{
    return !policy_needs_redis(engine->policy) || limiter_redis_ready(engine->limiter);
}

bool replay_engine_connect(struct replay_engine *engine, uint64_t us)
{
    uint64_t until = clock_us() + us;

    while (!replay_engine_ready(engine) && clock_us() < until) {
        replay_engine_flush(engine);
        event_base_loop(engine->base, EVLOOP_ONCE);
    }
    return replay_engine_ready(engine);
}

/* --- Creation --------------------------------------------------------------------------------- */

static bool reserve_rows(struct replay_engine *engine)
{
    struct policy *policy = engine->policy;

    for (unsigned i = 0; i < policy->limit_count; i++)
        policy->limits[i].row = i;
    for (unsigned i = 0; i < policy->variant_count; i++)
        policy->variants[i]->row = policy->variants[i]->base;
    return counter_table_grow(&engine->stats.by_limit, policy->limit_count);
}

struct replay_engine *replay_engine_new(struct event_base *base, struct policy *policy,
                                        const char *lua_dir)
{
    struct replay_engine *engine = xcalloc(1, sizeof *engine);

    engine->base = base;
    engine->policy = policy;
    engine->fallback = fallback_new(FALLBACK_ENTRIES);
    if (!policy->driver)
        policy->driver = compose_driver_with_clock(policy, lua_dir, stderr);
    if (policy->driver && reserve_rows(engine) &&
        token_checker_new(policy, &engine->token_stats, &engine->tokens))
        engine->limiter =
            limiter_new(base, policy, engine->fallback, slice_of(policy->driver), &engine->stats);
    if (engine->limiter)
        return engine;
    replay_engine_free(engine);
    return NULL;
}

void replay_engine_free(struct replay_engine *engine)
{
    if (!engine)
        return;
    limiter_free(engine->limiter);
    token_checker_free(engine->tokens);
    json_decref(engine->claims);
    fallback_free(engine->fallback);
    counter_table_clear(&engine->stats.by_limit);
    free(engine);
}
