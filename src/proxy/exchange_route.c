/* exchange_route.c - the phases ROUTE, QUOTA and LIMIT: from a parsed head to the limits' decision.
 *
 *   exchange_route()   identity, rule, size limits
 *   quota_wait_begin() quota from a database, if the policy has one
 *   decide()           at once, or when Redis replies: decided()
 *   act_on_decision()  HOLD, CONNECT or REPLY */
#include "base/clock.h"
#include "http/rewrite.h"
#include "http/trailers.h"
#include "proxy/exchange_internal.h"
#include "proxy/granted.h"

enum { ACTS_AT_ONCE = 32 };

static void decide(struct exchange *x, const struct request_head *head,
                   const struct framing *framing, const struct identity *identity,
                   const struct client_limits *client_limits);
static void act_on_decision(struct exchange *x);
static bool must_wait(struct worker *w);
static void act_later(struct exchange *x);

/* ---- ROUTE and QUOTA ------------------------------------------------------------------------ */

/* Responds to requests that weir never forwards. Returns false for all other requests. TRACE is
 * refused: the response would show the sender the fields that proxies have added (RFC 9110
 * section 9.3.8). With Max-Forwards: 0, weir is the recipient of OPTIONS (section 7.6.2). */
static bool ends_here(struct exchange *x, const struct request_head *head)
{
    if (head->method == METHOD_TRACE)
        exchange_fail(x, CAUSE_METHOD_NOT_ALLOWED, NULL);
    else if (head->max_forwards == 0)
        exchange_reply(x, 204, NULL);
    else
        return false;
    return true;
}

static void set_identity(struct exchange *x, const struct identity *identity)
{
    memcpy(x->identity, identity->text, identity->size);
    x->identity_size = identity->size;
}

struct identity_input exchange_identity_input(const struct exchange *x,
                                              const struct request_head *head, struct address *peer)
{
    return (struct identity_input){
        .policy = x->policy,
        .peer = {.address = address_of_peer(&x->downstream->origin->peer, peer),
                 .unknown = x->downstream->origin->peer_unknown,
                 .trusted = x->downstream->origin->decides},
        .fields = &head->fields,
        .query = head->query,
        .tokens = x->generation->tokens,
    };
}

static enum cause identity_cause(const struct identity *identity)
{
    return identity->failure == IDENTITY_INVALID_TOKEN ? CAUSE_INVALID_TOKEN : CAUSE_BAD_IDENTITY;
}

/* For the access log. */
static void set_client_ip(struct exchange *x, const struct identity *identity)
{
    x->client_ip = identity->ip;
    x->has_client_ip = identity->has_ip;
}

/* Sets rule and path. Returns why the request must be rejected with 400, or NULL. */
static const char *select_rule(struct exchange *x, const struct request_head *head,
                               const struct identity *identity)
{
    struct route_request request = {head, identity, x->downstream->origin->secure};
    struct route route;
    const char *why = policy_route(x->policy, &request, &x->worker->route, &route);

    if (!why) {
        x->rule = route.rule;
        x->path = route.path;
        x->routed_source = identity->source;
    }
    return why;
}

/* With known_clients_only, a client of a later source counts if the database does not know this
 * id. Returns true if that one is blocked, or cannot be determined. */
static bool may_be_blocked(const struct identity_input *input, struct identity *identity)
{
    const struct policy *policy = input->policy;
    struct identity next = *identity;
    const char *why;

    if (!policy->blocks_clients || !policy->identity.known_clients_only)
        return false;
    while (next.is_id && !policy_client(policy, &next)) {
        bool good = identity_next(input, &next, &why);
        identity->token_counted = next.token_counted;
        if (!good || policy_blocks(policy, &next))
            return true;
    }
    return false;
}

static bool needs_quota(const struct exchange *x, const struct identity_input *input,
                        struct identity *identity)
{
    return x->policy->quotas.connection && identity->is_id && identity->listed != LISTED_ALLOWED &&
           (x->rule->limit_count || may_be_blocked(input, identity));
}

/* The database does not know the first id: another client, which may be blocked or have another
 * rule. Returns false if the request was rejected. */
static bool route_again(struct exchange *x, const struct request_head *head,
                        const struct identity *identity)
{
    const char *why = NULL;

    if (policy_blocks(x->policy, identity))
        exchange_fail(x, CAUSE_CLIENT_BLOCKED, NULL);
    else if (x->policy->rules_have_clients && (why = select_rule(x, head, identity)))
        exchange_fail(x, CAUSE_BAD_REQUEST, why);
    else
        return true;
    return false;
}

void exchange_quota_known(struct exchange *x, struct request_head *head,
                          const struct framing *framing, struct identity *identity,
                          const struct quota_result *result)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    set_identity(x, identity);
    if (result->known == QUOTA_KNOWN && identity->source != x->routed_source &&
        !route_again(x, head, identity))
        return;
    switch (result->known) {
    case QUOTA_KNOWN: decide(x, head, framing, identity, result->client_limits); break;
    case QUOTA_PENDING: exchange_enter(x, PHASE_QUOTA); break;
    case QUOTA_CLIENT_DENIED: exchange_fail(x, CAUSE_UNKNOWN_CLIENT, NULL); break;
    case QUOTA_IDENTITY_BAD: exchange_fail(x, identity_cause(identity), result->why); break;
    case QUOTA_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}

/* The inputs of the decision are slices of the header, so this runs while its bytes are valid. */
void exchange_route(struct exchange *x, struct request_head *head, const struct framing *framing)
{
    struct identity identity;
    struct address address;
    const struct identity_input input = exchange_identity_input(x, head, &address);
    const char *why;
    uint64_t body_max = x->policy->size_limits.request_body;

    bool good = identity_of(&input, &identity, &why);
    if (x->log)
        set_client_ip(x, &identity);
    if (!good || identity.listed == LISTED_BLOCKED) {
        if (good)
            set_identity(x, &identity);
        if (identity.listed == LISTED_BLOCKED)
            exchange_fail(x, CAUSE_ADDRESS_BLOCKED, NULL);
        else
            exchange_fail(x, identity_cause(&identity), why);
        return;
    }
    set_identity(x, &identity);
    if (policy_blocks(x->policy, &identity)) {
        exchange_fail(x, CAUSE_CLIENT_BLOCKED, NULL);
        return;
    }
    policy_sort_headers(x->policy, &identity, &head->fields);
    if (ends_here(x, head))
        return;
    if ((why = select_rule(x, head, &identity))) {
        exchange_fail(x, CAUSE_BAD_REQUEST, why);
        return;
    }
    if (body_max && framing->kind == FRAMING_LENGTH && framing->length > body_max) {
        exchange_fail(x, CAUSE_CONTENT_TOO_LARGE, NULL);
        return;
    }
    if (needs_quota(x, &input, &identity)) {
        struct quota_result result;
        quota_wait_begin(x, head, framing, &identity, &result);
        exchange_quota_known(x, head, framing, &identity, &result);
    } else
        decide(x, head, framing, &identity, NULL);
}

/* ---- LIMIT ---------------------------------------------------------------------------------- */

/* Writes the request header for the upstream to x->head. False: no memory, or it is too long. */
static bool write_request_head(struct exchange *x, const struct request_head *head,
                               const struct framing *framing, const struct identity *identity,
                               int64_t cost)
{
    char ip_bytes[64];
    struct text ip = text_over(ip_bytes, sizeof ip_bytes);
    struct address peer;
    struct ip peer_ip;
    if (ip_of_address(address_of_peer(&x->downstream->origin->peer, &peer), &peer_ip))
        ip_format(&peer_ip, &ip);
    struct forward_facts facts = {
        .host = upstream_host(x->rule->upstream),
        .peer_ip = text_slice(&ip),
        .peer_trusted = identity->peer_trusted,
        .path = x->path,
        .forwarded = x->rule->upstream->forwarded,
        .http2 = x->downstream->origin->http2,
        .trailers = request_accepts_trailers(head, x->downstream->origin->http2),
        .scheme = x->downstream->origin->secure ? SLICE("https") : SLICE("http"),
        .client = x->rule->limit_count ? identity_text(identity) : SLICE_NONE,
        .request_id = {x->request_id, x->id_size},
        .upgrade = fields_have(&head->fields, FIELD_UPGRADE) ? tunnel_protocol(head, framing)
                                                             : SLICE_NONE};
    struct text out = text_over(x->worker->send, sizeof x->worker->send);

    if (facts.upgrade.n > sizeof x->upgrade)
        facts.upgrade = SLICE_NONE;
    if (facts.upgrade.n)
        memcpy(x->upgrade, facts.upgrade.p, facts.upgrade.n);
    x->upgrade_size = facts.upgrade.n;
    request_head_write(&out, head, framing, &facts);
    granted_append(x, &out, cost);
    if (out.failed || !(x->head = iobuf_get(&x->worker->buffers, out.n)))
        return false;
    iobuf_append(x->head, text_slice(&out));
    return true;
}

/* Returns the cost of a request that states none. */
static int64_t cost_of_rule(const struct rule *rule)
{
    int64_t highest = 1;

    for (unsigned i = 0; i < rule->limit_count; i++)
        highest = rule->limits[i]->cost > highest ? rule->limits[i]->cost : highest;
    return rule->cost ? rule->cost : highest;
}

static void decide(struct exchange *x, const struct request_head *head,
                   const struct framing *framing, const struct identity *identity,
                   const struct client_limits *client_limits)
{
    const char *why;
    int64_t cost;

    exchange_enter(x, PHASE_LIMIT);
    if (!rule_cost_of(x->rule, identity->peer_trusted, &head->fields, &cost, &why)) {
        exchange_fail(x, CAUSE_BAD_REQUEST, why);
        return;
    }
    x->cost = cost ? cost : cost_of_rule(x->rule);
    struct limit_facts facts = {
        .rule = x->rule,
        .identity = identity,
        .client_limits = client_limits,
        .uncharged = rule_skips_preflight(x->rule, head, framing->kind != FRAMING_NONE),
        .cost = cost,
        .method = head->method_text,
        .host = head->host,
        .path = head->path,
        .fields = &head->fields};
    bool now = limiter_decide(x->generation->limiter, &facts, &x->decision_request) == DECIDED_NOW;
    bool forwards = !x->downstream->origin->decides;
    if (now && !(forwards && decision_admits(&x->decision_request.decision))) {
        act_on_decision(x);
        return;
    }
    if (forwards && !write_request_head(x, head, framing, identity, cost)) {
        exchange_fail(x, CAUSE_NO_MEMORY, NULL);
        return;
    }
    if (now)
        act_on_decision(x);
}

void exchange_decided(struct decision_request *decision_request)
{
    struct exchange *x = CONTAINER_OF(decision_request, struct exchange, decision_request);
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->decision_us = clock_cached_us() - x->started_us;
    if (must_wait(x->worker))
        act_later(x);
    else
        act_on_decision(x);
}

/* Thousands of decisions may arrive at once: in one Redis reply, or when their deadlines expire.
 * Processing them all would take a loop iteration of 40 ms and delay other decisions by as much.
 * Each iteration processes at least ACTS_AT_ONCE of them, however long it has lasted, unless some
 * already wait in worker->decided. */
static bool must_wait(struct worker *w)
{
    if (w->decided_iteration != w->iteration) {
        w->decided_iteration = w->iteration;
        w->decided_count = 0;
    }
    return (++w->decided_count > ACTS_AT_ONCE && clock_iteration_is_long()) ||
           !TAILQ_EMPTY(&w->decided);
}

static void act_later(struct exchange *x)
{
    struct worker *w = x->worker;

    x->acts_later = true;
    if (TAILQ_EMPTY(&w->decided))
        event_active(&w->act, EV_TIMEOUT, 1);
    TAILQ_INSERT_TAIL(&w->decided, x, decided_link);
}

static void act_on_waiting(evutil_socket_t fd, short what, void *arg)
{
    struct worker *w = arg;
    (void)fd, (void)what;

    for (struct exchange *x; !clock_iteration_is_long() && (x = TAILQ_FIRST(&w->decided));) {
        MAGIC_CHECK(x, EXCHANGE_MAGIC);
        TAILQ_REMOVE(&w->decided, x, decided_link);
        x->acts_later = false;
        act_on_decision(x);
    }
    if (!TAILQ_EMPTY(&w->decided))
        event_active(&w->act, EV_TIMEOUT, 1);
}

static uint16_t rejection_status(const struct exchange *x)
{
    if (x->decision_request.decision.verdict == VERDICT_FAILED_CLOSED)
        return 503;
    return (uint16_t)(x->downstream->origin->decides ? x->policy->decisions.deny_status
                                                     : x->rule->rejection.status);
}

/* Counts among the top clients. */
static void count_client(const struct exchange *x, bool admitted)
{
    struct top_clients *top = &x->worker->top_clients;

    top_keys_add(top->by[admitted ? TOP_BY_ALLOWED : TOP_BY_LIMITED], x->started_us,
                 (struct slice){x->identity, x->identity_size}, 1);
}

static void act_on_decision(struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    x->decided = true;
    count_client(x, decision_admits(d));
    counter_add(counter_table_row(&x->worker->stats.by_rule, x->rule->row) + d->verdict, 1);
    if (decision_admits(d))
        granted_set(x);
    if (decision_admits(d) && d->delay_us > 0 && !x->overdue) {
        if (!hold_begin(x, (uint64_t)d->delay_us))
            exchange_fail(x, CAUSE_NO_MEMORY, NULL);
    } else if (decision_admits(d))
        exchange_connect(x);
    else
        exchange_reply(x, rejection_status(x), NULL);
}

void decisions_init(struct worker *w)
{
    TAILQ_INIT(&w->decided);
    event_assign(&w->act, w->base, -1, 0, act_on_waiting, w);
}
