/* step_relay.c - RELAY: both directions at the same time (relay_halves.h), and their deadlines. */
#include "proxy/relay_halves.h"
#include "proxy/retry.h"
#include "proxy/step.h"

/* Extended once, as the client's deadline is. A partial header that was already read does not count
 * as input. */
static enum step link_late(struct exchange *x)
{
    enum cause cause = CAUSE_RESPONSE_TIMEOUT;

    if (!x->upstream.extended && !x->upstream.link->pending && !x->downstream->pending &&
        x->upstream.link->ops->has_input(x->upstream.link)) {
        exchange_watch(x, false, true);
        x->upstream.extended = true;
        return STEP_WAIT;
    }
    if (!exchange_is_answering(x))
        exchange_note_error(x, cause);
    if (!exchange_owes_content(x) && retry_start(x, cause_table[cause].retry, cause))
        return STEP_NEXT;
    return step_fail(x, cause, NULL);
}

/* Events of the link are void after it was released. */
enum step step_relay(struct exchange *x)
{
    enum step step = STEP_WAIT;

    if (exchange_has(x, EVENT_ENTERED))
        return request_begin(x);
    if (exchange_has(x, EVENT_CONTENT_LATE))
        step = request_late(x);
    if (step == STEP_WAIT && x->upstream.link && exchange_has(x, EVENT_LINK_LATE))
        step = link_late(x);
    if (step == STEP_WAIT && x->upstream.link && exchange_has(x, EVENT_LINK_BROKEN))
        step = request_broken(x);
    if (step == STEP_WAIT && x->upstream.link && exchange_has(x, EVENT_LINK_WRITABLE))
        step = request_writable(x);
    if (step == STEP_WAIT && exchange_has(x, EVENT_CLIENT_READABLE))
        step = request_readable(x);
    if (step == STEP_WAIT && exchange_has(x, EVENT_CLIENT_WRITABLE))
        step = response_writable(x);
    if (step == STEP_WAIT && x->upstream.link && exchange_has(x, EVENT_LINK_READABLE))
        step = response_readable(x);
    return step;
}
