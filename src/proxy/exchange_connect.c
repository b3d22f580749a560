/* exchange_connect.c - the phase CONNECT: takes an upstream connection, and retries after a failure
 * (retry.h says when). */
#include "base/clock.h"
#include "proxy/exchange_internal.h"

/* The cause of an exchange's failure if there is no upstream connection. */
static const enum cause cause_of[LINK_FAILURES] = {
    [LINK_FAILED_CONNECT] = CAUSE_UPSTREAM_CONNECT,
    [LINK_FAILED_TLS] = CAUSE_UPSTREAM_TLS,
    [LINK_FAILED_TIMEOUT] = CAUSE_CONNECT_TIMEOUT,
    [LINK_FAILED_NO_SERVER] = CAUSE_NO_SERVER,
    [LINK_FAILED_NO_MEMORY] = CAUSE_NO_MEMORY,
    [LINK_FAILED_NO_DESCRIPTORS] = CAUSE_NO_DESCRIPTORS,
};

/* Takes an upstream connection for the first try, or for a retry (`why`). If there is none, the
 * exchange fails with `otherwise`, or with that of upstream_take() if it is CAUSE_NONE. */
static void forward(struct exchange *x, enum retry_cause why, enum cause otherwise)
{
    enum link_failure failure;

    exchange_enter(x, PHASE_CONNECT);
    if (x->overdue) {
        exchange_fail(x, x->overdue, NULL);
        return;
    }
    x->link = upstream_take(&x->generation->pools, x->rule->upstream->index, &x->owner,
                            why == RETRY_IDLE_CLOSED, &x->tries, &failure);
    if (!x->link) {
        exchange_fail(x, otherwise == CAUSE_NONE ? cause_of[failure] : otherwise, NULL);
        return;
    }
    if (why != RETRY_NONE)
        counter_add(&x->worker->stats.upstream_retries[why], 1);
    if (x->link->ready)
        request_send(x);
}

void exchange_connect(struct exchange *x)
{
    if (x->downstream->origin->decides)
        exchange_reply(x, 200, NULL);
    else
        forward(x, RETRY_NONE, CAUSE_NONE);
}

void exchange_release(struct exchange *x)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    exchange_connect(x);
}

void exchange_connected(struct exchange *x, struct link *link)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->link = link;
    request_send(x);
}

/* Nothing was sent on this connection, so any request may go to the next server. */
void exchange_connect_failed(struct exchange *x, enum link_failure failure)
{
    enum cause cause = cause_of[failure];

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->link = NULL;
    if (retry_may(x, cause_table[cause].retry))
        forward(x, cause_table[cause].retry, cause);
    else
        exchange_fail(x, cause, NULL);
}

void exchange_forget_request(struct exchange *x)
{
    iobuf_put(&x->worker->buffers, &x->head);
    iobuf_put(&x->worker->buffers, &x->request.kept);
}

bool exchange_try_again(struct exchange *x, enum retry_cause why, enum cause otherwise)
{
    if (!retry_may(x, why))
        return false;
    x->link->ops->release(x->link, false);
    x->link = NULL;
    x->content_since_us = x->blocked_since_us = x->blocked_us = 0;
    deadline_cancel(&x->client_deadline);
    if (!x->request.ended)
        x->downstream->ops->want_body(x->downstream, false);
    forward(x, why, otherwise);
    return true;
}

/* If the server states that it has not processed the request, any request is sent again. If it
 * closed an idle pooled connection before it received the request, the server has
 * not failed: the request is sent again on a new connection. Otherwise the server has failed,
 * and weir tries another server first. */
void exchange_link_died(struct exchange *x)
{
    enum cause cause = CAUSE_UPSTREAM_CLOSED;
    static const enum retry_cause retries[] = {[LINK_LOST] = RETRY_NONE,
                                               [LINK_CLOSED_IDLE] = RETRY_IDLE_CLOSED,
                                               [LINK_GOING_AWAY] = RETRY_GOING_AWAY,
                                               [LINK_REFUSED] = RETRY_REFUSED,
                                               [LINK_HEAD_TOO_LARGE] = RETRY_NONE};
    enum link_loss loss = x->link->ops->loss(x->link);

    if (loss == LINK_HEAD_TOO_LARGE) {
        exchange_fail(x, CAUSE_HEAD_TOO_LARGE, "see the server's SETTINGS_MAX_HEADER_LIST_SIZE");
        return;
    }
    if (exchange_try_again(x, retries[loss], cause))
        return;
    upstream_note_failure(x->link, cause_table[cause].text);
    if (exchange_try_again(x, cause_table[cause].retry, cause) ||
        exchange_try_again(x, RETRY_IDLE_CLOSED, cause))
        return;
    exchange_fail(x, cause, x->link->ops->fault(x->link));
}
