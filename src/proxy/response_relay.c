/* response_relay.c - the response direction of an exchange: interim and final headers, then
 * content.
 *
 *   receive_head -> whole_head -+-> 1xx  interim_head: forwarded, then the next header
 *                               +-> 101  switch_protocols: starts a tunnel
 *                               `-> else final_head: rewritten, then the content
 * weir adds the rate-limit fields to a final header. */
#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "proxy/exchange_internal.h"
#include "proxy/tunnel.h"

enum {
    INTERIM_MAX = 16,         /* 1xx responses per request */
    HEAD_ADDED_MAX = 4 * 1024 /* bytes of fields that weir adds to a response header */
};

static void response_moved(struct exchange *x, enum relay moved, const char *why);

/* Received bytes of a response header. */
struct head_bytes {
    struct slice all;
    bool kept; /* in link->stream.in, else in worker->receive */
};

/* Reads once from the server. False: no bytes yet, or the exchange has ended. */
static bool receive_head(struct exchange *x, struct head_bytes *got)
{
    struct stream *s = &x->link->stream;
    ssize_t n;

    got->kept = s->in != NULL;
    if (x->link->unread) {
        x->link->unread = false;
        s->drained = false; /* more may have arrived since that read */
        assert(s->in);      /* `unread` implies bytes in s->in */
        got->all = iobuf_slice(s->in);
        return true;
    }
    if (got->kept)
        n = stream_read_in(s, &x->worker->buffers, IOBUF_LARGE);
    else
        n = stream_read(s, x->worker->receive, IOBUF_READ_MAX);
    if (n == STREAM_AGAIN)
        return false;
    if (n <= 0) {
        if (got->kept && errno == ENOBUFS && n != 0)
            exchange_fail(x, CAUSE_UPSTREAM_BAD,
                          "the response header is larger than size_limits.response_header");
        else
            exchange_link_died(x);
        return false;
    }
    got->all = got->kept ? iobuf_slice(s->in) : (struct slice){x->worker->receive, (size_t)n};
    return true;
}

/* Parses a header. True: the first `*size` bytes of got->all are a valid header. False: it is
 * incomplete and kept for later, or the exchange has ended. */
static bool whole_head(struct exchange *x, struct head_bytes *got, size_t *size,
                       struct response_head *head)
{
    struct stream *s = &x->link->stream;
    struct refusal refusal;
    uint64_t max = x->policy->size_limits.response_header;
    enum scan scan = response_head_read(got->all, &x->link->scanned, size, head, &refusal);

    if (scan == SCAN_PARTIAL ? got->all.n >= max : *size > max)
        exchange_fail(x, CAUSE_UPSTREAM_BAD,
                      "the response header is larger than size_limits.response_header");
    else if (scan == SCAN_REFUSED)
        exchange_fail(x, CAUSE_UPSTREAM_BAD, refusal.why);
    else if (scan == SCAN_WHOLE)
        return true;
    else if (!got->kept) {
        if (!s->in && !(s->in = iobuf_get(&x->worker->buffers, IOBUF_LARGE)))
            exchange_fail(x, CAUSE_NO_MEMORY, NULL);
        else
            iobuf_append(s->in, got->all);
    }
    return false;
}

/* Chooses the fields of the response. `lines` receives those that weir adds. */
static void choose_fields(struct exchange *x, const struct response_head *head,
                          const struct framing *framing, struct text *lines,
                          struct response *response)
{
    bool limited = x->rule->limit_count > 0;

    response_forward(response, lines, head, framing, limited, worker_date(x->worker));
    if (limited)
        decision_fields_write(lines, &x->decision_request.decision, x->policy->headers,
                              clock_cached_wall_us());
    response_add_request_id(lines, head, (struct slice){x->request_id, x->id_size});
    response->lines = text_slice(lines);
}

/* Removes the header's bytes. Returns the unread bytes after it, which are the first piece of
 * content. */
static struct unread take_head(struct exchange *x, const struct head_bytes *got, size_t size)
{
    x->link->scanned = 0;
    if (got->kept) {
        stream_take(&x->link->stream, &x->worker->buffers, size);
        return (struct unread){NULL, 0};
    }
    return (struct unread){x->worker->receive + size, got->all.n - size};
}

static void final_head(struct exchange *x, const struct head_bytes *got, size_t size,
                       struct response_head *head)
{
    struct worker *w = x->worker;
    struct framing framing;
    struct refusal refusal;
    char line_bytes[HEAD_ADDED_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    const char *why = NULL;

    if (!response_framing(head, x->method, &framing, &refusal)) {
        exchange_fail(x, CAUSE_UPSTREAM_BAD, refusal.why);
        return;
    }
    upstream_note_answer(x->link, head->status);
    enum retry_cause retry = retry_cause_of_status(head->status);
    if (unlikely(retry != RETRY_NONE) && exchange_try_again(x, retry, CAUSE_NONE))
        return;
    x->response_us = clock_cached_us() - x->sent_us;
    histogram_add(&w->stats.upstream_latency, x->response_us);
    x->status = head->status;
    int64_t cost = rule_cost_learnt(x->rule, &head->fields);
    x->cost = cost >= 0 ? cost : x->cost;
    limiter_adjust(&x->decision_request, head->status, cost);
    x->link_keep_alive = head->keep_alive && framing.kind != FRAMING_UNTIL_CLOSE;
    x->answer = ANSWER_STARTED;
    iobuf_put(&w->buffers, &x->head);
    body_reader_begin(&x->response, &framing);

    struct response response;
    choose_fields(x, head, &framing, &lines, &response);
    /* Bytes after the message stay in link->stream.in; such a connection is not reused. */
    enum relay moved = relay_response_head(x, &response, take_head(x, got, size), &why);
    if (moved == RELAY_BAD ||
        moved == RELAY_TOO_LARGE) { /* nothing was sent: weir can still respond with 502 */
        x->answer = x->interim ? ANSWER_INTERIM : ANSWER_NONE;
        x->status = 0;
        x->response = (struct body_reader){0};
    }
    if (moved == RELAY_TOO_LARGE)
        why = "the response header is larger than weir can forward";
    response_moved(x, moved, why);
}

static bool was_offered(const struct exchange *x, struct slice protocol)
{
    struct slice rest = {x->upgrade, x->upgrade_size}, offered;

    while (slice_next_element(&rest, &offered))
        if (slice_equal_nocase(protocol, offered))
            return true;
    return false;
}

/* Checks a 101 (RFC 9110 section 7.8). It needs exactly one Upgrade field, which Connection
 * names. The field lists at least one protocol, and the request offered all of them. Returns
 * NULL if valid, else an error text. */
static const char *switch_fault(const struct exchange *x, const struct fields *fields)
{
    const struct field *upgrade = fields_find(fields, FIELD_UPGRADE);
    struct slice rest, protocol;
    bool any = false;

    if (x->upgrade_size == 0)
        return "the server switches protocols without a request for it";
    if (!upgrade || fields_repeat(fields, FIELD_UPGRADE))
        return "a 101 without exactly one Upgrade field";
    if (!connection_names(fields, SLICE("upgrade")))
        return "a 101 whose Connection field does not name Upgrade";
    for (rest = upgrade->value; slice_next_element(&rest, &protocol); any = true)
        if (!was_offered(x, protocol))
            return "the server switches to a protocol that the client did not offer";
    return any ? NULL : "a 101 with an empty Upgrade field";
}

/* Forwards a 101 to an offered protocol and starts the tunnel (RFC 9110 section 7.8). */
static void switch_protocols(struct exchange *x, const struct head_bytes *got, size_t size,
                             struct response_head *head)
{
    struct downstream *d = x->downstream;
    const char *fault = switch_fault(x, &head->fields);
    char line_bytes[HEAD_ADDED_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    static const struct framing none = {.kind = FRAMING_NONE};

    if (fault) {
        exchange_fail(x, CAUSE_UPSTREAM_BAD, fault);
        return;
    }
    struct response response;
    choose_fields(x, head, &none, &lines, &response);
    response.upgrade = fields_find(&head->fields, FIELD_UPGRADE)->value;
    upstream_note_answer(x->link, 101);
    x->status = 101;
    x->answer = ANSWER_STARTED;
    exchange_enter(x, PHASE_TUNNEL);
    deadline_cancel(&x->whole); /* a tunnel has only an idle timeout */
    iobuf_put(&x->worker->buffers, &x->head);
    enum downstream_sent sent = d->ops->send_head(d, &response, NULL, 0, false);
    if (sent == DOWNSTREAM_GONE || sent == DOWNSTREAM_TOO_LARGE)
        exchange_fail(x, CAUSE_CLIENT_GONE, NULL);
    else
        tunnel_begin(x, take_head(x, got, size));
}

/* Forwards an interim response. False: the exchange has ended. */
static bool interim_head(struct exchange *x, const struct head_bytes *got, size_t size,
                         struct response_head *head)
{
    struct downstream *d = x->downstream;
    struct response response = response_interim(head);

    x->continued |= head->status == 100;
    x->answer = ANSWER_INTERIM;
    if (++x->interim > INTERIM_MAX) {
        exchange_fail(x, CAUSE_UPSTREAM_BAD, "too many interim responses");
        return false;
    }
    enum downstream_sent sent = d->ops->send_interim(d, &response);
    if (sent == DOWNSTREAM_GONE || sent == DOWNSTREAM_TOO_LARGE) {
        exchange_fail(x, CAUSE_CLIENT_GONE, NULL);
        return false;
    }
    struct unread unread = take_head(x, got, size);
    if (!stream_keep(&x->link->stream, &x->worker->buffers,
                     (struct slice){unread.bytes, unread.size})) {
        exchange_fail(x, CAUSE_NO_MEMORY, NULL);
        return false;
    }
    exchange_watch(x, false, true);
    return true;
}

void response_read_head(struct exchange *x)
{
    struct head_bytes got;
    struct response_head *head = &x->worker->response;
    size_t size;

    if (!receive_head(x, &got))
        return;
    while (whole_head(x, &got, &size, head)) {
        if (head->status >= 200) {
            final_head(x, &got, size, head);
            return;
        }
        if (head->status == 101) {
            switch_protocols(x, &got, size, head);
            return;
        }
        if (!interim_head(x, &got, size, head) || !iobuf_held(x->link->stream.in))
            return;
        if (x->downstream->pending) { /* resumed by exchange_writable() */
            x->link->unread = true;
            stream_want_read(&x->link->stream, false);
            return;
        }
        got = (struct head_bytes){iobuf_slice(x->link->stream.in), true};
    }
}

void response_after(struct exchange *x)
{
    ssize_t n = stream_read(&x->link->stream, x->worker->receive, IOBUF_READ_MAX);

    if (n == 0)
        stream_want_read(&x->link->stream, false);
    else if (n != STREAM_AGAIN)
        exchange_fail(x, CAUSE_UPSTREAM_CLOSED, NULL);
}

void response_relay(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = relay_response(x, &why);
    response_moved(x, moved, why);
}

/* If the server responded before it received the whole request, weir continues to send the
 * request while the server reads it. An end of stream from the server does not stop this: the
 * server may have closed only its sending side. The upstream connection is not reused. A client
 * that still waits for 100 sends nothing more. */
static bool request_goes_on(struct exchange *x)
{
    struct stream *server = &x->link->stream;

    if (x->link_broken || exchange_awaits_continue(x) || stream_holds_input(server) ||
        (x->request.ended && !stream_holds_output(server)))
        return false;
    x->link_keep_alive = false;
    stream_want_read(server, !server->eof);
    exchange_watch(x, false, true);
    return true;
}

static void response_ended(struct exchange *x)
{
    if (request_goes_on(x))
        return;
    upstream_release(x->link, x->link_keep_alive && x->request.ended && !x->link_broken);
    x->link = NULL;
    if (!exchange_end_if_done(x))
        exchange_watch(x, false, false);
}

static void response_moved(struct exchange *x, enum relay moved, const char *why)
{
    switch (moved) {
    case RELAY_SOURCE:
        stream_want_read(&x->link->stream, true);
        exchange_watch(x, false, true);
        break;
    case RELAY_SINK:
        stream_want_read(&x->link->stream, false);
        exchange_watch(x, false, true);
        break;
    case RELAY_ENDED: response_ended(x); break;
    case RELAY_CLOSED: exchange_fail(x, CAUSE_UPSTREAM_CLOSED, NULL); break;
    case RELAY_BAD:
    case RELAY_TOO_LARGE: exchange_fail(x, CAUSE_UPSTREAM_BAD, why); break;
    case RELAY_GONE: exchange_fail(x, CAUSE_CLIENT_GONE, NULL); break;
    case RELAY_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}
