/* relay_request.c - the request direction of RELAY: header and content to the server. */
#include "base/clock.h"
#include "proxy/exchange.h"
#include "proxy/relay.h"
#include "proxy/relay_halves.h"
#include "proxy/step.h"

static void want_request_body(struct exchange *x, bool want)
{
    x->downstream->ops->want_body(x->downstream, want);
}

bool request_keeps_rate(struct exchange *x, uint64_t now_us)
{
    const struct timeouts *timeouts = &x->policy->timeouts;
    struct rate_mark *mark = &x->request.mark;

    return !timeouts->body_min_rate || !mark->since_us ||
           now_us - mark->since_us <= timeouts->request_body_us ||
           rate_mark_move(mark, timeouts->body_min_rate, timeouts->request_body_us, now_us,
                          x->request.bytes);
}

/* Moves the mark by the time in which the server did not read. */
static void end_blocked(struct exchange *x)
{
    uint64_t *since_us = &x->request.mark.since_us, now = clock_cached_us(),
             blocked_us = x->request.blocked_since_us;

    if (blocked_us && *since_us)
        *since_us += now - (blocked_us > *since_us ? blocked_us : *since_us);
    x->request.blocked_since_us = 0;
}

/* On a busy machine the deadline may expire before timely input is read. It is extended once: with
 * HTTP/2 the unread input may belong to other streams. */
enum step request_late(struct exchange *x)
{
    if (x->request.extended || !x->downstream->ops->has_input(x->downstream))
        return step_fail(x, CAUSE_CONTENT_TIMEOUT, NULL);
    x->request.extended = true;
    deadline_arm(&x->worker->queue.content, &x->client_deadline, clock_us(),
                 x->policy->timeouts.request_body_us);
    return STEP_WAIT;
}

enum step request_broken(struct exchange *x)
{
    enum link_loss loss;
    bool refused;

    if (exchange_is_answered(x))
        return step_fail(x, CAUSE_UPSTREAM_CLOSED, NULL);
    /* weir still reads from the server, which may have responded before it closed. Meanwhile weir
     * discards the client's content: a client that sends all of its content before it reads would
     * otherwise never see the response. */
    loss = x->upstream.link->ops->loss(x->upstream.link);
    refused = loss == LINK_REFUSED || loss == LINK_GOING_AWAY;
    x->upstream.broken = true;
    want_request_body(x, !refused); /* a retry needs the rest of the content */
    exchange_watch(x, false, true);
    return STEP_WAIT;
}

/* Handles the result of sending a piece to the server. */
static enum step piece_sent_to_server(struct exchange *x, enum relay moved, const char *why)
{
    uint64_t now = clock_cached_us();

    if (!x->request.mark.since_us && x->request.progress != MESSAGE_END &&
        !exchange_awaits_continue(x))
        x->request.mark.since_us = now;
    switch (moved) {
    case RELAY_SOURCE:
        if (!request_keeps_rate(x, now))
            return step_fail(x, CAUSE_CONTENT_TIMEOUT, "slower than timeouts.body_min_rate");
        want_request_body(x, true);
        break;
    case RELAY_SINK:
        if (!x->request.blocked_since_us)
            x->request.blocked_since_us = now;
        want_request_body(x, false);
        break;
    case RELAY_ENDED:
        if (exchange_is_answered(x) && exchange_is_over(x))
            return step_end(x, exchange_end_of_answer(x));
        break;
    case RELAY_GONE: return request_broken(x);
    case RELAY_CLOSED: return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    case RELAY_BAD: return step_fail(x, CAUSE_BAD_CONTENT, why);
    case RELAY_TOO_LARGE: return step_fail(x, CAUSE_CONTENT_TOO_LARGE, NULL);
    case RELAY_NO_MEMORY: return step_fail(x, CAUSE_NO_MEMORY, NULL);
    }
    exchange_watch(x, true, true);
    return STEP_WAIT;
}

/* Sends what is kept as far as the server takes it, else a piece from the client. */
static enum relay move(struct exchange *x, const char **why)
{
    enum relay moved;

    do
        moved = relay_request(x, why);
    while (moved == RELAY_SOURCE && relay_has_kept(x));
    return moved;
}

enum step request_begin(struct exchange *x)
{
    const char *why = NULL;

    x->upstream.broken = false;
    x->upstream.sent_us = clock_cached_us();
    x->record.server = link_server(x->upstream.link);
    server_stats_begin(x->upstream.link);
    if (!x->route.rule->adjusts)
        limiter_keep_charge(&x->decision_request);
    enum relay moved = relay_request_head(x, &why);
    if (moved == RELAY_SOURCE && relay_has_kept(x))
        moved = move(x, &why);
    return piece_sent_to_server(x, moved, why);
}

static enum step move_piece(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = move(x, &why);

    return piece_sent_to_server(x, moved, why);
}

enum step request_drop(struct exchange *x)
{
    const char *why = NULL;

    switch (relay_drop_request(x, &why)) {
    case RELAY_CLOSED: return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    case RELAY_SOURCE:
    case RELAY_ENDED: break;
    default: want_request_body(x, false); /* the start of the next request is unknown */
    }
    return STEP_WAIT;
}

enum step request_readable(struct exchange *x)
{
    return x->upstream.link && !x->upstream.broken ? move_piece(x) : request_drop(x);
}

enum step request_writable(struct exchange *x)
{
    bool sent = !x->upstream.link->pending;

    if (sent)
        end_blocked(x);
    if (sent && (x->request.progress != MESSAGE_END || relay_has_kept(x)))
        return move_piece(x);
    if (exchange_is_answered(x) && exchange_is_over(x))
        return step_end(x, exchange_end_of_answer(x));
    exchange_watch(x, false, true);
    return STEP_WAIT;
}
