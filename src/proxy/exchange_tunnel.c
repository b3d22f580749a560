/* exchange_tunnel.c - a connection after 101 Switching Protocols (RFC 9110 section 7.8):
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
#include "proxy/exchange_internal.h"

static bool begins_with(struct slice protocol, struct slice start)
{
    return protocol.n >= start.n && slice_equal_nocase((struct slice){protocol.p, start.n}, start);
}

/* True if a listed protocol carries HTTP: cleartext HTTP/2 (h2c), any other HTTP version, or
 * TLS (RFC 2817). weir could not limit requests in such a tunnel, so it then offers none of the
 * listed protocols. */
static bool offers_http(struct slice value)
{
    struct slice protocol;

    while (slice_next_element(&value, &protocol))
        if (begins_with(protocol, SLICE("h2")) || begins_with(protocol, SLICE("HTTP")) ||
            begins_with(protocol, SLICE("TLS")))
            return true;
    return false;
}

struct slice tunnel_protocol(const struct request_head *head, const struct framing *framing)
{
    const struct field *upgrade = fields_find(&head->fields, FIELD_UPGRADE);

    if (!upgrade || head->minor == 0 || framing->kind != FRAMING_NONE ||
        fields_next_named(&head->fields, upgrade->name, upgrade) ||
        !connection_names(&head->fields, SLICE("upgrade")) || offers_http(upgrade->value))
        return SLICE_NONE;
    return upgrade->value;
}

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
    x->link->ops->want_read(x->link, want);
}

/* Ends the tunnel if both directions have ended and are delivered. */
static void end_if_done(struct exchange *x)
{
    if (x->request.ended && x->response.ended && !x->downstream->pending && !x->link->pending)
        exchange_tunnel_ended(x);
}

/* Handles the result of a move from one side; `want` controls reading from it. */
static void moved_on(struct exchange *x, enum relay moved,
                     void (*want)(struct exchange *x, bool want))
{
    arm_idle(x);
    switch (moved) {
    case RELAY_SOURCE: want(x, true); break;
    case RELAY_SINK: want(x, false); break;
    case RELAY_ENDED:
        want(x, false);
        end_if_done(x);
        break;
    default: exchange_tunnel_ended(x);
    }
}

void tunnel_begin(struct exchange *x)
{
    x->request.kind = FRAMING_UNTIL_CLOSE;
    x->request.ended = false;
    x->request.bytes = x->request.max = 0;
    x->link->ops->begin_tunnel(x->link);
    deadline_cancel(&x->link->deadline);
    arm_idle(x);
    /* Moves the data through the event loop, because either move may end the exchange. */
    want_from_client(x, true);
    want_from_server(x, !x->downstream->pending);
}

void tunnel_client_readable(struct exchange *x)
{
    const char *why;

    if (x->request.ended || x->link->pending) {
        want_from_client(x, false);
        return;
    }
    moved_on(x, relay_request(x, &why), want_from_client);
}

void tunnel_link_readable(struct exchange *x)
{
    const char *why;

    if (x->response.ended || x->downstream->pending)
        want_from_server(x, false);
    else
        moved_on(x, relay_response(x, &why), want_from_server);
}

void tunnel_client_writable(struct exchange *x)
{
    arm_idle(x);
    if (x->downstream->pending)
        return;
    if (x->response.ended)
        end_if_done(x);
    else
        want_from_server(x, true);
}

void tunnel_link_writable(struct exchange *x)
{
    arm_idle(x);
    if (x->link->pending)
        return;
    if (x->request.ended)
        end_if_done(x);
    else
        want_from_client(x, true);
}
