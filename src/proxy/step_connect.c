/* step_connect.c - CONNECT: takes an upstream connection for the first try or a retry
 * (exchange.upstream); retry.h says when there is another one. */
#include "proxy/retry.h"
#include "proxy/step.h"

/* The cause of an exchange's failure if there is no upstream connection. */
static const enum cause cause_of[LINK_FAILURES] = {
    [LINK_FAILED_CONNECT] = CAUSE_UPSTREAM_CONNECT,
    [LINK_FAILED_TLS] = CAUSE_UPSTREAM_TLS,
    [LINK_FAILED_TIMEOUT] = CAUSE_CONNECT_TIMEOUT,
    [LINK_FAILED_CLOSED] = CAUSE_UPSTREAM_CONNECT,
    [LINK_FAILED_NO_SERVER] = CAUSE_NO_SERVER,
    [LINK_FAILED_NO_MEMORY] = CAUSE_NO_MEMORY,
    [LINK_FAILED_NO_DESCRIPTORS] = CAUSE_NO_DESCRIPTORS,
    [LINK_FAILED_NO_PORTS] = CAUSE_UPSTREAM_CONNECT,
};

static struct link *link_of(struct exchange *x, bool fresh, enum link_failure *failure)
{
    return upstream_take(&x->generation->pools, x->route.rule->upstream->index, &x->upstream.owner,
                         fresh, &x->upstream.tries, failure);
}

/* A server that restarts may accept a connection and close it at once. If no other server is left,
 * each is tried once more. No other server has received the request. */
static bool may_dial_again(struct exchange *x)
{
    if (!x->upstream.closed_new || x->upstream.retries || x->upstream.dialed_again)
        return false;
    x->upstream.dialed_again = true;
    x->upstream.tries.servers = 0;
    return true;
}

static enum step take_link(struct exchange *x)
{
    enum retry_cause why = x->upstream.retry_why;
    enum cause cause = x->upstream.without_server;
    enum link_failure failure;

    if (x->overdue)
        return step_fail(x, x->overdue, NULL);
    x->upstream.link = link_of(x, why == RETRY_IDLE_CLOSED, &failure);
    if (!x->upstream.link && may_dial_again(x))
        x->upstream.link = link_of(x, true, &failure);
    if (!x->upstream.link)
        return step_fail(x, cause == CAUSE_NONE ? cause_of[failure] : cause, NULL);
    if (why != RETRY_NONE)
        counter_add(&x->worker->stats.upstream_retries[why], 1);
    return x->upstream.link->ready ? step_enter(x, PHASE_RELAY) : STEP_WAIT;
}

/* Nothing was sent on this connection, so any request may go to the next server. If there is none,
 * the client gets the failure of the first one. */
static enum step try_next(struct exchange *x)
{
    enum cause cause = cause_of[x->upstream.failure];

    x->upstream.closed_new |= x->upstream.failure == LINK_FAILED_CLOSED;
    if (x->upstream.without_server == CAUSE_NONE)
        x->upstream.without_server = cause;
    if (!retry_may(x, cause_table[cause].retry))
        return step_fail(x, x->upstream.without_server, NULL);
    x->upstream.retry_why = cause_table[cause].retry;
    return step_enter(x, PHASE_CONNECT);
}

enum step step_connect(struct exchange *x)
{
    if (x->downstream->origin->decides)
        return x->overdue ? step_fail(x, x->overdue, NULL) : step_reply_with(x, 200);
    if (exchange_has(x, EVENT_LINK_READY))
        return step_enter(x, PHASE_RELAY);
    if (exchange_has(x, EVENT_LINK_FAILED))
        return try_next(x);
    return exchange_has(x, EVENT_ENTERED) ? take_link(x) : STEP_WAIT;
}
