/* exchange.c - the life of one request, from its header to its access log line.
 *
 *   exchange_begin()
 *     ROUTE    client identity, path, rule, size limits (exchange_route.c) -----.
 *     QUOTA    client quota from a database (exchange_quota.c) -----------------+
 *     LIMIT    decide(): at once, or when Redis replies ------------------------+--> REPLY
 *     HOLD     wait in a queue (exchange_hold.c) -------------------------------+    weir's response:
 *     CONNECT  a pooled connection, a new one, or the next server ---------.----+    204 400 403 405
 *       |      (exchange_connect.c)                                 retry  |    |    408 413 429 5xx
 *     RELAY    both directions at the same time:  -------------------------'    |      |
 *       |        request   client -> upstream (request_relay.c)                 |      |
 *       |        response  upstream -> client (response_relay.c)                |      |
 *       |      failure before the first byte of the response -------------------'      |
 *       |      failure after it: the client's message is cut off                       |
 *     TUNNEL   after 101 to a requested upgrade (exchange_tunnel.c)                    |
 *       v                                                                              v
 *     DONE     exchange_finish() releases the upstream connection, updates the counters, writes the
 *              access log line, ends the use of the downstream (all exits: exchange_end.c)
 *
 * The table exchange_next_phases has all transitions; only exchange_enter() makes them.
 *
 * Every phase that waits has a deadline:
 *   QUOTA          quotas.timeout
 *   LIMIT          redis.timeout (enforced by the limiter)
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
#include "proxy/access_log.h"
#include "proxy/decision_listener.h"
#include "proxy/grpc.h"

/* ---- phases --------------------------------------------------------------------------------- */

#define TO(phase) (1u << (phase))

const uint16_t exchange_next_phases[] = {
    [PHASE_ROUTE] = TO(PHASE_QUOTA) | TO(PHASE_LIMIT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_QUOTA] = TO(PHASE_QUOTA) | TO(PHASE_LIMIT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_LIMIT] = TO(PHASE_HOLD) | TO(PHASE_CONNECT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_HOLD] = TO(PHASE_CONNECT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_CONNECT] = TO(PHASE_CONNECT) | TO(PHASE_RELAY) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_RELAY] = TO(PHASE_CONNECT) | TO(PHASE_TUNNEL) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_TUNNEL] = TO(PHASE_DONE),
    [PHASE_REPLY] = TO(PHASE_DONE),
    [PHASE_DONE] = 0,
};

static const char *const phase_name[] = {
    [PHASE_ROUTE] = "route",   [PHASE_QUOTA] = "quota",     [PHASE_LIMIT] = "limit",
    [PHASE_HOLD] = "hold",     [PHASE_CONNECT] = "connect", [PHASE_RELAY] = "relay",
    [PHASE_TUNNEL] = "tunnel", [PHASE_REPLY] = "reply",     [PHASE_DONE] = "done",
};

void exchange_phase_ends(struct exchange *x, enum phase next)
{
    log_debug("request %.*s: %s -> %s", (int)x->id_size, x->request_id, phase_name[x->phase],
              phase_name[next]);
    if (x->phase == PHASE_HOLD)
        hold_end(x);
}

static const struct link_owner_ops link_ops;

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
    x->decision_request.decided = exchange_decided;
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
    x->owner.ops = &link_ops;
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
    holds_clear(worker);
    timer_heap_clear(&worker->calls);
    if (worker->decided.tqh_last)
        event_del(&worker->act);
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

static void begin(struct exchange *x, struct request_head *head, const struct framing *framing)
{
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin(x, head);
    exchange_route(x, head, framing);
}

/* On the decision listener, the request in the access log is the one to decide on. */
static void begin_decision(struct exchange *x, struct request_head *head,
                           const struct framing *framing)
{
    enum cause cause;
    const char *why;

    if (decision_head(x, head, &cause, &why)) {
        begin(x, head, framing);
        return;
    }
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin(x, head);
    exchange_fail(x, cause, why);
}

/* A gRPC call has a deadline of its own. Returns false if there is no memory. */
static bool note_call(struct exchange *x, const struct request_head *head)
{
    uint64_t timeout_us;

    if (!fields_have(&head->fields, FIELD_CONTENT_TYPE) || !grpc_is_call(x, head))
        return true;
    x->grpc = true;
    x->grpc_status = GRPC_STATUS_NONE;
    timeout_us = grpc_timeout(head);
    return !timeout_us || timer_set(&x->worker->calls, &x->call, x->started_us + timeout_us);
}

bool exchange_begin(struct downstream *downstream, struct request_head *head,
                    const struct framing *framing)
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
    if (!note_call(x, head))
        exchange_fail(x, CAUSE_NO_MEMORY, NULL);
    else if (downstream->origin->decides)
        begin_decision(x, head, framing);
    else
        begin(x, head, framing);
    return true;
}

bool exchange_refuse(struct downstream *downstream, enum cause cause, uint16_t status,
                     const char *why, const struct request_line *line)
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

void exchange_body_ready(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL)
        tunnel_client_readable(x);
    else if (x->link_broken || !x->link)
        request_drop(x);
    else
        request_relay(x);
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

/* ---- RELAY: events (response direction: response_relay.c) ----------------------------------- */

void exchange_tunnel_ended(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    exchange_finish(x, DOWNSTREAM_ABORTED);
}

static void link_readable(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL) {
        tunnel_link_readable(x);
        return;
    }
    if (exchange_is_answered(x)) {
        if (!x->link->ops->takes_rest(x->link))
            exchange_fail(x, CAUSE_UPSTREAM_CLOSED, NULL);
    } else if (x->downstream->pending)
        x->link->ops->want_read(x->link, false); /* resumed by exchange_writable() */
    else if (x->answer == ANSWER_STARTED)
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
        x->link->ops->want_read(x->link, true);
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

/* On a busy machine the deadline may fire before timely input is read. It is extended once: with
 * HTTP/2 the unread input may belong to other streams. */
static void content_passed(struct deadline *deadline)
{
    struct exchange *x = of_client_deadline(deadline);

    if (!x->content_extended && x->downstream->ops->has_input(x->downstream)) {
        x->content_extended = true;
        deadline_arm(&x->worker->queue.content, deadline, clock_us(),
                     x->policy->timeouts.request_body_us);
    } else
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

static void link_timed_out(struct exchange *x)
{
    enum cause cause = CAUSE_RESPONSE_TIMEOUT;

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    /* On a busy machine, weir may process the deadline before a response that arrived in time.
     * A partial header that was already read does not count. Once, as in content_passed(). */
    if (!x->response_extended && !x->link->pending && !x->downstream->pending &&
        x->link->ops->has_input(x->link)) {
        exchange_watch(x, false, true);
        x->response_extended = true;
        return;
    }
    if (x->answer < ANSWER_STARTED)
        upstream_note_failure(x->link, cause_table[cause].text);
    if (!exchange_try_again(x, cause_table[cause].retry, cause))
        exchange_fail(x, cause, NULL);
}

/* In QUOTA and LIMIT, weir waits for the decision (at most quotas.timeout and redis.timeout): the
 * charge cannot be refunded before. In other phases, the failure cause depends on the peer that
 * weir waits for. */
/* A deadline of the whole exchange has passed. */
static void overdue(struct exchange *x, enum cause cause)
{
    bool awaits_content = x->client_deadline.queue == &x->worker->queue.content;

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_QUOTA || x->phase == PHASE_LIMIT)
        x->overdue = cause;
    else if (x->phase == PHASE_REPLY)
        exchange_cut(x, CAUSE_CLIENT_STALLED);
    else if (cause == CAUSE_EXCHANGE_TIMEOUT && awaits_content && x->answer < ANSWER_STARTED)
        exchange_fail(x, CAUSE_CONTENT_TIMEOUT, "timeouts.exchange has passed");
    else
        exchange_fail(x, cause, NULL);
}

static void exchange_passed(struct deadline *whole)
{
    overdue(CONTAINER_OF(whole, struct exchange, whole), CAUSE_EXCHANGE_TIMEOUT);
}

static void call_passed(struct timer *timer)
{
    overdue(CONTAINER_OF(timer, struct exchange, call), CAUSE_CALL_TIMEOUT);
}

/* ---- events of the link --------------------------------------------------------------------- */

static struct exchange *of_owner(struct link_owner *owner)
{
    return CONTAINER_OF(owner, struct exchange, owner);
}

static void on_connected(struct link_owner *owner, struct link *link)
{
    exchange_connected(of_owner(owner), link);
}

static void on_connect_failed(struct link_owner *owner, enum link_failure failure)
{
    exchange_connect_failed(of_owner(owner), failure);
}

static void on_link_readable(struct link_owner *owner)
{
    link_readable(of_owner(owner));
}

static void on_link_writable(struct link_owner *owner)
{
    exchange_link_writable(of_owner(owner));
}

static void on_link_broken(struct link_owner *owner)
{
    exchange_link_broke(of_owner(owner));
}

static void on_link_timed_out(struct link_owner *owner)
{
    link_timed_out(of_owner(owner));
}

static const struct link_owner_ops link_ops = {.connected = on_connected,
                                               .connect_failed = on_connect_failed,
                                               .readable = on_link_readable,
                                               .writable = on_link_writable,
                                               .broken = on_link_broken,
                                               .timed_out = on_link_timed_out};

void exchanges_init(struct worker *w)
{
    holds_init(w);
    timer_heap_init(&w->calls, w->base, call_passed);
    decisions_init(w);
    deadline_queue_init(&w->deadlines, &w->queue.content, content_passed);
    deadline_queue_init(&w->deadlines, &w->queue.write, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.tunnel, tunnel_passed);
    deadline_queue_init(&w->deadlines, &w->queue.exchange, exchange_passed);
}
