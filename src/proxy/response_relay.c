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
#include "decision/header_families.h"
#include "proxy/exchange_internal.h"

enum {
    INTERIM_MAX = 16,         /* 1xx responses per request */
    HEAD_ADDED_MAX = 4 * 1024 /* bytes of fields that weir adds to a response header */
};

static void response_moved(struct exchange *x, enum relay moved, const char *why);

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

static void final_head(struct exchange *x, const struct response_head *head,
                       const struct framing *framing)
{
    struct worker *w = x->worker;
    char line_bytes[HEAD_ADDED_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    const char *why = NULL;

    upstream_note_answer(x->link, head->status);
    enum retry_cause retry = retry_cause_of_status(head->status);
    if (retry != RETRY_NONE && exchange_try_again(x, retry, CAUSE_NONE))
        return;
    x->response_us = clock_cached_us() - x->sent_us;
    histogram_add(&w->stats.upstream_latency, x->response_us);
    x->status = head->status;
    if (x->grpc)
        x->grpc_status = grpc_status_of(&head->fields);
    int64_t cost = rule_stated_cost(x->rule, &head->fields);
    x->cost = cost >= 0 ? cost : x->cost;
    limiter_adjust(&x->decision_request, head->status, cost);
    x->answer = ANSWER_STARTED;
    exchange_forget_request(x);

    struct response response;
    choose_fields(x, head, framing, &lines, &response);
    enum relay moved = relay_response_head(x, &response, &why);
    if (moved == RELAY_BAD ||
        moved == RELAY_TOO_LARGE) { /* nothing was sent: weir can still respond with 502 */
        x->answer = x->interim ? ANSWER_INTERIM : ANSWER_NONE;
        x->status = 0;
        x->response.bytes = 0;
        x->response.ended = false;
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
static void switch_protocols(struct exchange *x, const struct response_head *head)
{
    struct downstream *d = x->downstream;
    const char *fault = x->link->ops->begin_tunnel ? switch_fault(x, &head->fields)
                                                   : "a 101 in a protocol that cannot switch";
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
    exchange_forget_request(x);
    enum downstream_sent sent = d->ops->send_head(d, &response, NULL, 0, false);
    if (sent == DOWNSTREAM_GONE || sent == DOWNSTREAM_TOO_LARGE)
        exchange_fail(x, CAUSE_CLIENT_GONE, NULL);
    else
        tunnel_begin(x);
}

/* Forwards an interim response. False: the exchange has ended. */
static bool interim_head(struct exchange *x, const struct response_head *head)
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
    exchange_watch(x, false, true);
    return true;
}

void response_read_head(struct exchange *x)
{
    struct response_head *head = &x->worker->response;
    struct framing framing;
    const char *why = NULL;
    enum link_head read = x->link->ops->read_head(x->link, true, head, &framing, &why);

    while (read == LINK_HEAD && head->status < 200 && head->status != 101) {
        if (!interim_head(x, head))
            return;
        if (x->downstream->pending) { /* resumed by exchange_writable() */
            x->link->ops->want_read(x->link, false);
            return;
        }
        read = x->link->ops->read_head(x->link, false, head, &framing, &why);
    }
    switch (read) {
    case LINK_AGAIN: break;
    case LINK_HEAD:
        if (head->status == 101)
            switch_protocols(x, head);
        else
            final_head(x, head, &framing);
        break;
    case LINK_ENDED: exchange_link_died(x); break;
    case LINK_BAD: exchange_fail(x, CAUSE_UPSTREAM_BAD, why); break;
    case LINK_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}

void response_relay(struct exchange *x)
{
    const char *why = NULL;
    enum relay moved = relay_response(x, &why);
    response_moved(x, moved, why);
}

/* If the server responded before it received the whole request, weir continues to send the
 * request while the server reads it. A client that still waits for 100 sends nothing more. */
static bool request_goes_on(struct exchange *x)
{
    struct link *link = x->link;

    if (x->link_broken || exchange_awaits_continue(x) || (x->request.ended && !link->pending) ||
        !link->ops->takes_rest(link))
        return false;
    exchange_watch(x, false, true);
    return true;
}

static void response_ended(struct exchange *x)
{
    if (request_goes_on(x))
        return;
    x->link->ops->release(x->link, x->request.ended && !x->link_broken);
    x->link = NULL;
    if (!exchange_end_if_done(x))
        exchange_watch(x, false, false);
}

static void response_moved(struct exchange *x, enum relay moved, const char *why)
{
    switch (moved) {
    case RELAY_SOURCE:
        x->link->ops->want_read(x->link, true);
        exchange_watch(x, false, true);
        break;
    case RELAY_SINK:
        x->link->ops->want_read(x->link, false);
        exchange_watch(x, false, true);
        break;
    case RELAY_ENDED: response_ended(x); break;
    case RELAY_CLOSED: exchange_fail(x, CAUSE_UPSTREAM_CLOSED, x->link->ops->fault(x->link)); break;
    case RELAY_BAD:
    case RELAY_TOO_LARGE: exchange_fail(x, CAUSE_UPSTREAM_BAD, why); break;
    case RELAY_GONE: exchange_fail(x, CAUSE_CLIENT_GONE, NULL); break;
    case RELAY_NO_MEMORY: exchange_fail(x, CAUSE_NO_MEMORY, NULL); break;
    }
}
