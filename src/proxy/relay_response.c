/* relay_response.c - the response direction of RELAY: interim and final headers, then content.
 *
 *   read_heads -+-> 1xx  interim_head: forwarded, then the next header
 *               +-> 101  switch_protocols: starts a tunnel
 *               `-> else final_head: rewritten, then the content
 * weir adds the rate-limit fields to a final header. */
#include <stdio.h>

#include "base/clock.h"
#include "limit/header_families.h"
#include "proxy/exchange.h"
#include "proxy/relay.h"
#include "proxy/relay_halves.h"
#include "proxy/response_cost.h"
#include "proxy/retry.h"
#include "proxy/step.h"
#include "proxy/upgrade.h"

enum {
    INTERIM_MAX = 16,         /* 1xx responses per request */
    HEAD_ADDED_MAX = 4 * 1024 /* bytes of fields that weir adds to a response header */
};

static enum step piece_sent_to_client(struct exchange *x, enum relay moved, const char *why);

/* Chooses the fields of the response. `lines` receives those that weir adds. */
static inline void choose_fields(struct exchange *x, const struct response_head *head,
                                 const struct framing *framing, struct text *lines,
                                 struct response *response)
{
    response_forward(response, lines, head, framing, worker_date(x->worker));
    if (x->route.rule->limit_count > 0)
        response->dropped |= decision_fields_write(
            lines, &x->decision_request.decision, x->policy->headers, clock_cached_wall_us(), NULL);
    response_add_request_id(lines, head, (struct slice){x->request_id, x->id_size});
    response->lines = text_slice(lines);
}

static void note_status(struct exchange *x, uint16_t status)
{
    char why[32];

    if (!upstream_is_failure(x->upstream.link, status)) {
        upstream_note_answer(x->upstream.link);
        return;
    }
    snprintf(why, sizeof why, "status %u", (unsigned)status);
    exchange_note_failure(x, why);
}

/* A server has begun its final response. */
static void note_response(struct exchange *x, uint16_t status)
{
    x->record.response_us = clock_cached_us() - x->upstream.sent_us;
    server_stats_response(x->upstream.link, status, x->record.response_us);
}

/* A request whose response is sent is not decided again. Without a charge and a permit, it does not
 * need the limiter any more. */
static void note_without_limiter(struct exchange *x)
{
    x->without_limiter = !x->decision_request.charge && !x->decision_request.held_count;
    x->generation->without_limiter += x->without_limiter;
}

/* A 408 with which a server closes a reused connection may not respond to this request: the server
 * waited for one in vain (RFC 9110 section 15.5.9). */
static bool is_idle_timeout(const struct exchange *x, const struct response_head *head)
{
    return head->status == 408 && !head->keep_alive && x->upstream.link->reused;
}

static enum step final_head(struct exchange *x, const struct response_head *head,
                            const struct framing *framing)
{
    struct worker *w = x->worker;
    char line_bytes[HEAD_ADDED_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    const char *why = NULL;

    if (is_idle_timeout(x, head) && retry_start(x, RETRY_IDLE_CLOSED, CAUSE_NONE))
        return STEP_NEXT;
    note_status(x, head->status);
    note_response(x, head->status);
    enum cause cause = cause_of_status(head->status);
    if (cause != CAUSE_NONE && retry_start(x, cause_table[cause].retry, cause))
        return STEP_NEXT;
    histogram_add(&w->stats.upstream_latency, x->record.response_us);
    x->record.status = head->status;
    if (x->grpc)
        x->record.grpc_status = grpc_status_of(&head->fields);
    x->response.progress = MESSAGE_CONTENT;
    if (x->route.rule->adjusts)
        response_cost_begin(x, head, framing);
    exchange_forget_request(x);

    struct response response;
    choose_fields(x, head, framing, &lines, &response);
    enum relay moved = relay_response_head(x, &response, &why);
    if (x->route.rule->adjusts && x->response.progress != MESSAGE_HEAD)
        response_cost_forwarded(x);
    note_without_limiter(x);
    if (moved == RELAY_TOO_LARGE)
        why = "the response header is larger than weir can forward";
    return piece_sent_to_client(x, moved, why);
}

/* Forwards a 101 to an offered protocol and starts the tunnel (RFC 9110 section 7.8). */
static enum step switch_protocols(struct exchange *x, const struct response_head *head)
{
    struct downstream *d = x->downstream;
    const char *fault = x->upstream.link->ops->begin_tunnel
                            ? upgrade_fault(x, &head->fields)
                            : "a 101 in a protocol that cannot switch";
    char line_bytes[HEAD_ADDED_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    static const struct framing none = {.kind = FRAMING_NONE};

    if (fault)
        return step_fail(x, CAUSE_UPSTREAM_BAD, fault);
    struct response response;
    choose_fields(x, head, &none, &lines, &response);
    response.upgrade = fields_find(&head->fields, FIELD_UPGRADE)->value;
    upstream_note_answer(x->upstream.link);
    note_response(x, x->record.status = 101);
    x->response.progress = MESSAGE_CONTENT;
    if (x->route.rule->adjusts)
        response_cost_begin(x, head, &none);
    deadline_cancel(&x->whole); /* a tunnel has only an idle timeout */
    exchange_forget_request(x);
    enum downstream_sent sent = d->ops->send_head(d, &response, NULL, 0, false);
    if (x->route.rule->adjusts)
        response_cost_forwarded(x);
    if (sent == DOWNSTREAM_GONE || sent == DOWNSTREAM_TOO_LARGE)
        return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    note_without_limiter(x);
    return step_enter(x, PHASE_TUNNEL);
}

/* Forwards an interim response. */
static enum step interim_head(struct exchange *x, const struct response_head *head)
{
    struct downstream *d = x->downstream;
    struct response response = response_interim(head);

    if (head->status == 100 && x->request.continuation == CONTINUE_EXPECTED)
        x->request.continuation = CONTINUE_SENT;
    if (++x->response.interim > INTERIM_MAX)
        return step_fail(x, CAUSE_UPSTREAM_BAD, "too many interim responses");
    enum downstream_sent sent = d->ops->send_interim(d, &response);
    if (sent == DOWNSTREAM_GONE || sent == DOWNSTREAM_TOO_LARGE)
        return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    exchange_watch(x, false, true);
    return STEP_WAIT;
}

/* The server closed the connection before its response: retries if that is safe, else fails.
 *
 * If the server states that it has not processed the request, any request is sent again. If it
 * closed an idle pooled connection before it received the request, the server has
 * not failed: the request is sent again on a new connection. Otherwise the server has failed,
 * and weir tries another server first. */
static enum step link_died(struct exchange *x)
{
    enum cause cause = CAUSE_UPSTREAM_CLOSED;
    static const enum retry_cause retries[] = {[LINK_LOST] = RETRY_NONE,
                                               [LINK_CLOSED_IDLE] = RETRY_IDLE_CLOSED,
                                               [LINK_GOING_AWAY] = RETRY_GOING_AWAY,
                                               [LINK_REFUSED] = RETRY_REFUSED,
                                               [LINK_OBJECTED] = RETRY_NONE,
                                               [LINK_HEAD_TOO_LARGE] = RETRY_NONE,
                                               [LINK_NOT_SENT] = RETRY_NONE};
    enum link_loss loss = x->upstream.link->ops->loss(x->upstream.link);

    if (loss == LINK_HEAD_TOO_LARGE)
        return step_fail(x, CAUSE_HEAD_TOO_LARGE, "see the server's SETTINGS_MAX_HEADER_LIST_SIZE");
    if (loss == LINK_NOT_SENT)
        return step_fail(x, CAUSE_NO_MEMORY, NULL);
    if (loss == LINK_OBJECTED)
        return step_fail(x, CAUSE_REQUEST_REFUSED, x->upstream.link->ops->fault(x->upstream.link));
    if (retry_start(x, retries[loss], CAUSE_NONE))
        return STEP_NEXT;
    exchange_note_error(x, cause);
    if (loss != LINK_REFUSED && (retry_start(x, cause_table[cause].retry, cause) ||
                                 retry_start(x, RETRY_IDLE_CLOSED, cause)))
        return STEP_NEXT;
    return step_fail(x, cause, x->upstream.link->ops->fault(x->upstream.link));
}

static enum step read_heads(struct exchange *x)
{
    struct response_head *head = &x->worker->response;
    struct framing framing;
    const char *why = NULL;
    enum link_head read =
        x->upstream.link->ops->read_head(x->upstream.link, true, head, &framing, &why);

    while (read == LINK_HEAD && head->status < 200 && head->status != 101) {
        if (interim_head(x, head) == STEP_FAIL)
            return STEP_FAIL;
        if (x->downstream->pending) { /* resumed by response_writable() */
            x->upstream.link->ops->want_read(x->upstream.link, false);
            return STEP_WAIT;
        }
        read = x->upstream.link->ops->read_head(x->upstream.link, false, head, &framing, &why);
    }
    switch (read) {
    case LINK_AGAIN: break;
    case LINK_HEAD:
        return head->status == 101 ? switch_protocols(x, head) : final_head(x, head, &framing);
    case LINK_ENDED: return link_died(x);
    case LINK_BAD: return step_fail(x, CAUSE_UPSTREAM_BAD, why);
    case LINK_NO_MEMORY: return step_fail(x, CAUSE_NO_MEMORY, NULL);
    }
    return STEP_WAIT;
}

/* If the server responded before it received the whole request, weir continues to send the
 * request while the server reads it. A client that still waits for 100 sends nothing more. */
static bool request_goes_on(const struct exchange *x)
{
    struct link *link = x->upstream.link;

    return !x->upstream.broken &&
           (x->request.progress != MESSAGE_END || relay_has_kept(x) || link->pending) &&
           !exchange_awaits_continue(x) && link->ops->takes_rest(link);
}

static void note_last_byte(struct exchange *x)
{
    x->record.last_us = clock_cached_us() - x->upstream.sent_us;
    histogram_add(&x->worker->stats.upstream_total, x->record.last_us);
    server_stats_last(x->upstream.link, x->record.last_us);
}

static enum step response_ended(struct exchange *x)
{
    bool goes_on = request_goes_on(x);

    note_last_byte(x);
    if (!goes_on) {
        bool complete = x->request.progress == MESSAGE_END && !relay_has_kept(x);
        link_release(x->upstream.link, complete && !x->upstream.broken);
        x->upstream.link = NULL;
        if (exchange_is_over(x))
            return step_end(x, exchange_end_of_answer(x));
    }
    exchange_watch(x, false, goes_on);
    return STEP_WAIT;
}

/* The server has ended its response before all of it arrived. */
static enum step cut_off(struct exchange *x)
{
    const struct link *link = x->upstream.link;
    bool objected = link->ops->loss(link) == LINK_OBJECTED;

    return step_fail(x, objected ? CAUSE_REQUEST_REFUSED : CAUSE_UPSTREAM_CLOSED,
                     link->ops->fault(link));
}

static bool buffers_are_many(const struct exchange *x)
{
    return x->worker->buffers.memory.level != MEMORY_LOW;
}

/* The client does not take the response now. Resumed by response_writable(). */
static void pause_server(struct exchange *x)
{
    if (buffers_are_many(x))
        counter_add(&x->worker->stats.responses_paused, 1);
    x->upstream.link->ops->want_read(x->upstream.link, false);
}

/* Handles the result of sending a piece to the client. */
static enum step piece_sent_to_client(struct exchange *x, enum relay moved, const char *why)
{
    switch (moved) {
    case RELAY_SOURCE:
        x->upstream.link->ops->want_read(x->upstream.link, true);
        exchange_watch(x, false, true);
        break;
    case RELAY_SINK:
        pause_server(x);
        exchange_watch(x, false, true);
        break;
    case RELAY_ENDED: return response_ended(x);
    case RELAY_CLOSED: return cut_off(x);
    case RELAY_BAD:
    case RELAY_TOO_LARGE: return step_fail(x, CAUSE_UPSTREAM_BAD, why);
    case RELAY_GONE: return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    case RELAY_NO_MEMORY: return step_fail(x, CAUSE_NO_MEMORY, NULL);
    }
    return STEP_WAIT;
}

static enum step move_piece(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = relay_response(x, &why);

    return piece_sent_to_client(x, moved, why);
}

/* If the process has many buffers, content stays with the server unless the client takes it: no
 * buffer is then needed. Headers do not wait, since a client may open its window only after them.
 * The client alone can resume the response, so none waits for another one. */
static bool must_wait_for_client(struct exchange *x)
{
    struct downstream *d = x->downstream;

    if (!d->pending && exchange_is_answering(x) && buffers_are_many(x) && !d->ops->takes(d))
        exchange_watch(x, true, false);
    return d->pending;
}

enum step response_readable(struct exchange *x)
{
    if (exchange_is_answered(x))
        return x->upstream.link->ops->takes_rest(x->upstream.link)
                   ? STEP_WAIT
                   : step_fail(x, CAUSE_UPSTREAM_CLOSED, NULL);
    if (!must_wait_for_client(x))
        return exchange_is_answering(x) ? move_piece(x) : read_heads(x);
    pause_server(x);
    return STEP_WAIT;
}

enum step response_writable(struct exchange *x)
{
    bool pending = x->downstream->pending;

    if (!pending && (!x->upstream.link || exchange_is_answered(x)) && exchange_is_over(x))
        return step_end(x, exchange_end_of_answer(x));
    if (!pending && x->upstream.link && !exchange_is_answered(x))
        x->upstream.link->ops->want_read(x->upstream.link, true);
    exchange_watch(x, true, !pending && x->upstream.link && !exchange_is_answered(x));
    return STEP_WAIT;
}
