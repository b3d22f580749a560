/* request_relay.c - the request direction of an exchange: header and content to the server; the
 * deadlines of both sides. */
#include "base/clock.h"
#include "proxy/exchange_internal.h"

static void request_moved(struct exchange *x, enum relay moved, const char *why);

static void want_body(struct exchange *x, bool want)
{
    x->downstream->ops->want_body(x->downstream, want);
}

bool exchange_awaits_continue(const struct exchange *x)
{
    return x->expects_continue && !x->continued && !x->request.ended && x->request.bytes == 0;
}

/* Runs the deadline in queue `wanted` (NULL: none). Restarts it if data moved or the queue
 * changed. */
static void run_deadline(struct deadline_queue *wanted, struct deadline *deadline,
                         uint64_t after_us, bool moved)
{
    if (!wanted)
        deadline_cancel(deadline);
    else if (moved || deadline->queue != wanted)
        deadline_arm(wanted, deadline, clock_cached_us(), after_us);
}

void exchange_watch(struct exchange *x, bool client_moved, bool link_moved)
{
    struct worker *w = x->worker;
    bool to_client = x->downstream->pending, to_server = x->link && x->link->pending;
    bool content = x->link && !x->request.ended && !x->link_broken && !to_server &&
                   !exchange_awaits_continue(x);

    x->content_extended &= !client_moved;
    x->response_extended &= !link_moved;
    if (to_client)
        run_deadline(&w->queue.write, &x->client_deadline, x->policy->timeouts.send_us,
                     client_moved);
    else
        run_deadline(content ? &w->queue.content : NULL, &x->client_deadline,
                     x->policy->timeouts.request_body_us, client_moved);
    if (x->link)
        run_deadline(to_server || (!to_client && !content) ? &w->upstream.queue.response : NULL,
                     &x->link->deadline, x->rule->upstream->response_timeout_us, link_moved);
}

void request_send(struct exchange *x)
{
    const char *why = NULL;

    exchange_enter(x, PHASE_RELAY);
    x->link_broken = false;
    x->sent_us = clock_cached_us();
    if (!x->rule->learns)
        limiter_keep_charge(&x->decision_request);
    enum relay moved = relay_request_head(x, &why);
    request_moved(x, moved, why);
}

void request_relay(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = relay_request(x, &why);
    request_moved(x, moved, why);
}

/* The average rate of the content is below body_min_rate. The time in which the server did not
 * read does not count. */
static bool content_is_too_slow(const struct exchange *x, uint64_t now)
{
    uint64_t rate = x->policy->timeouts.body_min_rate,
             elapsed = now - x->content_since_us - x->blocked_us;
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
    enum link_loss loss = x->link->ops->loss(x->link);
    bool refused = loss == LINK_REFUSED || loss == LINK_GOING_AWAY;
    x->link_broken = true;
    if (!refused) /* otherwise the retry needs the rest of the content */
        x->request.max = 0;
    want_body(x, !refused);
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
void request_drop(struct exchange *x)
{
    const char *why = NULL;

    switch (relay_drop_request(x, &why)) {
    case RELAY_CLOSED: exchange_fail(x, CAUSE_CLIENT_GONE, NULL); break;
    case RELAY_SOURCE:
    case RELAY_ENDED: break;
    default: want_body(x, false); /* the start of the next request is unknown */
    }
}

void exchange_link_writable(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL) {
        tunnel_link_writable(x);
        return;
    }
    bool sent = !x->link->pending;

    if (sent && x->blocked_since_us) {
        x->blocked_us += clock_cached_us() - x->blocked_since_us;
        x->blocked_since_us = 0;
    }
    if (sent && !x->request.ended)
        request_relay(x);
    else if (!exchange_is_answered(x) || !exchange_end_if_done(x))
        exchange_watch(x, false, true);
}

void exchange_link_broke(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    if (x->phase == PHASE_TUNNEL)
        exchange_tunnel_ended(x);
    else
        request_moved(x, RELAY_GONE, NULL);
}
