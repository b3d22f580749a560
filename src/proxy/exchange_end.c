/* exchange_end.c - the exits of an exchange. All of them lead to exchange_finish().
 *
 *   exchange_fail()   a failure: weir's response, or a cut-off message if a response has started
 *   exchange_reply()  weir's own response: a rejection, a failure, or an OPTIONS addressed to weir
 *   exchange_cut()    ends the exchange immediately, in any phase */
#include "proxy/exchange_internal.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/row_histogram.h"
#include "proxy/access_log.h"
#include "proxy/reply.h"

static void drop_link(struct exchange *x)
{
    if (x->link)
        x->link->ops->release(x->link, false);
    x->link = NULL;
}

/* Failures of the upstream or of weir: a bounded number of lines per cause and worker, with the
 * number of suppressed ones. Client errors: at level debug only. */
void exchange_log(const struct exchange *x, enum cause cause, const char *why)
{
    bool client_fault = cause_table[cause].fault == FAULT_CLIENT;
    uint64_t suppressed = 0;
    struct address address;
    char peer[ADDRESS_TEXT_MAX], more[64] = "";

    if (client_fault
            ? log_threshold < LEVEL_DEBUG
            : !log_throttle_allows(&x->worker->log_throttle[cause], clock_us(), &suppressed))
        return;
    if (suppressed)
        snprintf(more, sizeof more, " (and %llu similar ones not logged)",
                 (unsigned long long)suppressed);
    log_write(client_fault ? LEVEL_DEBUG : LEVEL_WARN, "request %.*s of %.*s%s%s: %s%s%s%s%s%s",
              (int)x->id_size, x->request_id, (int)x->identity_size, x->identity,
              x->identity_size ? " at " : "",
              address_format(address_of_peer(&x->downstream->origin->peer, &address), peer),
              cause_table[cause].text, why ? ": " : "", why ? why : "", x->link ? "; server " : "",
              x->link ? link_server_text(x->link) : "", more);
}

bool exchange_end_if_done(struct exchange *x)
{
    bool goes_on = x->link && !x->link_broken && (!x->request.ended || x->link->pending);

    if (goes_on || x->downstream->pending)
        return false;
    exchange_finish(x, exchange_after_answer(x));
    return true;
}

/* The response is complete, so the failure affects only the rest of the request: weir stops
 * forwarding it, and the client still gets the response. False: the client cannot get the
 * response. */
static bool fail_after_answer(struct exchange *x, enum cause cause, const char *why)
{
    bool delivered = !x->downstream->pending;
    bool of_client = cause_table[cause].fault == FAULT_CLIENT && cause != CAUSE_CLIENT_GONE;

    if (!delivered && (cause == CAUSE_CLIENT_GONE || cause == CAUSE_CLIENT_STALLED ||
                       cause == CAUSE_EXCHANGE_TIMEOUT || cause == CAUSE_NO_MEMORY))
        return false;
    if (of_client || cause == CAUSE_EXCHANGE_TIMEOUT) {
        x->cause = cause;
        x->why = why;
        exchange_log(x, cause, why);
    }
    drop_link(x);
    if (delivered && cause == CAUSE_CLIENT_GONE)
        exchange_finish(x, DOWNSTREAM_ABORTED);
    else if (!exchange_end_if_done(x)) {
        x->downstream->ops->want_body(x->downstream, x->cause == CAUSE_NONE);
        exchange_watch(x, false, false);
    }
    return true;
}

void exchange_fail(struct exchange *x, enum cause cause, const char *why)
{
    if (exchange_is_answered(x) && fail_after_answer(x, cause, why))
        return;
    x->cause = cause;
    x->why = why;
    exchange_log(x, cause, why);
    if (x->link && cause_table[cause].fault == FAULT_SERVER)
        upstream_note_failure(x->link, cause_table[cause].text);
    drop_link(x);
    if (x->answer >= ANSWER_STARTED || cause_table[cause].status == 0)
        exchange_finish(x, DOWNSTREAM_ABORTED);
    else
        exchange_reply(x, cause_table[cause].status, why);
}

void exchange_reply(struct exchange *x, uint16_t status, const char *why)
{
    exchange_enter(x, PHASE_REPLY);
    x->status = status;
    switch (reply_send(x, why)) {
    case DOWNSTREAM_SENT: exchange_finish(x, exchange_after_answer(x)); break;
    case DOWNSTREAM_PENDING: exchange_watch(x, true, false); break;
    case DOWNSTREAM_GONE:
    case DOWNSTREAM_TOO_LARGE:
        if (x->cause == CAUSE_NONE)
            x->cause = CAUSE_CLIENT_GONE;
        exchange_finish(x, DOWNSTREAM_ABORTED);
    }
}

void exchange_cut(struct exchange *x, enum cause cause)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->cause = cause;
    exchange_finish(x, DOWNSTREAM_ABORTED);
}

static void count(const struct exchange *x, uint64_t duration_us)
{
    struct worker_stats *s = &x->worker->stats;

    counter_subtract(&s->requests_active, 1);
    counter_add(&s->responses[x->status >= 100 && x->status < 600 ? x->status / 100 : 0], 1);
    counter_add(&s->bytes_from_clients, x->request.bytes);
    counter_add(&s->bytes_to_clients, x->response.bytes + x->reply_bytes);
    if (x->cause != CAUSE_NONE)
        counter_add(&s->errors[x->cause], 1);
    histogram_add(&s->request_duration, duration_us);
    if (x->rule)
        row_histogram_add(counter_table_row(&s->rule_durations, x->rule->row), duration_us);
}

/* Counts among the top clients: the cost of an admitted request, which is final now, and the
 * rejection of a blocked address, which no limit decided. */
static void count_client(const struct exchange *x)
{
    struct top_clients *top = &x->worker->top_clients;
    struct slice client = {x->identity, x->identity_size};

    if (x->cause == CAUSE_ADDRESS_BLOCKED || x->cause == CAUSE_CLIENT_BLOCKED)
        top_keys_add(top->by[TOP_BY_LIMITED], clock_cached_us(), client, 1);
    else if (x->cost > 1 && x->decided && decision_admits(&x->decision_request.decision))
        top_keys_add(top->by[TOP_BY_COST], clock_cached_us(), client, (uint64_t)x->cost - 1);
}

/* If the request failed after the server's response, the rest of it is refused. */
enum downstream_end exchange_after_answer(const struct exchange *x)
{
    return exchange_is_answered(x) && x->cause != CAUSE_NONE ? DOWNSTREAM_REFUSED
                                                             : DOWNSTREAM_COMPLETE;
}

/* Refunds the charge if nothing was sent to the server and the cause allows it, or if the request
 * left a queue early, which frees its slot. Otherwise keeps the charge. */
static void adjust(struct exchange *x)
{
    limiter_leave(&x->decision_request);
    if (x->sent_us == 0 && (x->left_queue || cause_table[x->cause].refund))
        limiter_refund(&x->decision_request);
    else
        limiter_keep_charge(&x->decision_request);
}

/* The only end of an exchange. */
void exchange_finish(struct exchange *x, enum downstream_end how)
{
    struct worker *w = x->worker;
    struct downstream *downstream = x->downstream;
    uint64_t duration = clock_cached_us() - x->started_us;

    exchange_enter(x, PHASE_DONE);
    deadline_cancel(&x->whole);
    deadline_cancel(&x->client_deadline);
    if (x->grpc)
        timer_cancel(&w->calls, &x->call);
    if (x->acts_later)
        TAILQ_REMOVE(&w->decided, x, decided_link);
    if (x->decision_request.op)
        limiter_abandon(&x->decision_request);
    if (x->waiting != NULL)
        quota_wait_cancel(x);
    adjust(x);
    drop_link(x);
    count(x, duration);
    count_client(x);
    if (x->log)
        access_log_end(x, duration);
    exchange_forget_request(x);
    iobuf_put(&w->buffers, &x->log);
    x->generation->exchanges--;
    MAGIC_WIPE(x);
    x->next_free = w->free_exchanges;
    w->free_exchanges = x;
    downstream->exchange = NULL;
    downstream->ops->end(downstream, how);
}
