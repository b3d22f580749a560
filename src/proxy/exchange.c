/* exchange.c - the life of one request, from its header to its access log line.
 *
 *   exchange_begin()
 *     ROUTE    client identity, path, rule, size limits --------------.
 *     LIMIT    client quota from a database (quota_wait.c), then      |
 *              decide(): at once, or when Redis replies --------------+--> REPLY  weir's response:
 *     HOLD     wait in a queue (hold.c) ------------------------------+      |    204 400 403 405
 *     CONNECT  a pooled connection, a new one, or the next server ----+      |    408 413 429 5xx
 *     RELAY    both directions at the same time:                      |      |
 *                request   client -> upstream                         |      |
 *                response  upstream -> client (response_relay.c)      |      |
 *       |      failure before the first byte of the response ---------'      |
 *       |      failure after it: the client's message is cut off             |
 *     TUNNEL   after 101 to a requested upgrade (tunnel.c)                   |
 *       v                                                                    v
 *     exchange_finish()  releases the upstream connection, updates the counters, writes the access
 *                        log line, returns the client connection: KEEP, LINGER or CLOSE
 *                        (all exits: exchange_end.c)
 *
 * Phases only go right and down, with two exceptions:
 *   - a retry goes from RELAY back to CONNECT (retry.c);
 *   - when a quota arrives in LIMIT, the request is routed again.
 *
 * Every phase that waits has a deadline:
 *   LIMIT          quotas.timeout, then redis.timeout (enforced by the limiter)
 *   HOLD           max_delay
 *   CONNECT        connect_timeout
 *   RELAY, REPLY   set by exchange_watch()
 *   TUNNEL         timeouts.tunnel
 * timeouts.exchange limits the whole exchange, except a tunnel.
 *
 * exchange_finish() is the only end of an exchange. After a call that may end the exchange, the
 * caller must not access it. */
#include "proxy/exchange_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/rewrite.h"
#include "net/tls.h"
#include "proxy/access_log.h"
#include "proxy/hold.h"
#include "proxy/quota_wait.h"
#include "proxy/top_clients.h"
#include "proxy/tunnel.h"

enum { ACTS_AT_ONCE = 32 };

static void route(struct exchange *x, struct request_head *head, const struct framing *framing);
static void limit(struct exchange *x, const struct request_head *head, const struct framing *framing,
                  struct identity *identity);
static void decide(struct exchange *x, const struct request_head *head, const struct framing *framing,
                   const struct identity *identity, const struct client_limits *client_limits);
static void decided(struct decision_request *decision_request);
static void act_on_decision(struct exchange *x);
static bool must_wait(struct worker *w);
static void act_later(struct exchange *x);
static void forward(struct exchange *x, enum retry_cause why, enum cause otherwise);
static void send_request(struct exchange *x);
static void request_moved(struct exchange *x, enum relay moved, const char *why);

static void want_body(struct exchange *x, bool want)
{
    x->downstream->ops->want_body(x->downstream, want);
}

struct body_io exchange_io(struct exchange *x)
{
    return (struct body_io){&x->worker->buffers, x->worker->receive};
}

/* ---- creation ------------------------------------------------------------------------------- */

static struct exchange *exchange_new(struct downstream *downstream)
{
    struct worker *w = downstream->worker;
    struct exchange *x = w->free_exchanges;

    if (x)
        w->free_exchanges = x->next_free;
    else if (!(x = malloc(sizeof *x)))
        return NULL;
    memset(x, 0, offsetof(struct exchange, decision_request));
    x->decision_request.decided = decided;
    x->decision_request.op = x->decision_request.charge = NULL;
    x->decision_request.held_count = 0;
    x->quota.request = NULL;
    x->quota.deadline.queue = NULL;
    x->decision_request.wants_charge = true;
    x->decision_request.decision.verdict = VERDICT_UNLIMITED;
    x->decision_request.decision.result_count = 0;
    x->decision_request.decision.rejected_by = -1;
    MAGIC_SET(x, EXCHANGE_MAGIC);
    x->worker = w;
    x->downstream = downstream;
    x->generation = w->now;
    x->generation->exchanges++;
    x->policy = w->policy;
    x->started_us = clock_cached_us();
    if (x->policy->timeouts.exchange_us)
        deadline_arm(&w->queue.exchange, &x->whole, x->started_us, x->policy->timeouts.exchange_us);
    downstream->exchange = x;
    counter_add(&w->stats.requests_active, 1);
    return x;
}

void exchanges_free(struct worker *worker)
{
    for (struct exchange *x; (x = worker->free_exchanges);) {
        worker->free_exchanges = x->next_free;
        free(x);
    }
}

static bool is_plain_id(struct slice id)
{
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= 0x20 || id.p[i] >= 0x7f)
            return false;
    return id.n > 0 && id.n <= REQUEST_ID_MAX;
}

/* Passes the client's X-Request-Id on if it is 1 to REQUEST_ID_MAX visible ASCII characters.
 * Otherwise generates an id. */
static void set_request_id(struct exchange *x, const struct request_head *head)
{
    const struct field *given = head ? fields_find(&head->fields, FIELD_X_REQUEST_ID) : NULL;

    if (given && is_plain_id(given->value)) {
        memcpy(x->request_id, given->value.p, given->value.n);
        x->id_size = given->value.n;
        return;
    }
    x->id_size = worker_request_id(x->worker, x->request_id);
}

bool exchange_begin(struct downstream *downstream, struct request_head *head, const struct framing *framing)
{
    struct exchange *x = exchange_new(downstream);

    if (!x) {
        log_error("no memory for a request");
        return false;
    }
    x->method = head->method;
    x->expects_continue = head->expects_continue;
    x->idempotent = method_is_idempotent(head->method);
    x->request.kind = framing->kind;
    x->request.ended = framing->kind == FRAMING_NONE;
    x->request.max = x->policy->size_limits.request_body;
    set_request_id(x, head);
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin(x, head);
    route(x, head, framing);
    return true;
}

bool exchange_refuse(struct downstream *downstream, enum cause cause, uint16_t status, const char *why,
                     const struct request_line *line)
{
    struct exchange *x = exchange_new(downstream);

    if (!x)
        return false;
    x->request.ended = true; /* its real end is unknown */
    x->cause = cause;
    x->why = why;
    set_request_id(x, NULL);
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin_refused(x, line);
    exchange_log(x, cause, why);
    exchange_reply(x, status, why);
    return true;
}

/* ---- ROUTE and LIMIT ------------------------------------------------------------------------ */

/* Writes the request header for the upstream to x->head. False: no memory, or it is too long. */
static bool write_request_head(struct exchange *x, const struct request_head *head,
                               const struct framing *framing, const struct identity *identity)
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
        .scheme = x->downstream->origin->secure ? SLICE("https") : SLICE("http"),
        .client = x->rule->limit_count ? identity_text(identity) : SLICE_NONE,
        .request_id = {x->request_id, x->id_size},
        .upgrade = fields_have(&head->fields, FIELD_UPGRADE) ? tunnel_protocol(head, framing) : SLICE_NONE};
    struct text out = text_over(x->worker->send, sizeof x->worker->send);

    if (facts.upgrade.n > sizeof x->upgrade)
        facts.upgrade = SLICE_NONE;
    if (facts.upgrade.n)
        memcpy(x->upgrade, facts.upgrade.p, facts.upgrade.n);
    x->upgrade_size = facts.upgrade.n;
    request_head_write(&out, head, framing, &facts);
    if (out.failed || !(x->head = iobuf_get(&x->worker->buffers, out.n)))
        return false;
    iobuf_append(x->head, text_slice(&out));
    return true;
}

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
    }
    return why;
}

/* The inputs of the decision are slices of the header, so this runs while its bytes are valid. */
static void route(struct exchange *x, struct request_head *head, const struct framing *framing)
{
    struct identity identity;
    struct address address;
    struct identity_peer peer = {address_of_peer(&x->downstream->origin->peer, &address),
                                 x->downstream->origin->peer_unknown};
    const char *why;
    uint64_t body_max = x->policy->size_limits.request_body;

    bool good = identity_of(x->policy, &peer, &head->fields, &identity, &why);
    if (x->log)
        set_client_ip(x, &identity);
    if (!good || identity.listed == LISTED_BLOCKED) {
        if (good)
            set_identity(x, &identity);
        if (identity.listed == LISTED_BLOCKED)
            exchange_fail(x, CAUSE_ADDRESS_BLOCKED, NULL);
        else
            exchange_fail(x, CAUSE_BAD_IDENTITY, why);
        return;
    }
    set_identity(x, &identity);
    policy_sort_headers(x->policy, identity.headers_believed, &head->fields);
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
    limit(x, head, framing, &identity);
}

void exchange_quota_arrived(struct exchange *x, struct request_head *head, const struct framing *framing)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    route(x, head, framing);
}

/* Looks up the client's quota if the policy and the rule need it, then requests the decision. */
static void limit(struct exchange *x, const struct request_head *head, const struct framing *framing,
                  struct identity *identity)
{
    const struct client_limits *client_limits = NULL;
    struct client_limits room;
    enum quota_known quota_known = QUOTA_KNOWN;
    unsigned source = identity->source;
    const char *why = NULL;

    x->phase = PHASE_LIMIT;
    if (x->policy->quotas.connection && x->rule->limit_count && identity->from_header &&
        identity->listed != LISTED_ALLOWED) {
        quota_known = quota_wait_begin(x, head, identity, &room, &client_limits, &why);
        set_identity(x, identity);
    }
    /* The database does not know the first id: another client, and perhaps another rule. */
    if (quota_known == QUOTA_KNOWN && identity->source != source && x->policy->rules_have_clients &&
        (why = select_rule(x, head, identity))) {
        exchange_fail(x, CAUSE_BAD_REQUEST, why);
        return;
    }
    switch (quota_known) {
    case QUOTA_KNOWN: decide(x, head, framing, identity, client_limits); break;
    case QUOTA_PENDING: break;
    case QUOTA_CLIENT_DENIED: exchange_fail(x, CAUSE_UNKNOWN_CLIENT, NULL); break;
    case QUOTA_IDENTITY_BAD: exchange_fail(x, CAUSE_BAD_IDENTITY, why); break;
    case QUOTA_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}

static void decide(struct exchange *x, const struct request_head *head, const struct framing *framing,
                   const struct identity *identity, const struct client_limits *client_limits)
{
    const char *why;
    int64_t cost;

    if (!rule_cost_of(x->rule, identity->peer_trusted, &head->fields, &cost, &why)) {
        exchange_fail(x, CAUSE_BAD_REQUEST, why);
        return;
    }
    x->cost = cost ? cost : top_clients_cost(x->rule);
    struct limit_facts facts = {.rule = x->rule,
                                .identity = identity,
                                .client_limits = client_limits,
                                .cost = cost,
                                .method = head->method_text,
                                .host = head->host,
                                .path = head->path,
                                .fields = &head->fields};
    bool now = limiter_decide(x->generation->limiter, &facts, &x->decision_request) == DECIDED_NOW;
    if (now && !decision_admits(&x->decision_request.decision)) {
        act_on_decision(x);
        return;
    }
    if (!write_request_head(x, head, framing, identity)) {
        exchange_fail(x, CAUSE_NO_MEMORY, NULL);
        return;
    }
    if (now)
        act_on_decision(x);
}

static void decided(struct decision_request *decision_request)
{
    struct exchange *x = CONTAINER_OF(decision_request, struct exchange, decision_request);
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->decision_us = clock_cached_us() - x->started_us;
    if (unlikely(must_wait(x->worker)))
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
    if (w->decided_turn != w->turn) {
        w->decided_turn = w->turn;
        w->decided_count = 0;
    }
    return (++w->decided_count > ACTS_AT_ONCE && clock_iteration_is_long()) || !TAILQ_EMPTY(&w->decided);
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

static void act_on_decision(struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    x->decided = true;
    top_clients_count(x);
    counter_add(counter_table_row(&x->worker->stats.by_rule, x->rule->row) + d->verdict, 1);
    if (decision_admits(d) && d->delay_us > 0 && !x->overdue) {
        if (!hold_begin(x, (uint64_t)d->delay_us))
            exchange_fail(x, CAUSE_NO_MEMORY, NULL);
    } else if (decision_admits(d))
        forward(x, RETRY_NONE, CAUSE_NONE);
    else
        exchange_reply(x, d->verdict == VERDICT_FAILED_CLOSED ? 503 : (uint16_t)x->rule->rejection.status,
                       NULL);
}

void exchange_release(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    forward(x, RETRY_NONE, CAUSE_NONE);
}

/* ---- CONNECT -------------------------------------------------------------------------------- */

/* Takes an upstream connection for the first try, or for a retry (`why`). If there is none, the
 * exchange fails with `otherwise`, or with the cause from upstream_take() if that is
 * CAUSE_NONE. */
static void forward(struct exchange *x, enum retry_cause why, enum cause otherwise)
{
    enum cause cause;

    x->phase = PHASE_CONNECT;
    if (x->overdue) {
        exchange_fail(x, CAUSE_EXCHANGE_TIMEOUT, NULL);
        return;
    }
    x->link = upstream_take(x, why == RETRY_IDLE_CLOSED, &x->tries, &cause);
    if (!x->link) {
        exchange_fail(x, otherwise == CAUSE_NONE ? cause : otherwise, NULL);
        return;
    }
    if (why != RETRY_NONE)
        counter_add(&x->worker->stats.upstream_retries[why], 1);
    if (x->link->state == LINK_BUSY)
        send_request(x);
}

void exchange_connected(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    send_request(x);
}

/* Nothing was sent on this connection, so any request may go to the next server. */
void exchange_connect_failed(struct exchange *x, enum cause cause)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->link = NULL;
    if (retry_may(x, RETRY_CONNECT))
        forward(x, RETRY_CONNECT, cause);
    else
        exchange_fail(x, cause, NULL);
}

bool exchange_try_again(struct exchange *x, enum retry_cause why, enum cause otherwise)
{
    if (!retry_may(x, why))
        return false;
    upstream_release(x->link, false);
    x->link = NULL;
    x->content_since_us = x->blocked_since_us = x->blocked_us = 0;
    deadline_cancel(&x->client_deadline);
    if (!x->request.ended)
        want_body(x, false);
    forward(x, why, otherwise);
    return true;
}

/* If the server closed an idle pooled connection before it received the request, the server has
 * not failed: the request is sent again on a new connection. Otherwise the server has failed,
 * and weir tries another server first. */
void exchange_link_died(struct exchange *x)
{
    enum cause cause = CAUSE_UPSTREAM_CLOSED;
    bool idle = upstream_closed_idle(x->link);

    if (idle && exchange_try_again(x, RETRY_IDLE_CLOSED, cause))
        return;
    upstream_note_failure(x->link, cause_text[cause]);
    if (exchange_try_again(x, RETRY_RESET, cause) || exchange_try_again(x, RETRY_IDLE_CLOSED, cause))
        return;
    exchange_fail(x, cause, tls_fault_of(&x->link->stream));
}

/* ---- RELAY: request direction --------------------------------------------------------------- */

bool exchange_awaits_continue(const struct exchange *x)
{
    return x->expects_continue && !x->continued && !x->request.ended && x->request.bytes == 0;
}

/* Runs the deadline in queue `wanted` (NULL: none). Restarts it if data moved or the queue
 * changed. */
static void run_deadline(struct deadline_queue *wanted, struct deadline *deadline, uint64_t after_us,
                         bool moved)
{
    if (!wanted)
        deadline_cancel(deadline);
    else if (moved || deadline->queue != wanted)
        deadline_arm(wanted, deadline, clock_cached_us(), after_us);
}

void exchange_watch(struct exchange *x, bool client_moved, bool link_moved)
{
    struct worker *w = x->worker;
    bool to_client = x->downstream->pending, to_server = x->link && stream_holds_output(&x->link->stream);
    bool content =
        x->link && !x->request.ended && !x->link_broken && !to_server && !exchange_awaits_continue(x);

    if (to_client)
        run_deadline(&w->queue.write, &x->client_deadline, x->policy->timeouts.send_us, client_moved);
    else
        run_deadline(content ? &w->queue.content : NULL, &x->client_deadline,
                     x->policy->timeouts.request_body_us, client_moved);
    if (x->link)
        run_deadline(to_server || (!to_client && !content) ? &w->queue.response : NULL, &x->link->deadline,
                     x->rule->upstream->response_timeout_us, link_moved);
}

static void send_request(struct exchange *x)
{
    const char *why = NULL;

    x->phase = PHASE_RELAY;
    x->link_broken = false;
    x->sent_us = clock_cached_us();
    if (!x->rule->learns)
        limiter_keep_charge(&x->decision_request);
    enum relay moved = relay_request(x, iobuf_slice(x->head), false, &why);
    request_moved(x, moved, why);
}

static void continue_request(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = relay_request(x, SLICE_NONE, true, &why);
    request_moved(x, moved, why);
}

/* The average rate of the content is below body_min_rate. The time in which the server did not
 * read does not count. */
static bool content_is_too_slow(const struct exchange *x, uint64_t now)
{
    uint64_t rate = x->policy->timeouts.body_min_rate, elapsed = now - x->content_since_us - x->blocked_us;
    return rate && x->content_since_us && elapsed > x->policy->timeouts.request_body_us &&
           x->request.bytes < rate * (elapsed / 1000000);
}

/* Sending the request to the server failed. weir still reads from the server, which may have
 * responded before it closed. Meanwhile weir discards the client's content: a client that sends
 * all of its content before it reads would otherwise never see the response. */
static void link_broke(struct exchange *x)
{
    if (exchange_is_answered(x)) {
        exchange_fail(x, CAUSE_UPSTREAM_CLOSED, NULL);
        return;
    }
    x->link_broken = true;
    x->request.max = 0;
    stream_drop_output(&x->link->stream, &x->worker->buffers);
    want_body(x, true);
    stream_want_write(&x->link->stream, false);
    stream_wake(&x->link->stream);
    exchange_watch(x, false, true);
}

static void request_moved(struct exchange *x, enum relay moved, const char *why)
{
    uint64_t now = clock_cached_us();

    if (!x->content_since_us && !exchange_awaits_continue(x))
        x->content_since_us = now;
    switch (moved) {
    case RELAY_SOURCE:
        if (content_is_too_slow(x, now)) {
            exchange_fail(x, CAUSE_CONTENT_TIMEOUT, "slower than timeouts.body_min_rate");
            return;
        }
        want_body(x, true);
        exchange_watch(x, true, true);
        break;
    case RELAY_SINK:
        x->blocked_since_us = now;
        want_body(x, false);
        exchange_watch(x, true, true);
        break;
    case RELAY_ENDED:
        if (!exchange_is_answered(x) || !exchange_end_if_done(x))
            exchange_watch(x, true, true);
        break;
    case RELAY_GONE: link_broke(x); break;
    case RELAY_CLOSED: exchange_fail(x, CAUSE_CLIENT_GONE, NULL); break;
    case RELAY_BAD: exchange_fail(x, CAUSE_BAD_CONTENT, why); break;
    case RELAY_TOO_LARGE: exchange_fail(x, CAUSE_CONTENT_TOO_LARGE, NULL); break;
    case RELAY_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}

/* Discards request content that the server does not read. */
static void drop_content(struct exchange *x)
{
    const char *why = NULL;

    switch (relay_drop_request(x, &why)) {
    case RELAY_CLOSED: exchange_fail(x, CAUSE_CLIENT_GONE, NULL); break;
    case RELAY_SOURCE:
    case RELAY_ENDED: break;
    default: want_body(x, false); /* the start of the next request is unknown */
    }
}

void exchange_body_ready(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL)
        tunnel_client_readable(x);
    else if (x->link_broken || !x->link)
        drop_content(x);
    else
        continue_request(x);
}

void exchange_body_cut_short(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_HOLD)
        exchange_fail(x, CAUSE_CLIENT_GONE, NULL);
}

void exchange_client_gone(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL)
        exchange_tunnel_ended(x);
    else
        exchange_fail(x, CAUSE_CLIENT_GONE, NULL);
}

void exchange_link_writable(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL) {
        tunnel_link_writable(x);
        return;
    }
    enum sent sent = stream_flush(&x->link->stream, &x->worker->buffers);

    if (sent == SENT_FAILED) {
        request_moved(x, RELAY_GONE, NULL);
        return;
    }
    if (sent == SENT_ALL && x->blocked_since_us) {
        x->blocked_us += clock_cached_us() - x->blocked_since_us;
        x->blocked_since_us = 0;
    }
    if (sent == SENT_ALL && !x->request.ended)
        continue_request(x);
    else if (!exchange_is_answered(x) || !exchange_end_if_done(x))
        exchange_watch(x, false, true);
}

/* ---- RELAY: socket events (response direction: response_relay.c) ---------------------------- */

void exchange_tunnel_ended(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    exchange_finish(x, DOWNSTREAM_ABORTED);
}

void exchange_link_readable(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL) {
        tunnel_link_readable(x);
        return;
    }
    if (exchange_is_answered(x))
        response_after(x);
    else if (x->downstream->pending)
        stream_want_read(&x->link->stream, false); /* resumed by exchange_writable() */
    else if (x->answer_started)
        response_relay(x);
    else
        response_read_head(x);
}

void exchange_writable(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL)
        tunnel_client_writable(x);
    else if (x->downstream->pending)
        exchange_watch(x, true, false);
    else if (!x->link) /* REPLY, or the whole response was relayed */
        exchange_finish(x, exchange_after_answer(x));
    else if (exchange_is_answered(x)) {
        if (!exchange_end_if_done(x))
            exchange_watch(x, true, false);
    } else {
        stream_want_read(&x->link->stream, true);
        if (x->link->unread)
            stream_wake(&x->link->stream);
        exchange_watch(x, true, true);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------ */

static struct exchange *of_client_deadline(struct deadline *deadline)
{
    struct exchange *x = CONTAINER_OF(deadline, struct exchange, client_deadline);
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    return x;
}

/* On a busy machine the deadline may fire before timely input is read. */
static void content_passed(struct deadline *deadline)
{
    struct exchange *x = of_client_deadline(deadline);

    if (x->downstream->ops->has_input(x->downstream))
        deadline_arm(&x->worker->queue.content, deadline, clock_us(), x->policy->timeouts.request_body_us);
    else
        exchange_fail(x, CAUSE_CONTENT_TIMEOUT, NULL);
}

static void write_passed(struct deadline *deadline)
{
    exchange_fail(of_client_deadline(deadline), CAUSE_CLIENT_STALLED, NULL);
}

static void tunnel_passed(struct deadline *deadline)
{
    exchange_tunnel_ended(of_client_deadline(deadline));
}

void exchange_link_timed_out(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    /* On a busy machine, weir may process the deadline before a response that arrived in time.
     * A partial header that was already read does not count. */
    if (!stream_holds_output(&x->link->stream) && !x->downstream->pending &&
        stream_has_unread(&x->link->stream)) {
        exchange_watch(x, false, true);
        return;
    }
    if (!x->answer_started)
        upstream_note_failure(x->link, cause_text[CAUSE_RESPONSE_TIMEOUT]);
    if (!exchange_try_again(x, RETRY_TIMEOUT, CAUSE_RESPONSE_TIMEOUT))
        exchange_fail(x, CAUSE_RESPONSE_TIMEOUT, NULL);
}

/* In LIMIT, weir waits for the decision (at most redis.timeout): the charge cannot be refunded
 * before. In other phases, the failure cause depends on the peer that weir waits for. */
static void exchange_passed(struct deadline *whole)
{
    struct exchange *x = CONTAINER_OF(whole, struct exchange, whole);
    bool awaits_content = x->client_deadline.queue == &x->worker->queue.content;

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_LIMIT)
        x->overdue = true;
    else if (x->phase == PHASE_REPLY)
        exchange_cut(x, CAUSE_CLIENT_STALLED);
    else if (awaits_content && !x->answer_started)
        exchange_fail(x, CAUSE_CONTENT_TIMEOUT, "timeouts.exchange has passed");
    else
        exchange_fail(x, CAUSE_EXCHANGE_TIMEOUT, NULL);
}

void exchanges_init(struct worker *w)
{
    TAILQ_INIT(&w->decided);
    event_assign(&w->act, w->base, -1, 0, act_on_waiting, w);
    deadline_queue_init(&w->deadlines, &w->queue.content, content_passed);
    deadline_queue_init(&w->deadlines, &w->queue.write, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.tunnel, tunnel_passed);
    deadline_queue_init(&w->deadlines, &w->queue.exchange, exchange_passed);
}
