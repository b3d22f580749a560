/* step_keys.c - KEYS: a request whose token names an unknown key waits until the keys by URL are
 * fetched. Then ROUTE begins again. It may wait once more, for the rest of the time: the fetch may
 * have begun before the issuer published the key. */
#include "base/clock.h"
#include "proxy/step.h"
#include "proxy/waiting_request.h"

static const uint64_t keys_wait_us = 3000000; /* since the request's start */

static void arm_keys_wait(struct exchange *x)
{
    uint64_t now_us = clock_us(), end_us = x->record.started_us + keys_wait_us;

    deadline_arm(&x->worker->queue.keys, &x->client_deadline, now_us,
                 end_us > now_us ? end_us - now_us : 0);
}

void keys_end(struct exchange *x)
{
    struct worker *w = x->worker;

    if (x->keys.wait != KEYS_AWAITED)
        return;
    x->keys.wait = KEYS_NOT_AWAITED;
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
        x->keys.wait = KEYS_AWAITED;
        TAILQ_INSERT_TAIL(&w->keys_awaited, x, keys.link);
        w->keys_awaited_count++;
        arm_keys_wait(x);
        return STEP_WAIT;
    }
    if (!exchange_has(x, EVENT_KEYS))
        return STEP_WAIT;
    waiting_request_restore(x);
    return step_enter(x, PHASE_ROUTE);
}
