/* step_reply.c - REPLY: sends weir's own response and waits until the client has taken it. */
#include "proxy/relay_halves.h"
#include "proxy/reply.h"
#include "proxy/service_listener.h"
#include "proxy/step.h"

static enum step reply(struct exchange *x)
{
    switch (service_answers(x) ? service_reply_send(x) : reply_send(x, x->record.why)) {
    case DOWNSTREAM_SENT: break;
    case DOWNSTREAM_PENDING: exchange_watch(x, true, false); return STEP_WAIT;
    case DOWNSTREAM_GONE:
    case DOWNSTREAM_TOO_LARGE:
        if (x->record.cause == CAUSE_NONE)
            x->record.cause = CAUSE_CLIENT_GONE;
        return step_end(x, DOWNSTREAM_ABORTED);
    }
    return step_end(x, DOWNSTREAM_COMPLETE);
}

enum step step_reply(struct exchange *x)
{
    if (exchange_has(x, EVENT_ENTERED))
        return reply(x);
    if (exchange_has(x, EVENT_CLIENT_READABLE) && request_drop(x) == STEP_FAIL)
        return STEP_FAIL;
    if (!exchange_has(x, EVENT_CLIENT_WRITABLE))
        return STEP_WAIT;
    if (!x->downstream->pending)
        return step_end(x, DOWNSTREAM_COMPLETE);
    exchange_watch(x, true, false);
    return STEP_WAIT;
}
