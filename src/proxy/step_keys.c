/* step_keys.c - KEYS: a request whose token names an unknown key waits until the keys by URL are
 * fetched, once. Then ROUTE begins again. */
#include "base/clock.h"
#include "proxy/step.h"
#include "proxy/waiting_request.h"

enum { KEYS_WAIT_US = 3000000 };

void keys_end(struct exchange *x)
{
    struct worker *w = x->worker;

    if (!x->keys.waits)
        return;
    x->keys.waits = false;
    TAILQ_REMOVE(&w->keys_awaited, x, keys.link);
    w->keys_awaited_count--;
    deadline_cancel(&x->client_deadline);
}

enum step step_keys(struct exchange *x)
{
    struct worker *w = x->worker;

    if (exchange_has(x, EVENT_ENTERED)) {
        if (!waiting_request_keep(x))
            return step_fail(x, CAUSE_NO_MEMORY, NULL);
        x->keys.waits = x->keys.waited = true;
        TAILQ_INSERT_TAIL(&w->keys_awaited, x, keys.link);
        w->keys_awaited_count++;
        deadline_arm(&w->queue.keys, &x->client_deadline, clock_us(), KEYS_WAIT_US);
        return STEP_WAIT;
    }
    if (!exchange_has(x, EVENT_KEYS))
        return STEP_WAIT;
    keys_end(x);
    waiting_request_restore(x);
    return step_enter(x, PHASE_ROUTE);
}
