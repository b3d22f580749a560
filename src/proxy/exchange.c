/* exchange.c - the life of one request, from its header to its access log line.
 *
 *   exchange_begin() notes the header and wakes the exchange
 *     SERVICE  only on listeners of rate_limit_service: content, decision --> REPLY
 *     ROUTE    client identity, path, rule, size limits ------------------------.
 *     KEYS     until the key of its token is fetched, then ROUTE --------------------+
 *     QUOTA    client quota from a database -------------------------------------+
 *     CONTENT  costs in the content of the request, if a limit needs them ---------+
 *     LIMIT    at once, or when Redis replies -----------------------------------+--> REPLY
 *     HOLD     wait in a queue --------------------------------------------------+    weir's response:
 *     CONNECT  a pooled connection, a new one, or the next server ---------.----+    204 400 403 405
 *       |                                                           retry  |    |    408 413 429 5xx
 *     RELAY    both directions at the same time:  -------------------------'    |      |
 *       |        request   client -> upstream (relay_request.c)                 |      |
 *       |        response  upstream -> client (relay_response.c)                |      |
 *       |      failure before the first byte of the response -------------------'      |
 *       |      failure after it: the client's message is cut off                       |
 *     TUNNEL   after 101 to a requested upgrade                                        |
 *       v                                                                              v
 *     DONE     releases the upstream connection, updates the counters, writes the access log line,
 *              ends the use of the downstream
 *
 * Every phase has one step: step_route.c to step_reply.c. exchange_wake() runs steps until one
 * waits for an event. Events (exchange_events.c) are noted and wake the exchange again. Nothing
 * else runs or ends an exchange; in a step, it exists until the step has returned.
 *
 * Every phase that waits has a deadline:
 *   KEYS           3 s
 *   QUOTA          quotas.timeout
 *   CONTENT        timeouts.request_body
 *   SERVICE        timeouts.request_body, then redis.timeout; a Watch of the health has none
 *   LIMIT          redis.timeout (enforced by the limiter)
 *   HOLD           max_delay
 *   CONNECT        connect_timeout
 *   RELAY, REPLY   set by exchange_watch()
 *   TUNNEL         timeouts.tunnel
 * timeouts.exchange limits the whole exchange, except a tunnel. */
#include "proxy/exchange.h"

#include "base/clock.h"
#include "proxy/access_log.h"
#include "proxy/added_usage.h"
#include "proxy/client_requests.h"
#include "proxy/drain.h"
#include "proxy/response_cost.h"
#include "proxy/service_listener.h"
#include "proxy/step.h"
#include "proxy/waiting_request.h"

static enum step (*const step_of[])(struct exchange *x) = {
    [PHASE_ROUTE] = step_route,     [PHASE_KEYS] = step_keys,       [PHASE_QUOTA] = step_quota,
    [PHASE_CONTENT] = step_content, [PHASE_LIMIT] = step_limit,     [PHASE_HOLD] = step_hold,
    [PHASE_CONNECT] = step_connect, [PHASE_RELAY] = step_relay,     [PHASE_TUNNEL] = step_tunnel,
    [PHASE_REPLY] = step_reply,     [PHASE_SERVICE] = step_service,
};

static enum step handle_failure(struct exchange *x);
static void finish(struct exchange *x);

/* ---- the driver ------------------------------------------------------------------------------ */

/* A deadline of the whole exchange has passed, in a phase after the decision. The cause of the
 * failure depends on the peer that weir waits for. */
static enum step fail_overdue(struct exchange *x)
{
    bool awaits_content = x->client_deadline.queue == &x->worker->queue.content;

    if (x->phase == PHASE_REPLY)
        return step_fail(x, CAUSE_CLIENT_STALLED, NULL);
    if (x->overdue == CAUSE_EXCHANGE_TIMEOUT && awaits_content && !exchange_is_answering(x))
        return step_fail(x, CAUSE_CONTENT_TIMEOUT, "timeouts.exchange has passed");
    return step_fail(x, x->overdue, NULL);
}

enum {
    INTERRUPTIONS = EVENT_FAILED | EVENT_CUT | EVENT_CLIENT_GONE | EVENT_WRITE_LATE | EVENT_OVERDUE
};

/* When weir stops, a client that has received no part of a response gets 503. If it has not taken
 * that at the next cut, it gets no more. */
static enum step cut(struct exchange *x)
{
    if (x->failure.cause != CAUSE_SHUTDOWN || x->phase == PHASE_REPLY || exchange_is_answering(x)) {
        x->record.cause = x->failure.cause;
        return step_end(x, DOWNSTREAM_ABORTED);
    }
    if (x->decision_request.op) {
        limiter_abandon(&x->decision_request);
        x->decision_request.decision.result_count = 0; /* some limits may have decided */
    }
    return STEP_FAIL;
}

/* Events that mean the same in every phase. */
static enum step interrupt(struct exchange *x)
{
    if (x->phase == PHASE_HOLD)
        hold_end(x);
    keys_end(x);
    if (exchange_has(x, EVENT_FAILED))
        return STEP_FAIL;
    if (exchange_has(x, EVENT_CUT))
        return cut(x);
    if (exchange_has(x, EVENT_CLIENT_GONE))
        return x->phase == PHASE_TUNNEL ? step_end(x, DOWNSTREAM_ABORTED)
                                        : step_fail(x, CAUSE_CLIENT_GONE, NULL);
    if (exchange_has(x, EVENT_WRITE_LATE))
        return step_fail(x, CAUSE_CLIENT_STALLED, NULL);
    return fail_overdue(x);
}

void exchange_wake(struct exchange *x)
{
    enum step step;

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->running)
        return; /* the loop below runs once more */
    x->running = true;
    do {
        x->events = x->noted;
        x->noted = 0;
        step = exchange_has(x, INTERRUPTIONS) ? interrupt(x) : step_of[x->phase](x);
        if (step == STEP_FAIL)
            step = handle_failure(x);
    } while (step == STEP_NEXT ? x->phase != PHASE_DONE : x->noted != 0);
    x->running = false;
    if (x->phase == PHASE_DONE)
        finish(x);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void drop_link(struct exchange *x)
{
    if (x->upstream.link)
        link_release(x->upstream.link, false);
    x->upstream.link = NULL;
}

/* The response is complete, so the failure affects only the rest of the request: weir stops
 * forwarding it, and the client still gets the response. Returns STEP_FAIL if the client cannot
 * get the response. */
static enum step fail_after_answer(struct exchange *x, enum cause cause, const char *why)
{
    bool delivered = !x->downstream->pending;
    bool of_client = cause_table[cause].fault == FAULT_CLIENT && cause != CAUSE_CLIENT_GONE;

    if (!delivered && (cause == CAUSE_CLIENT_GONE || cause == CAUSE_CLIENT_STALLED ||
                       cause == CAUSE_EXCHANGE_TIMEOUT || cause == CAUSE_NO_MEMORY))
        return STEP_FAIL;
    if (of_client || cause == CAUSE_EXCHANGE_TIMEOUT) {
        x->record.cause = cause;
        x->record.why = why;
        exchange_log(x, cause, why);
    }
    drop_link(x);
    if (delivered && cause == CAUSE_CLIENT_GONE)
        return step_end(x, DOWNSTREAM_ABORTED);
    if (exchange_is_over(x))
        return step_end(x, exchange_end_of_answer(x));
    x->downstream->ops->want_body(x->downstream, x->record.cause == CAUSE_NONE);
    exchange_watch(x, false, false);
    return STEP_WAIT;
}

/* The response to a client that has left cannot be read to its end. */
static enum step fail_drain(struct exchange *x, enum cause cause)
{
    if (x->upstream.link && cause_table[cause].fault == FAULT_SERVER)
        exchange_note_error(x, cause);
    drop_link(x);
    return step_end(x, DOWNSTREAM_ABORTED);
}

/* A step has failed. */
static enum step handle_failure(struct exchange *x)
{
    enum cause cause = x->failure.cause;
    const char *why = x->failure.why;

    if (exchange_drains(x))
        return fail_drain(x, cause);
    if (cause == CAUSE_CLIENT_GONE && drain_begin(x)) {
        x->record.cause = cause;
        exchange_log(x, cause, why);
        return STEP_WAIT;
    }
    if (exchange_is_answered(x)) {
        enum step step = fail_after_answer(x, cause, why);
        if (step != STEP_FAIL)
            return step;
    }
    x->record.cause = cause;
    x->record.why = why;
    exchange_log(x, cause, why);
    if (x->upstream.link && cause_table[cause].fault == FAULT_SERVER)
        exchange_note_error(x, cause);
    drop_link(x);
    if (exchange_is_answering(x) || cause_table[cause].status == 0)
        return step_end(x, DOWNSTREAM_ABORTED);
    return step_reply_with(x, cause_table[cause].status);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void count_exchange(const struct exchange *x, uint64_t duration_us)
{
    struct worker_stats *s = &x->worker->stats;

    counter_subtract(&s->requests_active, 1);
    counter_add(
        &s->responses[x->record.status >= 100 && x->record.status < 600 ? x->record.status / 100
                                                                        : 0],
        1);
    counter_add(&s->bytes_from_clients, exchange_received(x));
    counter_add(&s->bytes_to_clients, x->response.bytes + x->record.reply_bytes);
    if (x->record.cause != CAUSE_NONE)
        counter_add(&s->errors[x->record.cause], 1);
    histogram_add(&s->request_duration, duration_us);
    if (x->route.rule)
        row_histogram_add(counter_table_row(&s->rule_durations, x->route.rule->row), duration_us);
}

/* Returns the most that one limit has charged. */
static int64_t highest_charge(const struct exchange *x)
{
    unsigned count = x->route.rule ? x->route.rule->limit_count : 0; /* none: a descriptor's call */
    int64_t highest = 0;

    for (unsigned i = 0; i < count; i++)
        highest = x->charged[i] > highest ? x->charged[i] : highest;
    return highest;
}

/* Counts among the top clients: the cost of an admitted request, which is final now, and the
 * rejection of a blocked address, which no limit decided. */
static void count_client_cost(const struct exchange *x)
{
    struct top_clients *top = &x->worker->top_clients;
    struct slice client = {x->identity, x->identity_size};
    int64_t cost;

    if (x->record.cause == CAUSE_ADDRESS_BLOCKED || x->record.cause == CAUSE_CLIENT_BLOCKED)
        top_keys_add(top->by[TOP_BY_LIMITED], clock_cached_us(), client, 1);
    else if (x->limits.progress == LIMITS_DECIDED &&
             decision_admits(&x->decision_request.decision) && (cost = highest_charge(x)) > 1)
        top_keys_add(top->by[TOP_BY_COST], clock_cached_us(), client, (uint64_t)cost - 1);
}

/* Returns true if the request has not waited for its slot in a queue to the end, or not at all. */
static bool left_queue_early(const struct exchange *x)
{
    return x->hold.left_early ||
           (x->decision_request.charge && x->decision_request.decision.delay_us > 0 &&
            x->hold.since_us == 0);
}

/* Refunds the charge if nothing was sent to the server and the cause allows it, or if the request
 * left a queue early, which frees its slot. Otherwise keeps the charge, except that limits with
 * `count` do not charge weir's own responses. */
static void end_charge(struct exchange *x)
{
    if (x->decision_request.held_count)
        limiter_leave(x->generation->limiter, &x->decision_request);
    if (x->upstream.sent_us == 0 && (cause_table[x->record.cause].refund || left_queue_early(x)))
        response_cost_refund(x);
    else if (x->cost.usage || x->decision_request.charge)
        response_cost_end(x);
}

/* The only end of an exchange. */
static void finish(struct exchange *x)
{
    struct worker *w = x->worker;
    struct downstream *downstream = x->downstream;
    enum downstream_end how = x->end;
    uint64_t duration = clock_cached_us() - x->record.started_us;

    deadline_cancel(&x->whole);
    deadline_cancel(&x->client_deadline);
    if (x->grpc || exchange_drains(x))
        timer_cancel(&w->calls, &x->call);
    if (x->limits.progress == LIMITS_QUEUED)
        TAILQ_REMOVE(&w->decided, x, limits.queued_link);
    if (x->decision_request.op)
        limiter_abandon(&x->decision_request);
    if (x->service)
        service_end(x);
    if (x->waiting)
        waiting_request_free(x);
    if (x->quota.request)
        quota_client_abandon(&x->quota);
    if (x->requests_entry)
        client_requests_leave(x);
    end_charge(x);
    drop_link(x);
    if (exchange_drains(x))
        drain_forget_response(x);
    count_exchange(x, duration);
    count_client_cost(x);
    if (x->record.log)
        access_log_end(x, duration);
    exchange_forget_request(x);
    if (added_usage_removes(x))
        added_usage_end(x);
    iobuf_put(&w->buffers, &x->request.kept);
    iobuf_put(&w->buffers, &x->request.ahead);
    iobuf_put(&w->buffers, &x->record.log);
    x->generation->without_limiter -= x->without_limiter;
    x->generation->exchanges--;
    MAGIC_WIPE(x);
    free_list_put(&w->free_exchanges, x);
    downstream->exchange = NULL;
    downstream->ops->end(downstream, how);
}
