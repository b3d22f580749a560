/* step_tunnel.c - TUNNEL: a connection after 101 Switching Protocols (RFC 9110 section 7.8):
 * uninterpreted bytes in both directions.
 *
 *   client --exchange.request---> upstream
 *   client <--exchange.response-- upstream
 *
 * Each direction ends with its sender's FIN, which weir forwards. The tunnel ends:
 *   - when both directions have ended,
 *   - when one side fails, or
 *   - when no data has moved for timeouts.tunnel.
 * Back-pressure is that of relay.h: one piece per direction. The limits apply only to the
 * request that opens the tunnel. */
#include "base/clock.h"
#include "proxy/relay.h"
#include "proxy/step.h"

static void arm_idle(struct exchange *x)
{
    deadline_arm(&x->worker->queue.tunnel, &x->client_deadline, clock_us(),
                 x->policy->timeouts.tunnel_us);
}

static void want_from_client(struct exchange *x, bool want)
{
    x->downstream->ops->want_body(x->downstream, want);
}

static void want_from_server(struct exchange *x, bool want)
{
    x->upstream.link->ops->want_read(x->upstream.link, want);
}

/* The tunnel ends when both directions have ended and are delivered. */
static enum step end_if_done(struct exchange *x)
{
    if (x->request.progress == MESSAGE_END && x->response.progress == MESSAGE_END &&
        !x->downstream->pending && !x->upstream.link->pending)
        return step_end(x, DOWNSTREAM_ABORTED);
    return STEP_WAIT;
}

/* Handles the result of a move from one side; `want` controls reading from it. */
static enum step tunnel_moved(struct exchange *x, enum relay moved,
                              void (*want)(struct exchange *x, bool want))
{
    arm_idle(x);
    switch (moved) {
    case RELAY_SOURCE: want(x, true); return STEP_WAIT;
    case RELAY_SINK: want(x, false); return STEP_WAIT;
    case RELAY_ENDED: want(x, false); return end_if_done(x);
    default: return step_end(x, DOWNSTREAM_ABORTED);
    }
}

/* The data is moved by the events that follow: both sides may already have sent some. */
static enum step tunnel_begin(struct exchange *x)
{
    x->request.kind = FRAMING_UNTIL_CLOSE;
    x->request.progress = MESSAGE_CONTENT;
    x->request.bytes = x->request.max = x->cost.usage_added = 0;
    x->upstream.link->ops->begin_tunnel(x->upstream.link);
    deadline_cancel(&x->upstream.link->deadline);
    arm_idle(x);
    want_from_client(x, true);
    want_from_server(x, !x->downstream->pending);
    return STEP_WAIT;
}

static enum step client_readable(struct exchange *x)
{
    const char *why;

    if (x->request.progress != MESSAGE_END && !x->upstream.link->pending)
        return tunnel_moved(x, relay_request(x, &why), want_from_client);
    want_from_client(x, false);
    return STEP_WAIT;
}

static enum step link_readable(struct exchange *x)
{
    const char *why;

    if (x->response.progress != MESSAGE_END && !x->downstream->pending)
        return tunnel_moved(x, relay_response(x, &why), want_from_server);
    want_from_server(x, false);
    return STEP_WAIT;
}

/* Output was sent to one side; `want` controls reading from the other one. */
static enum step tunnel_writable(struct exchange *x, bool pending, enum message_progress progress,
                                 void (*want)(struct exchange *x, bool want))
{
    arm_idle(x);
    if (pending)
        return STEP_WAIT;
    if (progress == MESSAGE_END)
        return end_if_done(x);
    want(x, true);
    return STEP_WAIT;
}

enum step step_tunnel(struct exchange *x)
{
    enum step step = STEP_WAIT;

    if (exchange_has(x, EVENT_ENTERED))
        return tunnel_begin(x);
    if (exchange_has(x, EVENT_LINK_BROKEN | EVENT_TUNNEL_LATE))
        return step_end(x, DOWNSTREAM_ABORTED);
    if (exchange_has(x, EVENT_CLIENT_WRITABLE))
        step = tunnel_writable(x, x->downstream->pending, x->response.progress, want_from_server);
    if (step == STEP_WAIT && exchange_has(x, EVENT_LINK_WRITABLE))
        step = tunnel_writable(x, x->upstream.link->pending, x->request.progress, want_from_client);
    if (step == STEP_WAIT && exchange_has(x, EVENT_CLIENT_READABLE))
        step = client_readable(x);
    if (step == STEP_WAIT && exchange_has(x, EVENT_LINK_READABLE))
        step = link_readable(x);
    return step;
}
