#include "replay/replay_engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "admin/client_query.h"
#include "base/memory.h"
#include "base/text.h"
#include "limit/compose.h"
#include "policy/rule_choice.h"

enum { FALLBACK_ENTRIES = 1024 };

struct replay_engine {
    struct policy *policy;
    const struct replay_options *options;
    struct limiter *limiter;
    struct limiter_stats stats;
    struct fallback *fallback;
    struct request_head head;
    struct route_room route;
    char head_bytes[2 * REPLAY_LINE_MAX];
};

/* --- From a line to a request ----------------------------------------------------------------- */

static void refuse_replay(struct replay_decision *decision, const char *why)
{
    decision->kind = REPLAY_REFUSED;
    decision->why = why;
}

/* Writes the head that the client sent, as far as the log has it, and parses it as the proxy
 * does. */
static bool parse_head(struct replay_engine *engine, const struct log_line *line,
                       struct replay_decision *decision)
{
    struct slice host = line->host.n            ? line->host
                        : engine->options->host ? slice_of(engine->options->host)
                                                : upstream_host(&engine->policy->upstreams[0]);
    struct text head = text_over(engine->head_bytes, sizeof engine->head_bytes);
    struct refusal refusal;
    size_t seen = 0, size;

    text_put(&head, line->method);
    text_char(&head, ' ');
    text_put(&head, line->target);
    text_literal(&head, " HTTP/1.1\r\nHost: ");
    text_put(&head, host);
    text_literal(&head, "\r\n\r\n");
    refusal.why = head.failed ? "the request is too long" : "the request holds a line end";
    if (!head.failed &&
        request_head_read(text_slice(&head), &seen, &size, &engine->head, &refusal) == SCAN_WHOLE &&
        size == head.n && engine->head.fields.count == 1)
        return true;
    refuse_replay(decision, refusal.why);
    return false;
}

/* "unix:" is how weir logs the peer of a Unix socket. Returns false if the text is no address. */
static bool read_address(struct slice text, struct address *address)
{
    struct ip ip;

    if (slice_equal(text, SLICE("unix:"))) {
        *address = (struct address){.any.sa_family = AF_UNIX, .length = sizeof(sa_family_t)};
        return true;
    }
    if (!ip_parse(text, &ip))
        return false;
    address_of_ip(&ip, 0, address);
    return true;
}

/* The identity that weir logged, or that the log's address and user give. */
static bool find_identity(struct replay_engine *engine, const struct log_line *line,
                          struct identity *identity, const char **why)
{
    char id[REPLAY_CLIENT_MAX];
    struct text text = text_over(id, sizeof id);
    struct address address = {0};
    const struct identity_input input = {.policy = engine->policy,
                                         .peer = {.address = &address},
                                         .fields = &engine->head.fields,
                                         .query = engine->head.query};
    bool has_address = read_address(line->address, &address);

    if (line->client.n)
        identity_write_name(&text, line->client);
    else if (engine->options->user_is_id && line->user.n) {
        text_literal(&text, "id:");
        text_put(&text, line->user);
    }
    if (!has_address && text.n == 0) {
        *why = "the line has neither a client nor an address";
        return false;
    }
    if (!identity_of(&input, identity, why))
        return false;
    enum listed listed = identity->listed;
    if (text.n && !client_query_identity(engine->policy, text_slice(&text), identity, why))
        return false;
    identity->listed = has_address ? listed : LISTED_NOT;
    return true;
}

/* --- Decisions -------------------------------------------------------------------------------- */

static void decided(struct decision_request *request)
{
    struct replay_decision *decision = (struct replay_decision *)request;
    decision->pending = false;
}

static bool may_refund(const struct rule *rule)
{
    for (unsigned i = 0; i < rule->limit_count; i++)
        if (rule->limits[i]->counted)
            return true;
    return false;
}

static void decide(struct replay_engine *engine, const struct log_line *line,
                   const struct route *route, const struct identity *identity,
                   struct replay_decision *decision)
{
    const struct request_head *head = &engine->head;
    const struct rule *rule = route->rule;
    struct slice path = route->path.n ? route->path : head->path;
    struct key_values values = {0};
    struct limit_facts facts = {.rule = rule,
                                .identity = identity,
                                .method = head->method_text,
                                .host = head->host,
                                .path = head->path,
                                .fields = &head->fields,
                                .values = &values,
                                .now_us = line->time_us};

    key_values_read_path(engine->policy, rule, path, &engine->route, &values);

    decision->has_charges = may_refund(rule);
    decision->request =
        (struct decision_request){.decided = decided, .wants_charge = decision->has_charges};
    decision->pending =
        limiter_decide(engine->limiter, &facts, &decision->request) == DECIDED_LATER;
}

void replay_engine_decide(struct replay_engine *engine, const struct log_line *line,
                          struct replay_decision *decision)
{
    struct identity identity;
    struct route_request request = {.head = &engine->head, .identity = &identity};
    struct route route;
    const char *why;

    decision->kind = REPLAY_DECIDED;
    decision->pending = decision->has_charges = false;
    decision->client_size = 0;
    if (!parse_head(engine, line, decision))
        return;
    if (!find_identity(engine, line, &identity, &why)) {
        refuse_replay(decision, why);
        return;
    }
    decision->client_size = identity.size;
    memcpy(decision->client, identity.text, identity.size);
    if (identity.listed == LISTED_BLOCKED || policy_blocks(engine->policy, &identity))
        decision->kind = REPLAY_BLOCKED;
    else if ((why = policy_route(engine->policy, &request, &engine->route, &route)))
        refuse_replay(decision, why);
    else
        decide(engine, line, &route, &identity, decision);
}

void replay_engine_finish(struct replay_decision *decision, unsigned status)
{
    if (decision->has_charges)
        limiter_adjust(&decision->request, &(struct charge_outcome){.status = status, .cost = -1});
}

void replay_engine_flush(struct replay_engine *engine)
{
    limiter_flush(engine->limiter);
}

bool replay_engine_ready(const struct replay_engine *engine)
{
    return !policy_needs_redis(engine->policy) || limiter_redis_ready(engine->limiter);
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
                                        const struct replay_options *options, const char *lua_dir)
{
    struct replay_engine *engine = xcalloc(1, sizeof *engine);

    engine->policy = policy;
    engine->options = options;
    engine->fallback = fallback_new(FALLBACK_ENTRIES);
    policy->driver = compose_driver_with_clock(policy, lua_dir, stderr);
    if (policy->driver && reserve_rows(engine))
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
    fallback_free(engine->fallback);
    counter_table_clear(&engine->stats.by_limit);
    free(engine);
}
