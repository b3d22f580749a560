/* step_hold.c - HOLD: a request waits in the queue of a limit.
 *
 * The limiter script returns a delay in µs from its decision. weir counts it from the arrival of
 * the decision, which is later, so no request leaves early. Each connection holds at most one
 * request. */
#include "base/clock.h"
#include "proxy/step.h"

void hold_end(struct exchange *x)
{
    x->hold.left_early = timer_is_set(&x->hold.timer);
    timer_cancel(&x->worker->holds, &x->hold.timer);
    x->hold.held_us = clock_us() - x->hold.since_us;
    counter_subtract(&x->worker->stats.requests_held, 1);
    histogram_add(&x->worker->stats.held, x->hold.held_us);
}

static enum step begin_hold(struct exchange *x)
{
    uint64_t delay_us = (uint64_t)x->decision_request.decision.delay_us;

    x->hold.since_us = clock_us();
    counter_add(&x->worker->stats.requests_held, 1);
    /* +1: the clock rounds down to whole µs */
    if (timer_set(&x->worker->holds, &x->hold.timer, x->hold.since_us + delay_us + 1))
        return STEP_WAIT;
    hold_end(x);
    return step_fail(x, CAUSE_NO_MEMORY, NULL);
}

enum step step_hold(struct exchange *x)
{
    if (exchange_has(x, EVENT_ENTERED))
        return begin_hold(x);
    if (!exchange_has(x, EVENT_CLIENT_CUT_SHORT | EVENT_HELD))
        return STEP_WAIT;
    hold_end(x);
    return exchange_has(x, EVENT_HELD) ? step_enter(x, PHASE_CONNECT)
                                       : step_fail(x, CAUSE_CLIENT_GONE, NULL);
}
