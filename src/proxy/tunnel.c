#include "proxy/tunnel.h"

#include "base/clock.h"

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
    deadline_arm(&x->worker->queue.tunnel, &x->client->deadline, clock_us(), x->policy->timeouts.tunnel_us);
}

/* Handles the result of a move. True: the tunnel continues. */
static bool moved_on(struct exchange *x, enum relay moved, struct stream *from, struct stream *to)
{
    arm_idle(x);
    switch (moved) {
    case RELAY_SOURCE: stream_want_read(from, true); return true;
    case RELAY_SINK: stream_want_read(from, false); return true;
    case RELAY_ENDED:
        stream_want_read(from, false);
        if (!stream_holds_output(to) && !stream_end(to)) /* else after the flush */
            return false;
        return !(x->request.ended && x->response.ended && !stream_holds_output(&x->client->stream) &&
                 !stream_holds_output(&x->link->stream));
    default: return false;
    }
}

static void move(struct exchange *x, struct message_body *message_body, struct stream *from,
                 struct stream *to, bool readable)
{
    struct relay_io io = {&x->worker->buffers, x->worker->receive};
    const char *why;

    if (message_body->ended || stream_holds_output(to)) {
        stream_want_read(from, false);
        return;
    }
    enum relay moved = relay_move(message_body, from, to, readable, &io, &why);
    if (!moved_on(x, moved, from, to))
        exchange_tunnel_ended(x);
}

/* `to` is writable again. */
static void flushed(struct exchange *x, struct message_body *message_body, struct stream *from,
                    struct stream *to)
{
    enum sent sent = stream_flush(to, &x->worker->buffers);

    if (sent == SENT_FAILED) {
        exchange_tunnel_ended(x);
        return;
    }
    arm_idle(x);
    if (sent == SENT_PART)
        return;
    if (message_body->ended) {
        if (!moved_on(x, RELAY_ENDED, from, to))
            exchange_tunnel_ended(x);
        return;
    }
    stream_want_read(from, true);
    if (iobuf_held(from->in))
        stream_wake(from);
}

void tunnel_begin(struct exchange *x, struct unread unread)
{
    static const struct framing until_close = {.kind = FRAMING_UNTIL_CLOSE};
    struct stream *client = &x->client->stream, *server = &x->link->stream;

    message_body_begin(&x->request, &until_close, false, 0);
    message_body_begin(&x->response, &until_close, false, 0);
    deadline_cancel(&x->link->deadline);
    arm_idle(x);
    if (!stream_keep(server, &x->worker->buffers, (struct slice){unread.bytes, unread.size})) {
        exchange_tunnel_ended(x);
        return;
    }
    /* Moves the data through the event loop, because either move may end the exchange. */
    stream_want_read(client, true);
    stream_want_read(server, !stream_holds_output(client));
    if (iobuf_held(client->in))
        stream_wake(client);
    if (iobuf_held(server->in) && !stream_holds_output(client))
        stream_wake(server);
}

void tunnel_client_readable(struct exchange *x)
{
    move(x, &x->request, &x->client->stream, &x->link->stream, true);
}

void tunnel_link_readable(struct exchange *x)
{
    move(x, &x->response, &x->link->stream, &x->client->stream, true);
}

void tunnel_client_writable(struct exchange *x)
{
    flushed(x, &x->response, &x->link->stream, &x->client->stream);
}

void tunnel_link_writable(struct exchange *x)
{
    flushed(x, &x->request, &x->client->stream, &x->link->stream);
}
